# Written by `make threads` from client_sdk/tidelog/client/aio/table.py; do not edit.
"""A topic as a mapping: the latest value of each key, kept up to date beside its readers.

Owns loading within a deadline, following, and waiting for a record to count. All live keys and
values are held in memory, and for the time of a snapshot a second time as references.
"""

import time
from types import TracebackType
from typing import Self, Unpack

from tidelog.client.arguments.functions import refuse_awaitable
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.fetch.table_state import Loads, TableState
from tidelog.client.errors import WakeupError
from tidelog.client.shared import io_threads
from tidelog.client.shared.checked import checked
from tidelog.client.shared.table_parts import (
    LOAD_TIMEOUT_MS,
    POLL_MS,
    POLL_RECORDS,
    WAIT_TIMEOUT_MS,
    AsOfOffset,
    Place,
    Progress,
    check_arguments,
    consumer_arguments,
    limits_of,
    load_timed_out,
    unknown_topic,
    wait_timed_out,
)
from tidelog.client.sync.consumer import Consumer
from tidelog.client.sync.following import Following
from tidelog.client.types.records import TopicPartition


class Table(Following):
    """State that is rebuilt from a compacted topic. Safe to read from several threads.

    `with Table("prices", key_deserializer=bytes.decode) as prices: prices.get("tea")`

    A null value removes its key, a record without a key is passed over. A key is expected to stay
    in its partition; the partitions are those of the moment in which the table is opened. With
    `as_of_offset` (the first offset that does not count) or `as_of_time_ms` (the last moment that
    counts) it shows the past and does not change; compaction may have removed what was
    overwritten since. What cannot be followed any more is never shown as the present: reads raise
    why.
    """

    @checked
    def __init__(
        self,
        topic: str,
        *,
        as_of_offset: AsOfOffset | None = None,
        as_of_time_ms: int | None = None,
        load_timeout_ms: float = LOAD_TIMEOUT_MS,
        on_progress: Progress | None = None,
        **arguments: Unpack[ConsumerArguments],
    ) -> None:
        check_arguments(topic, as_of_offset, as_of_time_ms)
        super().__init__(topic)
        self._as_of_offset = as_of_offset
        self._as_of_time_ms = as_of_time_ms
        self._load_timeout_ms = load_timeout_ms
        self._on_progress = on_progress
        self._load_key: Loads | None = arguments.get("key_deserializer")
        self._load_value: Loads | None = arguments.get("value_deserializer")
        self._consumer = Consumer(**consumer_arguments("Table", arguments))

    def __enter__(self) -> Self:
        io_threads.refuse_waiting(f"load the table of {self.topic}")
        try:
            state = self._begin()
            self._load(state)
        except BaseException:
            self.close()
            raise
        self._state = state
        if not state.is_past:
            self._begin_to_follow(self._follow)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Follow no longer; the table cannot be read any more."""
        if not self._is_closed:
            io_threads.refuse_waiting(f"close the table of {self.topic}")
        self._is_closed = True
        self._notify()
        self._end_following(self._consumer)
        self._consumer.close()

    @checked
    def wait_for(self, place: Place, timeout_ms: float = WAIT_TIMEOUT_MS) -> None:
        """Until the record counts, and all before it: a future's result, an offset of a topic of
        one partition, or offsets by partition."""
        wanted = self._wanted(place)
        tried = f"wait for a record in the table of {self.topic}"
        if not self._wait_until(lambda: self._readable().has(wanted), timeout_ms / 1000, tried):
            raise wait_timed_out(self.topic, wanted, self._readable())

    # Inside.

    def _begin(self) -> TableState:
        consumer, topic = self._consumer, self.topic
        partitions = consumer.partitions_for_topic(topic)
        if partitions is None:
            raise unknown_topic(topic)
        names = [TopicPartition(topic, each) for each in sorted(partitions)]
        first, last = consumer.beginning_offsets(names), consumer.end_offsets(names)
        starts = {name.partition: at for name, at in first.items()}
        ends = {name.partition: at for name, at in last.items()}
        by_time = None
        if self._as_of_time_ms is not None:
            moment = dict.fromkeys(names, self._as_of_time_ms + 1)
            by_time = consumer.offsets_for_times(moment)
        limits = limits_of(topic, self._as_of_offset, by_time, ends)
        consumer.assign(names)
        for name in names:
            consumer.seek(name, starts[name.partition])
        return TableState(starts, ends, limits, self._load_key, self._load_value)

    def _load(self, state: TableState) -> None:
        deadline = time.monotonic() + self._load_timeout_ms / 1000
        while not state.is_loaded:
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                raise load_timed_out(self.topic, state, self._load_timeout_ms)
            self._take(state, min(left_ms, POLL_MS))
            if self._on_progress is not None:
                told = self._on_progress(*state.progress())
                refuse_awaitable(told, "on_progress", f"load the table of {self.topic}")

    def _take(self, state: TableState, timeout_ms: float) -> None:
        consumer = self._consumer
        found = consumer.poll(timeout_ms, POLL_RECORDS)
        names = {each: TopicPartition(self.topic, each) for each in state.positions}
        positions = {each: consumer.position(name) for each, name in names.items()}
        with self._changed:
            for name, records in found.items():
                state.apply(name.partition, records)
            for partition, position in positions.items():
                state.pass_to(partition, position)
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _follow(self) -> None:
        state = self._state
        assert state is not None, "a table follows before it is loaded"
        try:
            while not self._is_closed:
                self._take(state, POLL_MS)
        except WakeupError:
            assert self._is_closed, "only close() wakes the table's consumer"
        except Exception as error:  # noqa: BLE001 - the supervisor: readers are told
            self._failure = error
            self._notify()
