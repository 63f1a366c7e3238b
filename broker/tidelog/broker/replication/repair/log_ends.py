"""Tells the controller where logs end that nobody is sure to hold whole.

With `flush=replicated`, after the machines of all replicas went down at once, any of them may have
lost what was acknowledged, and nobody leads: the controller waits until all that held everything
have told the ends of their logs, and the longest leads. It must never tell of a log that may still
grow or be cut, or that has stopped: then an operator decides. A stop of the walk "a broker dies".
"""

from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.metadata.broker_reports import ReplicaEnd
from tidelog.metadata.image.image import NO_LEADER, PartitionImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch

LOOK_MS: Final = 1_000
"""Told again as long as nobody leads: the controller may be another one by then."""
ENDS_MAX: Final = 1_000


class LogEndCalls(Protocol):
    """What is told to the controller."""

    async def report_ends(self, ends: Sequence[ReplicaEnd]) -> None:
        """Where the logs end."""


class LogEnds:
    """One a broker; `run` for its life."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        clock: Clock,
        calls: LogEndCalls,
        *,
        broker_id: BrokerId,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._calls = calls
        self._broker_id = broker_id

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK_MS)
            ends = self._ends()
            for start in range(0, len(ends), ENDS_MAX):
                try:
                    await self._calls.report_ends(ends[start : start + ENDS_MAX])
                except TidelogError:
                    # No controller, or none that answers: told again soon.
                    break

    def _ends(self) -> list[ReplicaEnd]:
        image = self._metadata.image()
        found: list[ReplicaEnd] = []
        for replica in self._replicas:
            key = replica.log.key
            partition = image.partition(key.topic_id, key.partition)
            if partition is not None and self._is_told(replica, partition):
                found.append(
                    ReplicaEnd(
                        topic_id=key.topic_id,
                        partition=key.partition,
                        leader_epoch=partition.leader_epoch,
                        last_epoch=LeaderEpoch(replica.log.leader_epochs.latest),
                        log_end_offset=replica.log.log_end_offset,
                    )
                )
        return found

    def _is_told(self, replica: Replica, partition: PartitionImage) -> bool:
        """Whether it is waited for, and its owner knows that nobody leads: nothing comes to it."""
        log = replica.log
        is_waited_for = partition.leader_id == NO_LEADER and (
            self._broker_id in partition.last_known_eligible
        )
        is_still = log.leader_epoch == partition.leader_epoch and not log.is_being_cut
        return is_waited_for and is_still and log.failure is None
