"""The words for isolation levels: of the consumer's option, and of calls that look offsets up."""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.client.arguments.kinds import text, wrong_value
from tidelog.wire.calls.isolation import IsolationLevel

ISOLATION_LEVELS: Final[Mapping[str, IsolationLevel]] = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}
_TEXT: Final = text("a level's name")


def isolation_level(value: Any, tried: str, name: str) -> str:
    """An argument's word; INVALID_ARGUMENT for one that names no level."""
    word: str = _TEXT(value, tried, name)
    if word not in ISOLATION_LEVELS:
        raise wrong_value(tried, name, value, " or ".join(ISOLATION_LEVELS))
    return word


def isolation_named(word: str) -> IsolationLevel:
    """The level of a word that was checked."""
    return ISOLATION_LEVELS[word]
