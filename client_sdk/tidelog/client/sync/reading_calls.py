# Written by `make threads` from client_sdk/tidelog/client/aio/reading_calls.py; do not edit.
"""The calls of a consumer that read: positions, offsets, topics, and what was prefetched.

Owns the user's side of reading as far as both kinds of consumers do the same. How one is begun,
subscribed, iterated and closed is in `consumer`, what a group adds in `group_consumer`. Stop 10 of
a record's walk.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.client.arguments.records import warn_of_seconds
from tidelog.client.bulk.arrow_extra import require_arrow
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.reading.chunk import Chunk
from tidelog.client.reading.consumer_base import not_told_in_time, times_of
from tidelog.client.reading.consumer_parts import isolation_of
from tidelog.client.shared.checked import checked
from tidelog.client.sync.group_consumer import GroupConsumer
from tidelog.client.types.records import (
    ConsumerRecord,
    OffsetAndTimestamp,
    RawBatch,
    TopicPartition,
)
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError


class ReadingCalls(GroupConsumer):
    """What can be asked of a consumer."""

    # Positions.

    @checked
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record that is kept; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.EARLIEST)

    @checked
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; without arguments: everywhere."""
        self._seek_to(partitions, OffsetSpec.LATEST)

    @checked
    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that will be delivered; waits until it is known."""
        tried = f"find the position of {partition.topic}-{partition.partition}"
        with self._entering(tried):
            deadline = self._deadline(timeout_ms)
            while (found := self._position_now(partition, tried)) is None:
                self._raise_error()
                if not self._wait(deadline - time.monotonic()):
                    raise not_told_in_time(tried)
                self._look_for_starts()
            return found

    def _look_for_starts(self) -> None:
        if self._group is not None:
            self._start_member(self._group)
            self._group.settle()

    @checked
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that is kept, each."""
        return self._offsets_at(partitions, OffsetSpec.EARLIEST, timeout_ms)

    @checked
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read, each: the high watermark, or with
        isolation_level="read_committed" the last stable offset."""
        return self._offsets_at(partitions, OffsetSpec.LATEST, timeout_ms)

    @checked
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, each; None where there is none."""
        warn_of_seconds(timestamps.values(), "find offsets by time")
        with self._entering("find offsets by time"):
            answers = self._calls.offsets(
                {TopicPartition(*n): (OffsetSpec.AT_TIME, t) for n, t in timestamps.items()},
                self._limit_ms(timeout_ms),
                tried="find offsets by time",
                isolation=isolation_of(self._options),
            )
        return times_of(answers)

    def _offsets_at(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        with self._entering("find offsets"):
            answers = self._calls.offsets(
                {TopicPartition(*name): (spec, -1) for name in partitions},
                self._limit_ms(timeout_ms),
                tried="find offsets",
                isolation=isolation_of(self._options),
            )
        return {name: answer.offset for name, answer in answers.items()}

    # Topics.

    def topics(self) -> set[str]:
        """The names of all topics."""
        with self._entering("list topics"):
            return self._topic_names()

    @checked
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions; None if there is no such topic."""
        with self._entering(f"describe {topic}"):
            try:
                found = self._calls.topic(
                    topic, self._options.default_api_timeout_ms, tried=f"describe {topic}"
                )
            except TidelogError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC:
                    return None
                raise
            return set(range(len(found.partitions)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster answers, or has answered this client before."""
        with self._entering("reach the cluster"):
            if not self._metadata.is_known:
                try:
                    self._calls.refresh((), self._options.bootstrap_timeout_ms)
                except TidelogError:
                    return False
            return True

    # Records.

    @checked
    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to max_records (max_poll_records) records; empty when none came in time."""
        limit = self._record_limit(max_records, "poll")
        with self._polling("poll"):
            found: dict[TopicPartition, list[ConsumerRecord]] = {}
            count = 0
            chunk = self._wait_chunk(time.monotonic() + timeout_ms / 1000)
            while chunk is not None:
                records = chunk.take(limit - count)
                count += len(records)
                if records:
                    found.setdefault(chunk.topic_partition, []).extend(records)
                self._note_position()
                if count >= limit:
                    break
                chunk = self._next_chunk()
            self._records_read += count
            return found

    @checked
    def poll_batches(
        self,
        timeout_ms: float = 0,
        max_bytes: int = 16 * 1024 * 1024,
        include_left_out: bool = False,
    ) -> list[RawBatch]:
        """Whole record batches as they are stored, for bulk readers; empty: none came in time.

        Each unpacks into (topic_partition, data, high_watermark). Records below `first_offset`
        were not asked for: a batch is never cut. Positions move on as with poll(). Markers, and
        for a reader of committed records what was aborted, are passed over; with
        `include_left_out` they come as well, marked `is_left_out`.
        """
        with self._polling("poll batches"):
            self._put_back_chunk()
            deadline = time.monotonic() + timeout_ms / 1000
            while True:
                fetched = self._wait_fetched(deadline)
                batches = self._take_batches(fetched, max_bytes, include_left_out=include_left_out)
                if fetched is None or batches:
                    return batches

    @checked
    def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_bytes: int = 16 * 1024 * 1024,
        include_headers: bool = False,
    ) -> Any:
        """Records as a `pyarrow.Table`: topic, partition, offset, timestamp, key, value, and
        headers if they are wanted; without rows: none came in time. It needs the extra `arrow`.

        Keys and values are the stored bytes, whatever deserializers the consumer has. `max_bytes`
        is of stored bytes: it ends before the next answer of a broker, which is never cut.
        Positions move on as with poll().
        """
        require_arrow("poll_arrow()")
        with self._polling("poll a table"):
            self._put_back_chunk()
            deadline = time.monotonic() + timeout_ms / 1000
            while True:
                fetched = self._wait_fetched(deadline)
                table = self._take_table(fetched, max_bytes, include_headers=include_headers)
                if fetched is None or table.num_rows:
                    return table

    # Inside.

    def _topic_names(self) -> set[str]:
        view = self._calls.refresh((), self._options.default_api_timeout_ms, all_topics=True)
        return {topic.name for topic in view.topics if not topic.is_internal}

    def _wait_fetched(self, deadline: float) -> Fetched | None:
        """The next bytes, waited for; None when the time is over."""
        self._loop.turn(0)
        while True:
            self._check_usable("wait for records")
            self._attend()
            self._raise_error()
            fetched = self._core.take() if self._may_deliver() else None
            if fetched is not None:
                return fetched
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._wait(self._longest_wait(left))

    def _wait_chunk(self, deadline: float) -> Chunk | None:
        """What is left of the present chunk, or the next one, waited for."""
        if not self._may_deliver():
            # Behind the lease: what is left of the chunk may be somebody else's by now.
            self._put_back_chunk()
        chunk = self._begun_chunk()
        if chunk is not None:
            return chunk
        while True:
            fetched = self._wait_fetched(deadline)
            if fetched is None:
                return None
            chunk = self._first_chunk(fetched)
            if chunk is not None:
                return chunk
