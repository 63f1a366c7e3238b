"""How often a record is tried, how long between, and what its dead letter says.

Owns the decisions that both drivers of a record handler share; it never waits nor sends. A dead
letter is the record as it was read, with headers that say where it came from and why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidelog.client.arguments.kinds import INT32_MAX, Check, is_a, wrong_type
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.types.records import ConsumerRecord, Headers, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

PREFIX: Final = "dead-letter."
TOPIC_HEADER: Final = f"{PREFIX}topic"
PARTITION_HEADER: Final = f"{PREFIX}partition"
OFFSET_HEADER: Final = f"{PREFIX}offset"
TIMESTAMP_HEADER: Final = f"{PREFIX}timestamp"
"""Milliseconds since 1970, of the record; the dead letter has a time of its own."""
ERROR_HEADER: Final = f"{PREFIX}error"
TRIES_HEADER: Final = f"{PREFIX}tries"
ERROR_TEXT_MAX: Final = 1_000
DEAD_LETTER_TIMEOUT_MS: Final = 60_000
POLL_MS: Final = 500


def _errors(value: Any, tried: str, name: str) -> None:
    is_tuple = is_a(value, tuple)
    if not is_tuple or not all(is_a(each, type) and issubclass(each, Exception) for each in value):
        raise wrong_type(tried, name, value, "a tuple of classes of errors")


def _whole(value: Any, tried: str, name: str) -> None:
    if not is_a(value, int) or is_a(value, bool):
        raise wrong_type(tried, name, value, "a whole number")


_FIELDS: Final[Mapping[str, Check]] = {
    "tries": _whole,
    "backoff_ms": _whole,
    "backoff_max_ms": _whole,
    "give_up_on": _errors,
}


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A record is tried up to `tries` times, with growing pauses between.

    The pauses of one record come after each other inside a poll: a consumer of a group must come
    back within its max_poll_interval_ms.
    """

    tries: int = 5
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    give_up_on: tuple[type[Exception], ...] = ()
    """Errors that no further try would mend: the record becomes a dead letter at once."""

    def __post_init__(self) -> None:
        for name, kind in _FIELDS.items():
            kind(getattr(self, name), "make a RetryPolicy", name)
        if self.tries < 1 or not 0 <= self.backoff_ms <= self.backoff_max_ms <= INT32_MAX:
            raise TidelogError(
                ErrorCode.INVALID_CONFIGURATION,
                tried="make a RetryPolicy",
                happened=f"tries={self.tries}, backoff_ms={self.backoff_ms}, "
                f"backoff_max_ms={self.backoff_max_ms}",
                hint="one try at least, and pauses that do not end before they begin",
            )

    def pause_ms(self, tries: int, error: Exception) -> int | None:
        """After so many tries, the last of which raised this error; None: no further one."""
        assert tries >= 1, f"a pause follows a try, not {tries}"
        if tries >= self.tries or isinstance(error, self.give_up_on):
            return None
        if not self.backoff_ms:
            return 0
        return Backoff(initial_ms=self.backoff_ms, max_ms=self.backoff_max_ms).delay_ms(tries)


class HandlerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a record handler has done."""

    handled: int = 0
    retried: int = 0
    """Further tries, of records that were handled in the end or not."""
    dead_letters: int = 0


def dead_letter_headers(record: ConsumerRecord, error: Exception, tries: int) -> Headers:
    """The record's own, and where it came from and why it is here."""
    own = [header for header in record.headers if not header[0].startswith(PREFIX)]
    text = f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX]
    told: dict[str, Any] = {
        TOPIC_HEADER: record.topic,
        PARTITION_HEADER: record.partition,
        OFFSET_HEADER: record.offset,
        TIMESTAMP_HEADER: record.timestamp,
        ERROR_HEADER: text,
        TRIES_HEADER: tries,
    }
    said = [(name, str(value).encode(errors="replace")) for name, value in told.items()]
    return [*own, *said]


def checked_topic(dead_letter_topic: str, record: ConsumerRecord) -> None:
    """A record that cannot be handled where dead letters are handled would go round for ever."""
    if record.topic == dead_letter_topic:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"give up {record.topic}-{record.partition} at offset {record.offset}",
            happened="its topic is the one that dead letters go to",
            hint="give the handler of dead letters a dead_letter_topic of its own",
        )


def not_set_aside(topic: str, record: ConsumerRecord, timeout_s: float) -> TidelogError:
    """The dead letter was not acknowledged in time."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"set {record.topic}-{record.partition} at offset {record.offset} aside in {topic}",
        happened=f"no acknowledgement within {timeout_s:g} s; it may still come",
        hint="the record is not done: it is read again",
    )


class Progress:
    """How far the records of one poll are done."""

    def __init__(self, found: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        self.done: dict[TopicPartition, int] = {}
        """Offsets behind the last record that is done, to be committed."""
        self._left = {name: records[0].offset for name, records in found.items() if records}

    def note(self, name: TopicPartition, record: ConsumerRecord, following: int | None) -> None:
        """The record is done; `following` is the offset of the next one, if there is any."""
        self.done[name] = record.offset + 1
        if following is None:
            del self._left[name]
        else:
            self._left[name] = following

    @property
    def left(self) -> dict[TopicPartition, int]:
        """Where records begin that were read and are not done."""
        return dict(self._left)
