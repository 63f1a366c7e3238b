"""Bugs that the cluster suite must find: in the core's roles, in replication, in the controller.

Some are mistakes that other systems are known for: a watermark that trusts one replica, a follower
that cuts its log to its watermark, an in-sync set that shrinks and forgets who held what.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from tidelog.broker.directory.core import positions, resends, role_changes
from tidelog.broker.directory.core.messages import (
    AppendBatch,
    Appended,
    Lead,
    RestartLog,
    TrimHead,
    TruncateTail,
)
from tidelog.broker.directory.core.partition import Leading, Partition
from tidelog.broker.directory.core.producer_check import find_duplicate
from tidelog.broker.directory.core.rounds import Again, Awaiting, Planned
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.marks import epoch_file
from tidelog.broker.log.opening import log as open_log_module
from tidelog.broker.log.opening.log import OpenedLog, open_log
from tidelog.broker.log.producer_state import ProducedBatch, Producer, ProducerState
from tidelog.broker.log.reading import reader as read_module
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.replication.follower.partition import FollowedPartition
from tidelog.broker.replication.follower.session import FollowerSession
from tidelog.broker.replication.in_sync.set import InSyncSet
from tidelog.broker.replication.leader import session as leader_session
from tidelog.broker.replication.leader.partition import LeaderPartition
from tidelog.broker.replication.repair import reopening
from tidelog.broker.replication.shared import leader_check
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    Divergence,
    FollowerPosition,
    PartitionNews,
)
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.chaos.sim.planted.of_clocks import (
    hold_the_time_of_the_start,
    ignore_the_verdict,
    stamp_with_any_clock,
    take_the_latest_clock,
)
from tidelog.chaos.sim.planted.of_moves import (
    leave_one_alone_too_early,
    reassign_before_the_copy,
)
from tidelog.chaos.sim.planted.of_reads import (
    call_out_of_range_what_is_not_here,
    show_a_watermark_that_lags,
)
from tidelog.chaos.sim.planted.of_starts import OF_STARTS
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.image.image import NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage
from tidelog.metadata_quorum.controller.brokers import registration as brokers
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.log_ends import ToldEnds
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.ports import Disk
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset, PartitionKey

_MISROUTED_EVERY: Final = 16


# -- what is committed -------------------------------------------------------------------------


def acknowledge_before_the_commit() -> Substitution:
    """A batch with acks=all is answered when the leader has written it."""

    def answer_written(state: DirectoryState, planned: Planned, stored: Awaiting) -> None:
        del planned
        state.acknowledge(stored)

    return Substitution(role_changes, "answer_written", answer_written)


def watermark_from_log_end() -> Substitution:
    """With flush=sync a replica counts with what it has written, flushed or not."""

    def position_of(
        log_end_offset: Offset, flushed_offset: Offset, *, is_flush_sync: bool
    ) -> Offset:
        del flushed_offset, is_flush_sync
        return log_end_offset

    return Substitution(positions, "position_of", position_of)


def _leading_with(change: Callable[[Lead], Lead]) -> Substitution:
    """The core is told something else than what its leader has to wait for."""
    original = role_changes.on_lead

    def on_lead(state: DirectoryState, message: Lead) -> None:
        original(state, change(message))

    return Substitution(role_changes, "on_lead", on_lead)


def watermark_from_the_leader_alone() -> Substitution:
    """The leader waits for nobody."""
    return _leading_with(lambda message: msgspec.structs.replace(message, others=()))


def watermark_from_one_follower() -> Substitution:
    """One follower is enough."""
    return _leading_with(
        lambda message: msgspec.structs.replace(message, others=message.others[:1])
    )


def watermark_below_the_minimum() -> Substitution:
    """It moves however few are in sync."""
    return _leading_with(lambda message: msgspec.structs.replace(message, in_sync_count=1 << 10))


def watermark_from_one_memory() -> Substitution:
    """A leader that is in sync alone, where that is enough, goes by the rule for several: with
    flush=replicated it counts with what it has written."""
    original = role_changes.on_lead

    def on_lead(state: DirectoryState, message: Lead) -> None:
        partition = state.partitions.get(message.key)
        if partition is not None and partition.settings.in_sync_replicas_min == 1:
            in_sync_count = max(2, message.in_sync_count)
            message = msgspec.structs.replace(message, in_sync_count=in_sync_count)
        original(state, message)

    return Substitution(role_changes, "on_lead", on_lead)


def tell_followers_too_much() -> Substitution:
    """Followers are told the leader's log end for its watermark."""
    original = LeaderPartition.news

    def news(self: LeaderPartition, piece: Any = None) -> PartitionNews:
        made = original(self, piece)
        return msgspec.structs.replace(made, high_watermark=self.log.log_end_offset)

    return Substitution(LeaderPartition, "news", news)


def serve_beyond_the_watermark() -> Substitution:
    """Reads end where the log ends."""

    def bound_of(log: PartitionLog, upper_bound: int | None) -> int:
        del upper_bound
        return log.log_end_offset

    return Substitution(read_module, "_bound_of", bound_of)


def forget_the_watermark_on_restart() -> Substitution:
    """After a start everything in the log counts as committed."""

    def hold_back(self: PartitionLog, committed_offset: int) -> None:
        del committed_offset
        self.keep_uncommitted()

    return Substitution(PartitionLog, "hold_back", hold_back)


def append_in_the_handlers_task() -> Substitution:
    """The handler's task takes the offset itself, from the log as it sees it; then it waits, and
    the turn of another one comes."""
    original = DirectoryOwner.submit

    async def append(owner: Any, log: PartitionLog, arguments: Any, options: Any) -> Appended:
        base_offset = Offset(log.log_end_offset)
        await asyncio.sleep(0)
        answer: Appended = await original(owner, log, *arguments, **options)
        return msgspec.structs.replace(answer, base_offset=base_offset)

    def submit(self: DirectoryOwner, log: PartitionLog, *arguments: Any, **options: Any) -> Any:
        work = append(self, log, arguments, options)
        return asyncio.get_running_loop().create_task(work)

    return Substitution(DirectoryOwner, "submit", submit)


# -- copies ------------------------------------------------------------------------------------


def truncate_to_the_watermark() -> Substitution:
    """A follower of a new leader cuts its log to the watermark that it knows."""
    original = DirectoryOwner.change

    async def change(self: DirectoryOwner, order: TrimHead | TruncateTail | RestartLog) -> Offset:
        partition = self._core.state.partitions.get(order.key)
        if isinstance(order, TruncateTail) and partition is not None:
            offset = min(order.offset, partition.log.high_watermark)
            return await original(self, msgspec.structs.replace(order, offset=offset))
        return await original(self, order)

    return Substitution(DirectoryOwner, "change", change)


def ignore_where_logs_part() -> Substitution:
    """A follower's log counts as a prefix of its leader's, whatever epochs it holds."""

    def divergence_of(
        log: PartitionLog, position: FollowerPosition, *, is_unclean: bool
    ) -> Divergence | None:
        del log, position, is_unclean
        return None

    return Substitution(leader_session, "divergence_of", divergence_of)


def promise_what_is_not_flushed() -> Substitution:
    """A follower tells the end of its log for what it has flushed."""
    original = FollowedPartition.position

    def position(self: FollowedPartition, log: PartitionLog) -> FollowerPosition:
        made = original(self, log)
        return msgspec.structs.replace(made, flushed_offset=made.log_end_offset)

    return Substitution(FollowedPartition, "position", position)


def expand_too_early() -> Substitution:
    """A follower comes into sync as soon as it is heard of."""

    def is_near(self: InSyncSet, broker_id: BrokerId) -> bool:
        return self.position(broker_id) is not None

    return Substitution(InSyncSet, "_is_near", is_near)


def skip_the_resync_after_a_break() -> Substitution:
    """A follower opens a new stream, and names nothing that it has named on the old one."""

    def reset(self: FollowerSession) -> None:
        self.session_sequence = self.last_answer = 0
        self.confirmed_answer = self._told_confirmed = 0
        self._unwritten.clear()
        self._removed.clear()
        self._moved.clear()

    return Substitution(FollowerSession, "reset", reset)


def misroute_a_batch() -> Substitution:
    """Now and then a batch is appended to another partition of its directory."""
    original = DirectoryOwner.submit

    def submit(
        self: DirectoryOwner, log: PartitionLog, batch: bytes, header: BatchHeader, **options: Any
    ) -> Any:
        if header.crc % _MISROUTED_EVERY == 0:
            others = [
                each.log
                for each in self._core.state.partitions.values()
                if each.log is not log and isinstance(each.role, Leading)
            ]
            log = others[0] if others else log
        return original(self, log, batch, header, **options)

    return Substitution(DirectoryOwner, "submit", submit)


def drop_the_epoch_check() -> Substitution:
    """Where two logs part is told from where they end: nobody looks at the leader epoch of the last
    batch that a follower has."""
    original = leader_check.divergence_of

    def divergence_of(
        log: PartitionLog, position: FollowerPosition, *, is_unclean: bool
    ) -> Divergence | None:
        latest = LeaderEpoch(log.leader_epochs.latest)
        if position.last_epoch != NO_EPOCH and latest != NO_EPOCH:
            position = msgspec.structs.replace(position, last_epoch=latest)
        return original(log, position, is_unclean=is_unclean)

    return Substitution(leader_session, "divergence_of", divergence_of)


def leave_stopped_logs_alone() -> Substitution:
    """A partition whose log could not be read stays stopped until somebody restarts its node."""

    def may_be_opened(replica: Replica) -> bool:
        del replica
        return False

    return Substitution(reopening, "may_be_opened", may_be_opened)


# -- producers ---------------------------------------------------------------------------------


def forget_producers_on_restart() -> Substitution:
    """A start knows nothing of the producers that wrote before it."""

    async def open_forgetful(
        disk: Disk, key: PartitionKey, leader_epoch: LeaderEpoch, marks: Any, **whole: bool
    ) -> OpenedLog:
        opened = await open_log(disk, key, leader_epoch, marks, **whole)
        opened.log.producers = ProducerState()
        return opened

    return Substitution(open_log_module, "open_log", open_forgetful)


def store_a_duplicate() -> Substitution:
    """A batch that is sent again gets a new offset."""
    original = resends.judge

    def judge(partition: Partition, append: AppendBatch) -> Again | None:
        original(partition, append)
        return None

    return Substitution(resends, "judge", judge)


def accept_a_gap() -> Substitution:
    """A batch before which another one is missing is stored."""

    def find_with_gaps(
        known: Producer | None, header: BatchHeader, *, tried: str
    ) -> ProducedBatch | None:
        try:
            return find_duplicate(known, header, tried=tried)
        except TidelogError as error:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE:
                return None
            raise

    return Substitution(resends, "find_duplicate", find_with_gaps)


# -- the controller ----------------------------------------------------------------------------


def elect_anybody() -> Substitution:
    """The preferred replica leads if it is alive, in sync or not."""

    def choose(self: PartitionState, staying: Collection[BrokerId], view: ReplicaView) -> BrokerId:
        del staying
        for candidate in self.preference():
            if view.is_usable(candidate):
                return candidate
        return NO_LEADER

    return Substitution(PartitionState, "_choose", choose)


def shrink_and_count_on_all() -> Substitution:
    """Whoever leaves the in-sync set may lead still, however many stay and go on without it."""
    original = PartitionState.set_in_sync

    def set_in_sync(self: PartitionState, wanted: Collection[BrokerId], minimum: int) -> None:
        del minimum
        original(self, wanted, len(self.replicas) + 1)

    return Substitution(PartitionState, "set_in_sync", set_in_sync)


def count_on_a_crashed_machine() -> Substitution:
    """A broker of which the machine has crashed keeps its place in the in-sync set."""

    def may_lack_records(known: BrokerImage, registration: Registration, topic: TopicImage) -> bool:
        del known, registration, topic
        return False

    return Substitution(brokers, "_may_lack_records", may_lack_records)


def believe_an_old_copy() -> Substitution:
    """Nobody looks at the epoch that lies in a data directory: what the last process of the broker
    left speaks for whatever lies there now."""

    def has_gone_back(broker: BrokerImage, partition: PartitionImage) -> bool:
        del broker, partition
        return False

    return Substitution(brokers, "has_gone_back", has_gone_back)


def believe_logs_without_marks() -> Substitution:
    """That `marks` is gone, or empty, is taken for a directory in which nothing was flushed."""

    async def no_doubt(*asked: object) -> str:
        del asked
        return ""

    return Substitution(epoch_file, "_doubt_of_marks", no_doubt)


def elect_no_longest_log() -> Substitution:
    """Where nobody is sure to hold everything any more, what brokers tell of their logs leads to
    nothing."""

    def elect(self: ToldEnds, image: Image, *told: object) -> Decision[None]:
        del self, image, told
        return Decision(records=(), answer=None)

    return Substitution(ToldEnds, "elect", elect)


_COMMITTED: Final = frozenset(
    {
        "not_flushed",
        "not_copied",
        "watermark_ahead",
        "watermark_not_flushed",
        "in_sync_lacks",
        "leader_lacks",
        "lost_write",
        "unseen",
        "vanished",
        "served_uncommitted",
        "truncated_below_watermark",
        "falling_watermark",
    }
)
"""What says that something was promised that not all had."""
_LOST: Final = frozenset(
    {
        "in_sync_lacks",
        "leader_lacks",
        "lost_write",
        "unseen",
        "vanished",
        "watermark_ahead",
        "truncated_below_watermark",
        "replicas_differ",
        "inconsistent_offsets",
        "reused_offset",
        "fresh_offset",
        "misplaced",
    }
)
"""What says that somebody who lacked something was counted on."""
_OF_PRODUCERS: Final = frozenset(
    {
        "duplicate",
        "misplaced",
        "reordered",
        "overtaken",
        "forgotten_producer",
        "rebuilt_producers",
        "producers_differ",
        "ext_nonmonotonic_send",
    }
)


_EARLY: Final = frozenset({"deleted_too_early", "vanished", "unseen", "lost_write"})


def _plant(make: Any, expected: frozenset[str]) -> Plant:
    return Plant(make=make, expected=expected)


PLANTED: Final[Mapping[str, Plant]] = {
    "acknowledge_before_the_commit": _plant(acknowledge_before_the_commit, _COMMITTED),
    "watermark_from_log_end": _plant(watermark_from_log_end, _COMMITTED),
    "watermark_from_the_leader_alone": _plant(watermark_from_the_leader_alone, _COMMITTED),
    "watermark_from_one_follower": _plant(watermark_from_one_follower, _COMMITTED),
    "watermark_below_the_minimum": _plant(
        watermark_below_the_minimum, frozenset({"watermark_below_minimum"})
    ),
    "watermark_from_one_memory": _plant(
        watermark_from_one_memory, frozenset({"watermark_in_one_memory", "not_flushed"})
    ),
    "tell_followers_too_much": _plant(tell_followers_too_much, _COMMITTED | _LOST),
    "serve_beyond_the_watermark": _plant(
        serve_beyond_the_watermark, frozenset({"served_uncommitted", "beyond_watermark"})
    ),
    "forget_the_watermark_on_restart": _plant(forget_the_watermark_on_restart, _COMMITTED | _LOST),
    "truncate_to_the_watermark": _plant(truncate_to_the_watermark, _LOST),
    "ignore_where_logs_part": _plant(ignore_where_logs_part, _LOST),
    "promise_what_is_not_flushed": _plant(promise_what_is_not_flushed, _COMMITTED),
    "expand_too_early": _plant(expand_too_early, _LOST),
    "skip_the_resync_after_a_break": _plant(
        skip_the_resync_after_a_break, frozenset({"not_alive", "recovery"})
    ),
    "append_in_the_handlers_task": _plant(
        append_in_the_handlers_task, frozenset({"misplaced", "reused_offset", "fresh_offset"})
    ),
    "drop_the_epoch_check": _plant(drop_the_epoch_check, _LOST),
    "leave_stopped_logs_alone": _plant(
        leave_stopped_logs_alone, frozenset({"not_alive", "recovery"})
    ),
    "misroute_a_batch": _plant(misroute_a_batch, frozenset({"from_nowhere", "not_flushed"})),
    "forget_producers_on_restart": _plant(forget_producers_on_restart, _OF_PRODUCERS),
    "store_a_duplicate": _plant(store_a_duplicate, _OF_PRODUCERS),
    "accept_a_gap": _plant(accept_a_gap, _OF_PRODUCERS),
    "elect_anybody": _plant(elect_anybody, _LOST),
    "shrink_and_count_on_all": _plant(shrink_and_count_on_all, _LOST),
    "count_on_a_crashed_machine": _plant(count_on_a_crashed_machine, _LOST),
    "believe_an_old_copy": _plant(believe_an_old_copy, frozenset({"old_copy_counts"}) | _LOST),
    "believe_logs_without_marks": _plant(
        believe_logs_without_marks, frozenset({"old_copy_counts"}) | _LOST
    ),
    "elect_no_longest_log": _plant(elect_no_longest_log, frozenset({"not_alive", "recovery"})),
    "reassign_before_the_copy": _plant(reassign_before_the_copy, _LOST),
    **OF_STARTS,
    "ignore_the_verdict": _plant(ignore_the_verdict, _EARLY),
    "take_the_latest_clock": _plant(take_the_latest_clock, _EARLY),
    "hold_the_time_of_the_start": _plant(hold_the_time_of_the_start, _EARLY),
    "stamp_with_any_clock": _plant(stamp_with_any_clock, frozenset({"stamped_early"}) | _EARLY),
    "leave_one_alone_too_early": _plant(
        leave_one_alone_too_early, frozenset({"left_alone"}) | _LOST
    ),
    "call_out_of_range_what_is_not_here": _plant(
        call_out_of_range_what_is_not_here, frozenset({"refused_kept"})
    ),
    "show_a_watermark_that_lags": _plant(show_a_watermark_that_lags, frozenset({"end_behind"})),
}
"""By name; for the runner's `--planted` and the tests."""
