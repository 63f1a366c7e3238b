"""What a table is on either driver: its arguments, its state, its reads, its errors.

Owns the mapping that users see. It must never wait, nor know a thread or an event loop.
"""

import copy
from collections.abc import Callable, Hashable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.functions import plain_function
from tidelog.client.arguments.options import ConsumerArguments
from tidelog.client.engine.fetch.table_state import TableState
from tidelog.client.types.records import OffsetAndTimestamp, RecordMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

LOAD_TIMEOUT_MS: Final = 60_000
WAIT_TIMEOUT_MS: Final = 10_000
POLL_RECORDS: Final = 10_000
POLL_MS: Final = 500
AsOfOffset = int | Mapping[int, int]
"""The first offset that does not count; of a topic of several partitions one for each."""
Place = int | RecordMetadata | Mapping[int, int]
"""A record: where it was stored, its offset in a topic of one partition, or one by partition."""
Progress = Callable[[int, int], object]
"""Called while loading with offsets that are behind, and all that have to be."""


class TableSnapshot(msgspec.Struct, frozen=True):
    """A table as it was at one moment."""

    entries: Mapping[Any, Any]
    offsets: Mapping[int, int]
    """By partition: every record below counts, none from it on."""


class TableReads(Mapping[Any, Any]):
    """The reads, over a state that a driver keeps up to date between them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._state: TableState | None = None
        self._failure: Exception | None = None
        self._is_closed = False

    def __getitem__(self, key: Hashable) -> Any:
        return self._readable().entries[key]

    def __len__(self) -> int:
        return len(self._readable().entries)

    def __contains__(self, key: object) -> bool:
        return key in self._readable().entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self.snapshot().entries)

    def keys(self) -> KeysView[Any]:
        """Of one moment, as all views are."""
        return self.snapshot().entries.keys()

    def items(self) -> ItemsView[Any, Any]:
        """Of one moment."""
        return self.snapshot().entries.items()

    def values(self) -> ValuesView[Any]:
        """Of one moment."""
        return self.snapshot().entries.values()

    def snapshot(self) -> TableSnapshot:
        """All entries of one moment, and the offsets that they stand for; costs a copy of the
        references."""
        state = self._readable()
        return TableSnapshot(
            MappingProxyType(dict(state.entries)), MappingProxyType(dict(state.positions))
        )

    @property
    def offsets(self) -> dict[int, int]:
        """By partition: every record below counts."""
        return dict(self._readable().positions)

    def metrics(self) -> dict[str, float]:
        """A snapshot of counters."""
        state = self._readable()
        return {"entries": len(state.entries), "records_applied": state.records_applied}

    def _readable(self) -> TableState:
        """The state; an error if it is not loaded, or does not follow any more."""
        tried = f"read the table of {self.topic}"
        if self._is_closed:
            raise TidelogError(ErrorCode.CLOSED, tried=tried, happened="it was closed before")
        if self._failure is not None:
            raise failed(self.topic, self._failure)
        if self._state is None:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=tried,
                happened="it is not loaded",
                hint="use it as a context manager: `with Table(topic) as table`",
            )
        return self._state

    def _wanted(self, place: Place) -> dict[int, int]:
        """Offsets by partition, that `wait_for` waits for."""
        state, tried = self._readable(), f"wait for a record in the table of {self.topic}"
        if isinstance(place, RecordMetadata):
            if place.topic != self.topic:
                raise _invalid(tried, f"the record is of another topic: {place.topic}")
            return by_partition({place.partition: place.offset}, state.positions, tried)
        wanted = by_partition(place, state.positions, tried)
        if state.is_past and not state.has(wanted):
            raise _invalid(tried, "the table shows the past, and that record came later")
        return wanted


def by_partition(given: AsOfOffset, known: Mapping[int, int], tried: str) -> dict[int, int]:
    """Offsets by partition; one alone is meant for the only partition."""
    if isinstance(given, int):
        if len(known) != 1:
            raise _invalid(tried, f"one offset for {len(known)} partitions")
        return dict.fromkeys(known, given)
    unknown = [each for each in given if each not in known]
    if unknown:
        raise _invalid(tried, f"there is no partition {unknown[0]}")
    return dict(given)


def limits_of(
    topic: str,
    as_of_offset: AsOfOffset | None,
    by_time: Mapping[TopicPartition, OffsetAndTimestamp | None] | None,
    ends: Mapping[int, int],
) -> dict[int, int]:
    """The first offset of each partition that does not count; empty: all of them do."""
    if by_time is not None:
        return {
            name.partition: ends[name.partition] if found is None else found.offset
            for name, found in by_time.items()
        }
    if as_of_offset is None:
        return {}
    tried = f"read the table of {topic} with as_of_offset"
    limits = by_partition(as_of_offset, ends, tried)
    missing = [each for each in ends if each not in limits]
    if missing:
        raise _invalid(tried, f"no offset is given for partition {missing[0]}")
    for partition, limit in limits.items():
        if not 0 <= limit <= ends[partition]:
            raise _invalid(
                tried, f"offset {limit} of partition {partition}: it ends at {ends[partition]}"
            )
    return limits


def check_arguments(topic: str, as_of_offset: object, as_of_time_ms: object) -> None:
    """At most one moment of the past."""
    if as_of_offset is not None and as_of_time_ms is not None:
        raise _invalid(f"make a table of {topic}", "as_of_offset and as_of_time_ms are both given")


def consumer_arguments(name: str, arguments: ConsumerArguments) -> ConsumerArguments:
    """Of the consumer that reads: bytes from given offsets on, nobody else's share of them."""
    refused = [
        each for each in ("group_id", "auto_offset_reset") if arguments.get(each) is not None
    ]
    if refused:
        raise client_options.invalid(name, f"{refused[0]} is given: a table reads all of its topic")
    for each in ("key_deserializer", "value_deserializer"):
        if arguments.get(each) is not None:
            plain_function(arguments.get(each), f"make a {name}", each)
    given = arguments.copy()
    given["auto_offset_reset"] = "none"
    given["key_deserializer"] = given["value_deserializer"] = None
    return given


def unknown_topic(topic: str) -> TidelogError:
    """There is nothing to read."""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC, tried=f"load the table of {topic}", happened="there is no topic"
    )


def load_timed_out(topic: str, state: TableState, timeout_ms: float) -> TidelogError:
    """It took longer than it may."""
    done, total = state.progress()
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"load the table of {topic}",
        happened=f"{done} of {total} offsets were read in {timeout_ms:g} ms",
        hint="raise load_timeout_ms",
    )


def wait_timed_out(topic: str, wanted: Mapping[int, int], state: TableState) -> TidelogError:
    """The table has not come so far."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"wait for offsets {dict(wanted)} in the table of {topic}",
        happened=f"it has read up to {state.positions}",
    )


def failed(topic: str, cause: Exception) -> Exception:
    """What stopped the table from following, for one caller."""
    if isinstance(cause, TidelogError):
        return copy.copy(cause)
    error = TidelogError(
        ErrorCode.UNKNOWN,
        tried=f"follow the table of {topic}",
        happened=f"{type(cause).__name__}: {cause}",
        hint="mend the record or the deserializer, and open the table again",
    )
    error.__cause__ = cause
    return error


def _invalid(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened)
