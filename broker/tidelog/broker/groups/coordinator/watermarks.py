"""Between which offsets partitions hold committed records, as this broker knows of those it leads.

Owns the look at the replicas, which costs no read. It must never tell of a partition that another
broker leads: a follower's watermark is a step behind, and so is a new leader's at first.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.broker.log.state.watermark_lag import lag_of
from tidelog.broker.replicas.replicas import Replicas
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH, Offset, PartitionKey


class OwnOffsets(msgspec.Struct, frozen=True):
    """Of one partition."""

    log_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    """The end for readers of committed records."""

    def lag(self, committed_offset: int) -> int:
        """How many records a group that has read up to the offset has not read yet."""
        return max(0, self.high_watermark - max(committed_offset, self.log_start_offset))


class OwnWatermarks:
    """Of the partitions that this broker leads."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def describe(
        self, keys: Sequence[PartitionKey]
    ) -> Mapping[PartitionKey, OwnOffsets | TidelogError]:
        """Each of them, or why it cannot be told."""
        return {key: self._of(key) for key in keys}

    def _of(self, key: PartitionKey) -> OwnOffsets | TidelogError:
        try:
            replica = self._replicas.find(
                key.topic_id, key.partition, NO_LEADER_EPOCH, tried=f"describe {key}"
            )
        except TidelogError as error:
            return error
        log = replica.log
        # A group that has read more than it shows would be taken for one of another log.
        lag = lag_of(log, f"describe {key}")
        if lag is not None:
            return lag
        return OwnOffsets(log.log_start_offset, log.high_watermark, log.last_stable_offset)
