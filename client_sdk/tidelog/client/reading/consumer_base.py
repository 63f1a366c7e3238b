"""What a consumer is on either driver: assignment, positions, the records that were decoded.

Owns the user's side as far as nobody waits in it, and the chunk that the user is in the middle of.
It must never let a record go that the user has not been given: what is left of a chunk is put back,
or handed over later. It must never know a thread or an event loop. Stop 10 of a record's walk.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.options import ConsumerArguments, ConsumerOptions
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.reading.chunk import Chunk, decode
from tidelog.client.reading.consumer_parts import checked_offset, make_core, metrics_of, split
from tidelog.client.reading.group_options import no_group
from tidelog.client.reading.group_side import GroupSide, Told, UserHooks
from tidelog.client.shared.checked import checked
from tidelog.client.shared.client_parts import backoff_of
from tidelog.client.shared.lifecycle import Client
from tidelog.client.tls.security import security_of
from tidelog.client.types.rebalance_listener import check_listener
from tidelog.client.types.records import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawBatch,
    TopicPartition,
)
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError


class ConsumerBase(Client, ABC):
    """A consumer that nothing was read by yet."""

    def __init__(self, name: str, arguments: ConsumerArguments) -> None:
        options = client_options.build(ConsumerOptions, name, arguments)
        self._security = security_of(name, options)
        self._bootstrap = client_options.bootstrap_addresses(name, options.bootstrap_servers)
        # Whatever is refused was refused before: the end of the process asks every client.
        super().__init__()
        self._name = name
        self._options = options
        self._chunk: Chunk | None = None
        self._records_read: int = 0
        self._metadata = MetadataCache()
        self._backoff = backoff_of(options)
        self._core = make_core(options, self._metadata, self._backoff)
        self._group: GroupSide | None = None

    @abstractmethod
    def _entering(self, tried: str) -> AbstractContextManager[object]:
        """Around a change of what is read, or of where: refused while it must not happen."""

    @abstractmethod
    def _call_listener(self, told: Told) -> None:
        """A listener is to be told something, now or soon."""

    @abstractmethod
    def _update(self) -> None:
        """The brokers are to be told what the user changed or took."""

    # What is read.

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position."""
        wanted = [TopicPartition(*name) for name in partitions]
        with self._entering("assign partitions"):
            self._note_position()
            self._core.subscribed = {}
            if self._group is None:
                self._core.assign(wanted, time.monotonic_ns())
            else:
                self._end_membership(self._group)
                self._group.assign(wanted, time.monotonic_ns())
            self._forget_chunk()

    def _subscribe(self, names: Iterable[str]) -> None:
        self._note_position()
        self._core.subscribe(names, time.monotonic_ns())
        self._forget_chunk()

    def _join(
        self, group: GroupSide, names: list[str], pattern: str | None, listener: object
    ) -> None:
        """With a group the coordinator says what is read, and evaluates the pattern."""
        check_listener(listener)
        wish = Subscription(topics=tuple(dict.fromkeys(names)), topic_pattern=pattern or "")
        if wish.is_empty:
            self._end_membership(group)
            return
        for name in wish.topics:
            if name not in self._metadata.topics:
                self._core.topics.want(name, time.monotonic_ns())
        group.subscribe(wish, listener)

    def _end_membership(self, group: GroupSide) -> None:
        listener, had = group.listener, group.end_membership()
        if listener is not None and had:
            self._call_listener(lambda: listener.on_partitions_revoked(had))

    def _no_listener(self, listener: object) -> None:
        if listener is not None:
            raise no_group("subscribe with a listener")

    def unsubscribe(self) -> None:
        """Read nothing; with a group: leave it, after what was delivered is committed."""
        self.assign(())

    def subscription(self) -> set[str]:
        """The topics of `subscribe`; of a group's pattern those of which something is assigned."""
        group = self._group
        if group is None or not group.is_member:
            return set(self._core.subscribed)
        assigned = {name.topic for name in self._core.partitions}
        return {*group.subscription.topics, *(assigned if group.subscription.topic_pattern else ())}

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read; a subscribed topic's appear once it is known."""
        return set(self._core.partitions)

    @checked
    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these; their positions stay."""
        with self._entering("pause"):
            for name in partitions:
                self._state(name, "pause")
                self._core.pause(name)
            self._put_back_chunk_of(partitions)
            self._update()

    @checked
    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again."""
        with self._entering("resume"):
            for name in partitions:
                self._state(name, "resume")
                self._core.resume(name)
            self._update()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {name for name, state in self._core.partitions.items() if state.is_paused}

    # Positions.

    @checked
    def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata,
        topic_id: bytes | None = None,
    ) -> None:
        """Go on from this offset; with its leader epoch a truncation below it is found as well.

        With the id of the topic that the offset is of, it is never taken for one of another topic
        of the same name: that counts as created again, as it does while it is read.
        """
        with self._entering("seek"):
            self._state(partition, "seek")
            at, epoch = checked_offset(partition, offset)
            self._note_position()
            if topic_id is not None:
                self._core.trust_group(partition, topic_id, time.monotonic_ns())
            self._core.seek(partition, at, epoch)
            self._forget_chunk()

    def _seek_to(self, partitions: tuple[TopicPartition, ...], spec: OffsetSpec) -> None:
        with self._entering("seek"):
            self._note_position()
            for name in partitions or tuple(self._core.partitions):
                self._state(name, "seek")
                self._core.seek_to(name, spec)
            self._forget_chunk()

    def _position_now(self, partition: TopicPartition, tried: str) -> int | None:
        """The next record's offset; None: no broker has told it yet."""
        state = self._state(partition, tried)
        self._note_position()
        if state.position is None and state.error is not None:
            error, state.error = state.error, None
            raise error
        return state.position

    @checked
    def highwater(self, partition: TopicPartition) -> int | None:
        """The first offset that was not committed when the partition last had news."""
        return self._state(partition, "find the high watermark").high_watermark

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        return metrics_of(self._core, self._records_read)

    # The group.

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Which member of which group this is."""
        return self._group_for("tell the group's metadata").metadata()

    @property
    def is_idle(self) -> bool:
        """Whether the group has more members than partitions and nothing is left for this one."""
        return self._group is not None and self._group.standing.is_idle

    def _group_for(self, tried: str) -> GroupSide:
        if self._group is None:
            raise no_group(tried)
        return self._group

    def _may_deliver(self) -> bool:
        return self._group is None or self._group.may_deliver(time.monotonic_ns())

    def _user_hooks(self) -> UserHooks:
        return UserHooks(
            note_position=self._note_position,
            put_back_chunk_of=self._put_back_chunk_of,
            forget_chunk=self._forget_chunk,
        )

    def _put_back_chunk_of(self, names: Collection[TopicPartition]) -> None:
        self._note_position()
        if self._chunk is not None and self._chunk.topic_partition in names:
            self._put_back_chunk()

    # Inside.

    def _state(self, name: TopicPartition, tried: str) -> PartitionState:
        self._check_usable(tried)
        state = self._core.partitions.get(name)
        if state is None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=tried,
                happened=f"{name[0]}-{name[1]} is not assigned to this consumer",
                hint="call assign() or subscribe() first",
            )
        return state

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _record_limit(self, max_records: int | None, tried: str) -> int:
        limit = self._options.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT, tried=tried, happened=f"max_records is {limit}"
            )
        return limit

    def _begun_chunk(self) -> Chunk | None:
        """What is left of the present chunk; nothing if a broker told of a truncation since."""
        self._note_position()
        self._drop_void_chunk()
        return self._chunk

    def _next_chunk(self) -> Chunk | None:
        """A further chunk, if one is there already; what fails in it the next poll tells.

        An error now would cost the user the records that he is about to be given.
        """
        fetched = self._core.take() if self._may_deliver() else None
        if fetched is None:
            return None
        self._open_chunk(fetched)
        return self._chunk

    def _first_chunk(self, fetched: Fetched) -> Chunk | None:
        """What the user waited for, or the error that stands before it."""
        error = self._open_chunk(fetched)
        if self._chunk is None and error is not None:
            raise error
        chunk = self._chunk
        assert chunk is not None, "an answer was opened and gave no chunk"
        if chunk.count_left:
            return chunk
        self._note_position()
        return None

    def _open_chunk(self, fetched: Fetched) -> Exception | None:
        """Decode it. What fails is put back, so that the user is told until he has sought past it;
        there is no chunk if that is the first record.
        """
        assert self._chunk is None or not self._chunk.count_left, "a chunk is left half read"
        self._chunk = None
        self._update()
        decoded = decode(
            fetched,
            verify=self._options.check_crcs,
            key_deserializer=self._options.key_deserializer,
            value_deserializer=self._options.value_deserializer,
        )
        failed = decoded.failed
        if failed is not None:
            self._core.ready.put_back(fetched, failed.offset)
        if failed is None or decoded.records:
            self._chunk = Chunk(fetched, decoded)
        return None if failed is None else failed.error

    def _take_batches(
        self, fetched: Fetched | None, max_bytes: int, *, include_left_out: bool
    ) -> list[RawBatch]:
        """Whole batches of this answer and of those behind it that are there."""
        found: list[RawBatch] = []
        taken_bytes = 0
        while fetched is not None:
            found += split(fetched, include_left_out=include_left_out)
            self._core.partitions[fetched.topic_partition].hand_over(fetched.next_offset)
            taken_bytes += len(fetched.data)
            fetched = None if taken_bytes >= max_bytes else self._core.take()
        self._update()
        return found

    def _take_table(self, fetched: Fetched | None, max_bytes: int, *, include_headers: bool) -> Any:
        """For poll_arrow(): only this imports pyarrow."""
        from tidelog.client.bulk.arrow_poll import take_table

        table = take_table(self._core, fetched, max_bytes=max_bytes, with_headers=include_headers)
        self._records_read += table.num_rows
        self._update()
        return table

    def _note_position(self) -> None:
        """What the user took becomes the position; a chunk that is used up is let go."""
        chunk = self._chunk
        if chunk is None:
            return
        state = self._core.partitions.get(chunk.topic_partition)
        if state is not None and state.generation == chunk.generation:
            state.hand_over(chunk.position)
        if not chunk.count_left:
            self._chunk = None

    def _put_back_chunk(self) -> None:
        """Records that were decoded and not taken are fetched again."""
        self._note_position()
        chunk = self._chunk
        if chunk is None:
            return
        state = self._core.partitions.get(chunk.topic_partition)
        if state is not None and state.generation == chunk.generation:
            self._core.put_back(chunk.topic_partition, chunk.position)
        self._drop_void_chunk()

    def _forget_chunk(self) -> None:
        """After a seek or a new assignment."""
        self._drop_void_chunk()
        self._update()

    def _drop_void_chunk(self) -> None:
        """Void unless its partition stayed where it was."""
        chunk = self._chunk
        if chunk is None:
            return
        state = self._core.partitions.get(chunk.topic_partition)
        if state is None or state.generation != chunk.generation:
            # An iterator of the user's may still hold the chunk: empty it.
            chunk.take(chunk.count_left)
            self._chunk = None


def matching(pattern: str, topics: Iterable[str]) -> list[str]:
    """The topics whose names begin with a match, as in Kafka's clients."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"subscribe to the pattern {pattern!r}",
            happened=f"it is not a regular expression: {error}",
        ) from None
    return [name for name in topics if compiled.match(name)]


def times_of(
    answers: Mapping[TopicPartition, OffsetAnswer],
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """For offsets_for_times()."""
    return {
        name: OffsetAndTimestamp(answer.offset, answer.timestamp_ms, answer.leader_epoch)
        if answer.offset >= 0
        else None
        for name, answer in answers.items()
    }


def not_told_in_time(tried: str) -> TidelogError:
    """For position()."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=tried,
        happened="no broker told it within default_api_timeout_ms",
    )
