"""Offsets of partitions by place or time, as `sync.admin_offsets` for threads."""

from collections.abc import Mapping

from tidelog.client.aio.admin.base import AsyncAdminBase
from tidelog.client.arguments.isolation import isolation_named
from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.offsets import offset_wanted
from tidelog.client.types.records import OffsetAndTimestamp, TopicPartition


class AsyncOffsetCalls(AsyncAdminBase):
    """Look offsets up."""

    @checked
    async def list_partition_offsets(
        self,
        partitions: Mapping[TopicPartition, str | int],
        timeout_ms: int | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets at `earliest`, `latest`, `max_timestamp`, or a time in ms since 1970.

        With `read_committed` only what lies below the last stable offset counts.
        """
        tried = "list partition offsets"
        self._check_usable(tried)
        wanted = {TopicPartition(*name): offset_wanted(spec) for name, spec in partitions.items()}
        answers = await self._calls.offsets(
            wanted,
            self._limit_ms(timeout_ms),
            tried=tried,
            isolation=isolation_named(isolation_level),
        )
        return {
            name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
            if answer.offset >= 0
            else None
            for name, answer in answers.items()
        }
