"""Bugs of where copies begin, in housekeeping and replication, for the cluster suite."""

import contextlib
from typing import Any

from tidelog.broker.housekeeping.held import HeldLog
from tidelog.broker.housekeeping.housekeeper import Housekeeper
from tidelog.broker.housekeeping.retention import plan_retention
from tidelog.chaos.sim.planted import Substitution
from tidelog.wire.errors import TidelogError


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
                await self._owner.trim(log, due.trim_to, start_epoch=log.leader_epoch)

    return Substitution(Housekeeper, "_keep", keep)
