"""Damaged replicas: reported, taken out, copied anew from their leaders.

Owns the order. It must never give up the bytes of a replica that somebody still counts on: files
are set aside, never removed, and only once the image shows that the replica neither leads nor is
known to hold every acknowledged record, at a partition epoch behind the report: by then no leader
lets it in by what it held before. An only replica stays stopped. One that could not be read
is reported as that: others lead until it is opened again (`reopening`), no file is set aside.

    the log has stopped: STORAGE_CORRUPT ──▶ ReportDamagedReplicas, again until it is answered
      ──▶ the image counts on others ──▶ files aside ──▶ an empty log follows ──▶ in sync again

Damage that somebody reads, and damage that the scrubber or a start finds, stop the log alike: one
that has stopped is heard of (`Replicas.wait_stopped`), and looked at now and then until it is in
order.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replication.repair.reopening import may_be_opened
from tidelog.broker.shared.events import EventLog
from tidelog.metadata.broker_reports import DamagedReplica
from tidelog.metadata.image.image import NO_LEADER, PartitionImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionEpoch, PartitionId, PartitionKey

LOOK_MS: Final = 500
RETRY_MS: Final = 5_000
"""Until a report that was refused, or a repair that failed, is tried again."""
REPORTS_MAX: Final = 1_000
_NS_PER_MS: Final = 1_000_000


class DamageCalls(Protocol):
    """What is asked of the controller."""

    async def report_damaged(
        self, damaged: Sequence[DamagedReplica]
    ) -> tuple[TidelogError | None, ...]:
        """None for each that it has taken out."""


class Repair:
    """One a broker; `run` for its life."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        clock: Clock,
        calls: DamageCalls,
        events: EventLog,
        *,
        broker_id: BrokerId,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._calls = calls
        self._events = events
        self._broker_id = broker_id
        self._not_before_ms: dict[PartitionKey, int] = {}
        self._told: dict[PartitionKey, PartitionLog] = {}
        self._reported: dict[PartitionKey, tuple[PartitionLog, PartitionEpoch]] = {}
        """Damaged logs that the controller has heard of, and the partition epoch known before."""
        self.repaired_count = 0
        """Replicas that were begun anew since the start."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._replicas.wait_stopped()
            await self._clock.sleep(LOOK_MS)
            stopped = [each for each in self._replicas.stopped() if _has_stopped(each)]
            damaged = [each for each in stopped if _is_damaged(each)]
            for replica in stopped:
                self._tell_once(replica)
            unread = [each for each in stopped if may_be_opened(each)]
            await self._report([each for each in (*damaged, *unread) if self._is_due(each)])
            for replica in damaged:
                if self._is_due(replica) and self._can_be_copied(replica):
                    await self._begin_anew(replica)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // _NS_PER_MS

    def _is_due(self, replica: Replica) -> bool:
        return self._now_ms() >= self._not_before_ms.get(replica.log.key, 0)

    def _image_of(self, replica: Replica) -> PartitionImage | None:
        key = replica.log.key
        return self._metadata.image().partition(key.topic_id, key.partition)

    def _can_be_copied(self, replica: Replica) -> bool:
        """Whether nobody counts on this broker's replica, or will, and another one leads."""
        partition = self._image_of(replica)
        if partition is None or self._is_counted_on(partition):
            return False
        log, epoch_before = self._reported.get(replica.log.key, (None, partition.partition_epoch))
        if log is not replica.log or partition.partition_epoch <= epoch_before:
            return False
        return partition.leader_id not in (self._broker_id, NO_LEADER)

    def _is_counted_on(self, partition: PartitionImage) -> bool:
        return self._broker_id in (
            *partition.in_sync_replicas,
            *partition.eligible_replicas,
            *partition.last_known_eligible,
        )

    def _is_to_report(self, replica: Replica, partition: PartitionImage) -> bool:
        """Damage once at least, and while somebody counts on it; else where others wait for it."""
        if not _is_damaged(replica):
            return self._broker_id in partition.in_sync_replicas
        log, _ = self._reported.get(replica.log.key, (None, None))
        return log is not replica.log or self._is_counted_on(partition)

    async def _report(self, damaged: Sequence[Replica]) -> None:
        """Those that somebody counts on, or may; an only replica has nobody to take over."""
        reported: list[DamagedReplica] = []
        known: list[tuple[PartitionLog, PartitionEpoch]] = []
        for replica in damaged:
            partition = self._image_of(replica)
            if partition is None:
                continue
            if len(partition.replicas) == 1 or len(reported) == REPORTS_MAX:
                continue
            key = replica.log.key
            if not self._is_to_report(replica, partition):
                # The controller kept it under another leader: others count on it no more.
                self._replicas.irreplaceable.pop(key, None)
            else:
                known.append((replica.log, partition.partition_epoch))
                reported.append(
                    DamagedReplica(
                        topic_id=key.topic_id,
                        partition=key.partition,
                        leader_epoch=partition.leader_epoch,
                        may_come_back=not _is_damaged(replica),
                    )
                )
        if not reported:
            return
        try:
            errors = await self._calls.report_damaged(reported)
        except TidelogError:
            # No controller, or none that answers: looked at again soon.
            return
        for each, before, error in zip(reported, known, errors, strict=True):
            key = PartitionKey(each.topic_id, PartitionId(each.partition))
            self._replicas.irreplaceable.pop(key, None)
            if error is None and not each.may_come_back:
                self._reported[key] = before
            if error is not None:
                if error.code is ErrorCode.NO_ELIGIBLE_LEADER:
                    self._replicas.irreplaceable[key] = error
                self._wait(key)
                self._events.warning("damaged_replica_kept", partition=key, error=error)

    def _tell_once(self, replica: Replica) -> None:
        key, failure = replica.log.key, replica.log.failure
        if self._told.get(key) is not replica.log and failure is not None:
            self._told[key] = replica.log
            # Its leader must not count on what it said before.
            self._replicas.renew_role(key)
            event = "replica_damaged" if _is_damaged(replica) else "replica_stopped"
            self._events.warning(event, partition=key, error=failure)

    def _wait(self, key: PartitionKey) -> None:
        self._not_before_ms[key] = self._now_ms() + RETRY_MS

    async def _begin_anew(self, replica: Replica) -> None:
        key = replica.log.key
        if self._replicas.get(key.topic_id, key.partition) is not replica or replica.is_led:
            return
        try:
            kept_as = await self._replicas.begin_anew(key)
        except TidelogError as error:
            self._wait(key)
            self._events.warning("damaged_replica_kept", partition=key, error=error)
            return
        if not kept_as:
            return
        self._told.pop(key, None)
        self._reported.pop(key, None)
        self._not_before_ms.pop(key, None)
        self.repaired_count += 1
        self._events.warning(
            "replica_begun_anew", partition=key, directory=replica.directory.name, kept_as=kept_as
        )


def _has_stopped(replica: Replica) -> bool:
    """By itself, not with its directory."""
    is_usable = replica.directory.is_open and replica.directory.failure is None
    return is_usable and replica.log.failure is not None


def _is_damaged(replica: Replica) -> bool:
    failure = replica.log.failure
    return (
        failure is not None and failure.code is ErrorCode.STORAGE_CORRUPT and _has_stopped(replica)
    )
