"""What an argument may be: checks that return the value as the client uses it, or refuse it.

Owns the kinds and the words of their refusals. A check is called with the value, with what was
tried and with the argument's name, which every refusal says. It must never raise anything else,
whatever it is handed: not an error of the value's own comparing, printing or counting. A wrong type
is an ArgumentTypeError, a wrong value a TidelogError.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from tidelog.client.errors import ArgumentTypeError
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import CATALOGUE, ErrorCode, TidelogError

Check = Callable[[Any, str, str], Any]
"""Called with the value, what was tried, and the argument's name."""
Kind = TypeVar("Kind")

ELEMENTS_MAX: Final = 1_000_000
"""Of a list that a call takes: one without an end is refused, not collected."""
TEXT_BYTES_MAX: Final = 64 * 1024
"""Of a name, a pattern, a path or a note."""
SHOWN_MAX: Final = 80
"""Characters of a value that an error shows."""
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
MS_MAX: Final = INT32_MAX
"""A longer timeout is as good as this one, which is 24 days."""
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LETTERS: Final = (str, bytes, bytearray, memoryview)
"""What can be iterated and is one thing all the same."""


def shown(value: object) -> str:
    """The value for an error; of one that cannot be printed, its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the caller's own code, which is not what the error is about
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def is_a(value: object, *kinds: type) -> bool:
    """Whether it is of one of these classes; what it holds stays unknown to a type checker."""
    return isinstance(value, kinds)


def wrong_type(tried: str, name: str, value: object, wanted: str, hint: str = "") -> TidelogError:
    """The value is of a type that cannot be meant."""
    return ArgumentTypeError(
        tried=tried,
        happened=f"{name} is {shown(value)} of type {type(value).__name__}, it can be {wanted}",
        hint=hint or f"pass {wanted} as {name}",
    )


def wrong_value(tried: str, name: str, value: object, wanted: str, hint: str = "") -> TidelogError:
    """The type is right and the value is not."""
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=tried,
        happened=f"{name} is {shown(value)}, it can be {wanted}",
        hint=hint,
    )


# One value.


def text(what: str = "a text", *, bytes_min: int = 0, bytes_max: int = TEXT_BYTES_MAX) -> Check:
    """A text that can be sent."""

    def check(value: Any, tried: str, name: str) -> str:
        if not isinstance(value, str):
            hint = f"decode it: {name}.decode()" if isinstance(value, bytes) else ""
            raise wrong_type(tried, name, value, what, hint)
        # Of another class, such as an enum's: the text that it is, not the one that it prints.
        plain = str.__str__(value)
        try:
            size = len(plain.encode())
        except UnicodeEncodeError:
            raise wrong_value(tried, name, value, f"{what} that UTF-8 can hold") from None
        if not bytes_min <= size <= bytes_max:
            raise wrong_value(tried, name, value, f"{what} of {bytes_min} to {bytes_max} bytes")
        return plain

    return check


_TOPIC_TEXT: Final = text("a topic's name", bytes_max=INT32_MAX)


def topic(value: Any, tried: str, name: str) -> str:
    """A topic's name, by the rule that brokers have."""
    plain: str = _TOPIC_TEXT(value, tried, name)
    if not TOPIC_NAME.fullmatch(plain) or plain in (".", ".."):
        raise TidelogError(
            ErrorCode.INVALID_TOPIC_NAME,
            tried=tried,
            happened=f"{name} is {shown(plain)}",
            hint=CATALOGUE[ErrorCode.INVALID_TOPIC_NAME].meaning,
        )
    return plain


def whole(least: int, most: int, what: str = "a whole number") -> Check:
    """A whole number, of Python's or of another library's."""
    # Where a number may be as large as the machine has them, its bounds tell nobody anything.
    wanted = f"{what} from {least} to {most}"
    if most >= INT64_MAX:
        wanted = what if least <= -INT64_MAX else f"{what} from {least} on"

    def check(value: Any, tried: str, name: str) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            number: int = operator.index(value)
        except Exception:  # noqa: BLE001 - whatever the value's own code raises
            raise wrong_type(tried, name, value, wanted, _whole_hint(value, name)) from None
        if not least <= number <= most:
            raise wrong_value(tried, name, value, wanted)
        return number

    return check


def _whole_hint(value: Any, name: str) -> str:
    if isinstance(value, str):
        return f"convert it: int({name})"
    return f"round it: int({name})" if isinstance(value, float) and math.isfinite(value) else ""


def number(least: float, what: str) -> Check:
    """A number of Python's, whole or not, without an upper end."""
    wanted = f"{what} from {least:g} on"

    def check(value: Any, tried: str, name: str) -> float:
        try:
            if isinstance(value, bool):
                raise TypeError
            plain: float = value if isinstance(value, float) else operator.index(value)
        except Exception:  # noqa: BLE001 - whatever the value's own code raises
            raise wrong_type(tried, name, value, wanted) from None
        if not plain >= least:
            raise wrong_value(tried, name, value, wanted)
        return plain

    return check


_MILLISECONDS: Final = number(0, "a number of milliseconds")
_SECONDS: Final = number(0, "a number of seconds")


def milliseconds(value: Any, tried: str, name: str) -> int:
    """A timeout as requests carry it."""
    plain: float = _MILLISECONDS(value, tried, name)
    return math.ceil(min(plain, MS_MAX))


def milliseconds_or_ever(value: Any, tried: str, name: str) -> float:
    """A timeout that nobody but the caller knows of; infinity: none."""
    plain: float = _MILLISECONDS(value, tried, name)
    return plain if plain == math.inf else min(plain, MS_MAX)


def seconds(value: Any, tried: str, name: str) -> float:
    """A timeout of a method that has Python's unit."""
    plain: float = _SECONDS(value, tried, name)
    return min(plain, MS_MAX / 1000)


def flag(value: Any, tried: str, name: str) -> bool:
    """True or False; what is merely empty or not was meant for another argument."""
    if not isinstance(value, bool):
        raise wrong_type(tried, name, value, "True or False")
    return value


def function(value: Any, tried: str, name: str) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise wrong_type(tried, name, value, "a function")
    return value


def one_of(kind: type[Kind], what: str) -> Check:
    """An object of this class."""

    def check(value: Any, tried: str, name: str) -> Kind:
        if not isinstance(value, kind):
            raise wrong_type(tried, name, value, what)
        return value

    return check


def either(kind: type, first: Check, otherwise: Check) -> Check:
    """By the value's class."""

    def check(value: Any, tried: str, name: str) -> Any:
        return (first if isinstance(value, kind) else otherwise)(value, tried, name)

    return check


def optional(kind: Check) -> Check:
    """The same, or None."""

    def check(value: Any, tried: str, name: str) -> Any:
        return None if value is None else kind(value, tried, name)

    return check


def anything(value: Any, tried: str, name: str) -> Any:
    """The call itself says what it takes."""
    del tried, name
    return value


# Places.

_PARTITION_NUMBER: Final = whole(0, INT32_MAX, "a partition's number")
_OFFSET: Final = whole(0, INT64_MAX, "an offset")
_EPOCH: Final = whole(-1, INT32_MAX, "a leader epoch")
_NOTE: Final = text()


def pair_of(value: Any, tried: str, name: str, wanted: str) -> tuple[Any, Any]:
    """Two values that stand together."""
    if not is_a(value, tuple, list) or len(value) != 2:
        raise wrong_type(tried, name, value, wanted)
    first, second = value
    return first, second


def partition(value: Any, tried: str, name: str) -> TopicPartition:
    """Topic and number as one value."""
    of_topic, of_partition = pair_of(value, tried, name, "a TopicPartition(topic, partition)")
    return TopicPartition(
        topic(of_topic, tried, f"{name}.topic"),
        _PARTITION_NUMBER(of_partition, tried, f"{name}.partition"),
    )


def place(value: Any, tried: str, name: str) -> int | OffsetAndMetadata:
    """An offset, alone or with what is noted beside it."""
    if not is_a(value, tuple):
        at: int = _OFFSET(value, tried, name)
        return at
    if not 1 <= len(value) <= len(OffsetAndMetadata._fields):
        raise wrong_type(tried, name, value, "an offset or an OffsetAndMetadata")
    given: Any = OffsetAndMetadata(*value)
    return OffsetAndMetadata(
        _OFFSET(given.offset, tried, f"{name}.offset"),
        _NOTE("" if given.metadata is None else given.metadata, tried, f"{name}.metadata"),
        _EPOCH(given.leader_epoch, tried, f"{name}.leader_epoch"),
    )


# Many values.


def listed(value: Any, tried: str, name: str) -> list[Any]:
    """The values of a list of anything."""
    return _collected(value, tried, name, "a list")


def many(kind: Check, what: str) -> Check:
    """A list, or anything that gives its values one by one; never the letters of a text."""
    wanted = f"a list of {what}"

    def check(value: Any, tried: str, name: str) -> list[Any]:
        if is_a(value, *_LETTERS):
            hint = f"put it into a list: {name}=[{_one_of(value, what)}]"
            raise wrong_type(tried, name, value, wanted, hint)
        found = _collected(value, tried, name, wanted)
        return [kind(each, tried, f"{name}[{at}]") for at, each in enumerate(found)]

    return check


def _one_of(value: object, what: str) -> str:
    """The value as an element of the list that was meant."""
    made = {"NewTopics": "NewTopic({})", "TopicPartitions": "TopicPartition({}, 0)"}
    return made.get(what, "{}").format(shown(value))


def _collected(value: Any, tried: str, name: str, wanted: str) -> list[Any]:
    try:
        each: Iterator[Any] = iter(value)
        found = list(islice(each, ELEMENTS_MAX + 1))
    except Exception as error:
        raise wrong_type(tried, name, value, wanted) from error
    if len(found) > ELEMENTS_MAX:
        raise wrong_value(tried, name, value, f"{wanted}, {ELEMENTS_MAX} of them at most")
    return found


def mapping(key: Check, content: Check, what: str) -> Check:
    """A dict; what is wrong in it is named by its key."""
    wanted = f"a dict of {what}"

    def check(value: Any, tried: str, name: str) -> dict[Any, Any]:
        if not is_a(value, Mapping):
            raise wrong_type(tried, name, value, wanted)
        items = _collected(_items(value), tried, name, wanted)
        return {
            key(each, tried, f"a key of {name}"): content(found, tried, f"{name}[{shown(each)}]")
            for each, found in items
        }

    return check


def _items(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    yield from value.items()
