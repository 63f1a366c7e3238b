"""Offsets of partitions by place or time, as the admin client asks their leaders."""

from collections.abc import Mapping
from typing import Final

from tidelog.client.arguments.isolation import isolation_named
from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase
from tidelog.client.sync.cluster_calls import Wanted
from tidelog.client.types.groups import OFFSET_WORDS
from tidelog.client.types.records import OffsetAndTimestamp, TopicPartition
from tidelog.wire.calls.offsets import OffsetSpec

_SPECS: Final[dict[str, OffsetSpec]] = dict(
    zip(
        OFFSET_WORDS,
        (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP),
        strict=True,
    )
)


class OffsetCalls(AdminBase):
    """Look offsets up."""

    @checked
    def list_partition_offsets(
        self,
        partitions: Mapping[TopicPartition, str | int],
        timeout_ms: int | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets at `earliest`, `latest`, `max_timestamp`, or a time in ms since 1970.

        With `read_committed` only what lies below the last stable offset counts.
        """
        self._check_usable("list partition offsets")
        wanted = {TopicPartition(*name): offset_wanted(spec) for name, spec in partitions.items()}
        answers = self._calls.offsets(
            wanted,
            self._limit_ms(timeout_ms),
            tried="list partition offsets",
            isolation=isolation_named(isolation_level),
        )
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }


def offset_wanted(spec: str | int) -> Wanted:
    """What is asked of the log: `earliest`, `latest`, `max_timestamp`, or a time."""
    if isinstance(spec, int):
        return OffsetSpec.AT_TIME, spec
    return _SPECS[spec], -1
