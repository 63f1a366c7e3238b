"""What a setting is: its name, where it may be set, which texts are values of it.

Pure. Owns the check of one value; `settings.catalogue` owns which settings there are. Values travel
and are stored as text in one canonical form, so that equal values are equal texts.

A setting may be known and not served: a later release acts on it. Until then only those of its
values are taken that say what this release does anyway (`served`), so that what `DescribeConfigs`
shows is always what happens.
"""

from enum import Enum
from typing import Final, assert_never

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

NUMBER_MIN: Final = -(1 << 63)
NUMBER_MAX: Final = (1 << 63) - 1
VALUE_LENGTH_MAX: Final = 4_096
"""Of a list's text; the rest is cut off, and what is left refused for its last member."""
_QUOTED_LENGTH_MAX: Final = 40
_DIGITS_MAX: Final = 20
"""Longer numbers are too large anyway, and Python refuses to read the longest ones."""


class Scope(Enum):
    """What settings can be set at."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    GROUP = "group"


class Source(Enum):
    """Where an effective value comes from; the first one that is there counts."""

    TARGET = "target"
    """The topic or group itself."""
    BROKER = "broker"
    CLUSTER = "cluster"
    DEFAULT = "default"


class Kind(Enum):
    """How a value's text is read."""

    NUMBER = "number"
    DECIMAL = "decimal"
    """A number with digits behind the point; its bounds are whole ones."""
    BOOLEAN = "boolean"
    CHOICE = "choice"
    LIST = "list"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    name: str
    kind: Kind
    default: str
    """In the canonical form; what this release does if nobody sets it."""
    scopes: tuple[Scope, ...]
    documentation: str
    """One sentence, in the words of docs/configuration.md."""
    lowest: int = NUMBER_MIN
    highest: int = NUMBER_MAX
    choices: tuple[str, ...] = ()
    """Of a choice, and of each member of a list."""
    served: tuple[str, ...] | None = None
    """The only values that this release acts upon; None: all."""
    is_dynamic: bool = True
    """False: partitions that a broker serves take a change up when the broker starts again."""


def canonical(setting: Setting, text: str, *, tried: str) -> str:
    """The value in its one form, or INVALID_CONFIGURATION saying what would be right."""
    value = well_formed(setting, text, tried=tried)
    if setting.served is not None and value not in setting.served:
        raise _invalid(
            tried,
            f"`{_quoted(value)}` is a value that this release does not act upon yet",
            f"Leave the setting out, or set it to {_either(setting.served)}: that is what happens.",
        )
    return value


def well_formed(setting: Setting, text: str, *, tried: str) -> str:
    """The same for a value of any release, for instance one that is stored already."""
    match setting.kind:
        case Kind.NUMBER:
            value = _number(setting, text, tried)
        case Kind.DECIMAL:
            value = _decimal(setting, text, tried)
        case Kind.BOOLEAN:
            value = _choice(text.lower(), ("true", "false"), tried)
        case Kind.CHOICE:
            value = _choice(text, setting.choices, tried)
        case Kind.LIST:
            value = _list(setting, text[:VALUE_LENGTH_MAX], tried)
        case _:
            assert_never(setting.kind)
    return value


def members(text: str) -> tuple[str, ...]:
    """The members of a list's value."""
    return tuple(member.strip() for member in text.split(",") if member.strip())


def is_true(text: str) -> bool:
    """A boolean in its canonical form."""
    assert text in ("true", "false"), f"`{text}` is no boolean in its canonical form"
    return text == "true"


def _number(setting: Setting, text: str, tried: str) -> str:
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if not is_number or not setting.lowest <= int(text) <= setting.highest:
        raise _invalid(
            tried,
            f"`{_quoted(text)}` is not a number from {setting.lowest} to {setting.highest}",
        )
    return str(int(text))


def _decimal(setting: Setting, text: str, tried: str) -> str:
    """Compared as whole and fraction: no rounding, one text for equal values."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    least = int(whole or "0") if is_number else 0
    fraction = fraction.rstrip("0")
    most = least + 1 if fraction else least
    if not is_number or not setting.lowest <= least or most > setting.highest:
        raise _invalid(
            tried,
            f"`{_quoted(text)}` is not a number from {setting.lowest} to {setting.highest}, "
            "such as 0.5",
        )
    return f"{least}.{fraction}" if fraction else str(least)


def _choice(text: str, choices: tuple[str, ...], tried: str) -> str:
    if text not in choices:
        raise _invalid(tried, f"`{_quoted(text)}` is not {_either(choices)}")
    return text


def _list(setting: Setting, text: str, tried: str) -> str:
    found = members(text)
    if not found:
        raise _invalid(tried, "the list is empty")
    for member in found:
        _choice(member, setting.choices, tried)
    if len(dict.fromkeys(found)) < len(found):
        raise _invalid(tried, f"`{_quoted(text)}` names a member twice")
    return ",".join(sorted(found))


def _either(choices: tuple[str, ...]) -> str:
    *rest, last = [f"`{choice}`" for choice in choices]
    return f"{', '.join(rest)} or {last}" if rest else last


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED_LENGTH_MAX else f"{text[:_QUOTED_LENGTH_MAX]}…"


def _invalid(tried: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(ErrorCode.INVALID_CONFIGURATION, tried=tried, happened=happened, hint=hint)
