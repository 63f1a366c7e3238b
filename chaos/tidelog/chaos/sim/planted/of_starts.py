"""Bugs of where copies begin, and of files that go, for the cluster suite."""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.directory.core.messages import TrimHead
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.housekeeping.core.held import HeldLog
from tidelog.broker.housekeeping.core.retention import plan_retention
from tidelog.broker.housekeeping.housekeeper import Housekeeper
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.leader import session as leader_session
from tidelog.broker.replication.shared import log_start
from tidelog.broker.replication.shared.messages import FollowerPosition
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.ports import FileUnusable
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch


def trim_what_is_followed() -> Substitution:
    """Retention trims a follower's copy as well, and says that its leader had decided so."""
    original: Any = Housekeeper._keep

    async def keep(self: Housekeeper, held: HeldLog, *times: Any) -> None:
        await original(self, held, *times)
        log = held.log
        if log.decides_its_start:
            return
        due = plan_retention(log, held.settings, now_ms=0, may_expire=False, active_since_ms=None)
        if due.trim_to is not None:
            with contextlib.suppress(TidelogError):
                await self._owner.change(
                    TrimHead(key=log.key, offset=due.trim_to, start_epoch=log.leader_epoch)
                )

    return Substitution(Housekeeper, "_keep", keep)


def count_a_copy_without_its_head() -> Substitution:
    """A follower counts by where its log ends, wherever it begins."""

    def follower_lacks_head(log: PartitionLog, position: FollowerPosition) -> bool:
        del log, position
        return False

    return Substitution(leader_session, "follower_lacks_head", follower_lacks_head)


def believe_any_start() -> Substitution:
    """A start counts as decided whether or not a leader epoch is known that has moved it."""

    def is_decided(start_epoch: LeaderEpoch, leader_epoch: LeaderEpoch) -> bool:
        del start_epoch, leader_epoch
        return True

    return Substitution(log_start, "is_decided", is_decided)


def stop_all_for_one_file() -> Substitution:
    """A file that is gone counts as a disk that has failed: the whole directory stops."""

    async def check_there(self: DirectoryOwner, error: FileUnusable) -> None:
        del self
        raise TidelogError(error.code, tried=error.tried, happened=error.happened)

    return Substitution(DirectoryOwner, "_check_there", check_there)


_LACKS_HEAD: Final = frozenset({"in_sync_lacks_head"})
OF_STARTS: Final[Mapping[str, Plant]] = {
    "trim_what_is_followed": Plant(
        make=trim_what_is_followed, expected=frozenset({"start_moved_alone"})
    ),
    "count_a_copy_without_its_head": Plant(
        make=count_a_copy_without_its_head, expected=_LACKS_HEAD
    ),
    "believe_any_start": Plant(make=believe_any_start, expected=_LACKS_HEAD),
    "stop_all_for_one_file": Plant(
        make=stop_all_for_one_file, expected=frozenset({"false_failure"})
    ),
}
