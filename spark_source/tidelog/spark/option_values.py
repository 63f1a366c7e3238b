"""What the text of an option means; whatever is not exactly of its form is refused by name.

Pure. Spark hands every value over as text: `1.5`, `true` or `1e3` where a whole number is meant is
a mistake, and rounding it would hide that.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"[0-9]{1,19}")


def refused(option: str, happened: str, hint: str) -> TidelogError:
    """The error for one option."""
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"read with the option {option}",
        happened=happened,
        hint=hint,
    )


def not_yet(option: str, happened: str = "this release does not honour it") -> TidelogError:
    """The error for an option of Kafka's connector that has no counterpart here."""
    return TidelogError(
        ErrorCode.NOT_IMPLEMENTED,
        tried=f"read with the option {option}",
        happened=happened,
        hint="take the option out, or stay with the Kafka connector for this job",
    )


def given_text(given: Mapping[str, str], option: str) -> str | None:
    """What an option says, without the space around it; None: it is not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not text.strip():
        raise refused(option, "it is empty", "give it a value, or take it out")
    return text.strip()


def parse_bool(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    """`true` or `false`, in any case."""
    text = given_text(given, option)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise refused(option, f"{text!r} is neither true nor false", "write true or false")
    return text.lower() == "true"


def parse_count(given: Mapping[str, str], option: str, *, most: int = INT_MAX) -> int | None:
    """A whole number from 1 on; None: it is not given."""
    text = given_text(given, option)
    if text is None:
        return None
    number = parse_whole(option, text, most=most)
    if number < 1:
        raise refused(option, f"{number} is below 1", "give a number of at least 1")
    return number


def check_once(option: str, text: str) -> None:
    """Refuse a name that JSON gives twice in one object: all but one would be passed over."""

    def pairs(found: list[tuple[str, object]]) -> None:
        names = [name for name, _ in found]
        if twice := [name for name in names if names.count(name) > 1]:
            raise refused(option, f"{text!r} names {twice[0]} twice", "name it once")

    with contextlib.suppress(json.JSONDecodeError, RecursionError):
        json.loads(text, object_pairs_hook=pairs)


def parse_whole(option: str, text: str, *, most: int) -> int:
    """Decimal digits and nothing else."""
    if not _WHOLE.fullmatch(text):
        raise refused(
            option, f"{text!r} is no whole number", "give a whole number from 0 on, in digits"
        )
    number = int(text)
    if number > most:
        raise refused(option, f"{number} is too large", f"give at most {most}")
    return number
