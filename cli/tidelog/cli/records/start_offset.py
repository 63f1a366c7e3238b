"""Where `consume -o` begins. Pure: words to a start, a start and a partition's bounds to an offset.

Owns the spellings: `beginning`, `end`, `N`, `-N`, `@timestamp`.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidelog.cli.show.errors import BadInput

_OFFSET_MAX: Final = 2**63 - 1
_HINT: Final = "beginning, end, N (an offset), -N (N before the end), @TIME (ms or ISO 8601)"
_SECONDS_MIN: Final = 10**8
_CLEAR_MS: Final = 10**10
"""Seconds since 1973 lie between the two, and milliseconds of the first 115 days of 1970."""
_SYNONYMS: Final = {
    "beginning": "beginning",
    "earliest": "beginning",
    "start": "beginning",
    "end": "end",
    "latest": "end",
}


class Start(NamedTuple):
    """A place in every partition."""

    kind: str
    """`beginning`, `end`, `offset`, `before_end` or `time`."""
    number: int = 0


def parse_start(text: str) -> Start:
    """What was typed."""
    what = f"tidelog consume -o {text}"
    if text in _SYNONYMS:
        return Start(_SYNONYMS[text])
    if text.startswith("@"):
        return Start("time", time_ms(text[1:], what, mark="@"))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _OFFSET_MAX:
        raise BadInput(what, f"`{text}` is not a place to begin at", _HINT)
    return Start("before_end" if text.startswith("-") else "offset", int(digits))


def resolve(
    start: Start, beginning: int, end: int, at_time: int | None, *, topic: str, partition: int
) -> int:
    """The offset of the first record wanted; `at_time`: None where nothing is that late."""
    assert 0 <= beginning <= end, f"a partition that holds {beginning} to {end}"
    match start.kind:
        case "beginning":
            return beginning
        case "end":
            return end
        case "before_end":
            return max(beginning, end - start.number)
        case "time":
            return end if at_time is None else at_time
    if not beginning <= start.number <= end:
        raise BadInput(
            f"tidelog consume {topic} -o {start.number}",
            f"{topic}-{partition} begins at {beginning} and ends before {end}",
            "name an offset that every partition read has, or one partition with -p",
        )
    return start.number


def time_ms(text: str, what: str, *, mark: str = "") -> int:
    """Milliseconds since 1970, written so or as ISO 8601 writes a time; `mark` goes before it."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and int(digits) <= _OFFSET_MAX:
        if _SECONDS_MIN <= int(text) < _CLEAR_MS:
            # As milliseconds it is a moment of early 1970, which nobody means.
            told = datetime.fromtimestamp(int(text), UTC).isoformat().replace("+00:00", "Z")
            why = f"`{text}` looks like seconds ({told}); times are in milliseconds"
            raise BadInput(what, why, f"write {mark}{text}000, or {mark}{told}")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        why = f"`{text}` is neither milliseconds since 1970 nor a time as ISO 8601 writes it"
        hint = f"for example {mark}1700000000000 or {mark}2023-11-14T22:13:20Z"
        raise BadInput(what, why, hint) from None
    if moment.tzinfo is None:
        raise BadInput(what, f"`{text}` has no time zone", f"for UTC write {mark}{text}Z")
    return round(moment.timestamp() * 1000)
