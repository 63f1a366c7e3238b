"""What this broker asks of the active controller about its replicas.

Owns what an answer, or none, means. It must never take an outcome for known that is not: an attempt
without an answer may take effect later.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidelog.broker.replication.shared.in_sync_types import Change, Outcome
from tidelog.metadata.broker_reports import (
    DamagedReplica,
    InSyncChange,
    InSyncMember,
    InSyncResult,
    ReplicaEnd,
)
from tidelog.metadata_quorum.services.controller_messages import (
    ALTER_PARTITIONS,
    REPORT_DAMAGED,
    REPORT_LOG_ENDS,
    decode_damaged,
    decode_results,
    encode_changes,
    encode_damaged,
    encode_log_ends,
)
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

CALL_MS: Final = 2_000
_UNKNOWN: Final = (ErrorCode.INDETERMINATE, ErrorCode.DEADLINE_EXCEEDED)


class InSyncCalls(Protocol):
    """What the keeper of in-sync sets needs of it."""

    async def change(self, changes: Sequence[Change]) -> list[Outcome]:
        """Ask for the sets; one outcome for each, in their order."""


class ControllerCalls:
    """Of one broker."""

    def __init__(
        self,
        controller: ControllerClient,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._controller = controller
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def change(self, changes: Sequence[Change]) -> list[Outcome]:
        """`AlterPartitions`, tried once: what may come to pass later has to be known as that."""
        wanted = [_in_words_of_controller(each) for each in changes]
        message = encode_changes(self._cluster_id, self._broker_id, self._broker_epoch(), wanted)
        try:
            answer = await self._controller.call(
                ALTER_PARTITIONS,
                message,
                tried="change in-sync sets",
                timeout_ms=CALL_MS,
                may_repeat=False,
            )
            results = decode_results(answer, count=len(changes))
        except TidelogError as error:
            outcome = Outcome(is_made=False, is_unknown=error.code in _UNKNOWN)
            return [outcome] * len(changes)
        return [_outcome(each) for each in results]

    async def report_damaged(
        self, damaged: Sequence[DamagedReplica]
    ) -> tuple[TidelogError | None, ...]:
        """`ReportDamagedReplicas`: None for each that the controller has taken out."""
        message = encode_damaged(self._cluster_id, self._broker_id, self._broker_epoch(), damaged)
        answer = await self._controller.call(
            REPORT_DAMAGED, message, tried="report damaged replicas", timeout_ms=CALL_MS
        )
        return decode_damaged(answer, count=len(damaged))

    async def report_ends(self, ends: Sequence[ReplicaEnd]) -> None:
        """`ReportLogEnds`: what follows from it shows in the metadata."""
        message = encode_log_ends(self._cluster_id, self._broker_id, self._broker_epoch(), ends)
        await self._controller.call(
            REPORT_LOG_ENDS, message, tried="report log ends", timeout_ms=CALL_MS
        )


def _in_words_of_controller(change: Change) -> InSyncChange:
    return InSyncChange(
        topic_id=change.key.topic_id,
        partition=change.key.partition,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        members=tuple(
            InSyncMember(broker_id=broker_id, broker_epoch=epoch)
            for broker_id, epoch in change.members
        ),
        is_withdrawal=change.is_withdrawal,
        is_flushed=change.is_flushed,
    )


def _outcome(result: InSyncResult) -> Outcome:
    if result.error is None:
        return Outcome(is_made=True, partition_epoch=result.partition_epoch)
    return Outcome(is_made=False, is_unknown=result.error.code in _UNKNOWN)
