"""What a topic may be called, and which names look alike in metrics. Pure."""

from typing import Final

from tidelog.metadata.image.image import Image
from tidelog.wire.errors import ErrorCode, TidelogError

TOPIC_NAME_LENGTH_MAX: Final = 249
COLLISION_NAMES_MAX: Final = 10_000
"""With more topics nobody looks for names that metrics would show as one."""
_NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)


def validate_topic_name(name: str) -> None:
    """Refuse what could not be a directory's or a metric's name everywhere."""
    tried = f"use the topic name `{name[:TOPIC_NAME_LENGTH_MAX]}`"
    if not name:
        raise _invalid_name(tried, "it is empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _invalid_name(
            tried, f"it has {len(name)} characters, more than {TOPIC_NAME_LENGTH_MAX}"
        )
    if name in (".", ".."):
        raise _invalid_name(tried, "it means a directory")
    for character in name:
        if character not in _NAME_CHARACTERS:
            raise _invalid_name(tried, f"it contains {character!r}")


def collisions(image: Image, name: str) -> tuple[str, ...]:
    """Warnings: metrics write `.` as `_`."""
    if ("." not in name and "_" not in name) or len(image.topic_ids) > COLLISION_NAMES_MAX:
        return ()
    shown = name.replace(".", "_")
    return tuple(
        f"Metrics show it and topic {other} under one name, {shown}."
        for other in image.topic_ids
        if other.replace(".", "_") == shown
    )


def _invalid_name(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_TOPIC_NAME, tried=tried, happened=happened)
