"""The settings that a topic may have, under the names that Kafka's users know.

Owns names, defaults and bounds. Values travel and are stored as text; `parse` is the only place
that turns them into numbers.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tidelog.wire.batch.limits import BATCH_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean

SEGMENT_BYTES: Final = "segment.bytes"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
TIMESTAMP_TYPE: Final = "message.timestamp.type"

SEGMENT_BYTES_MIN: Final = 1024
SEGMENT_BYTES_MAX: Final = 1 << 40

_DIGITS_MAX: Final = len(str(SEGMENT_BYTES_MAX))
"""Longer numbers are too large anyway, and Python refuses to read the longest ones."""

TimestampTypeName = Literal["CreateTime", "LogAppendTime"]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's settings as numbers."""

    segment_bytes: int = 1 << 30
    batch_bytes_max: int = 1_048_588
    is_append_time: bool = False


DEFAULTS: Final[dict[str, str]] = {
    SEGMENT_BYTES: str(TopicSettings().segment_bytes),
    MAX_MESSAGE_BYTES: str(TopicSettings().batch_bytes_max),
    TIMESTAMP_TYPE: "CreateTime",
}


def parse(configuration: Mapping[str, str], *, topic: str) -> TopicSettings:
    """The settings, or INVALID_CONFIGURATION naming the first one that is wrong."""
    for name in configuration:
        if name not in DEFAULTS:
            raise _invalid(topic, name, "there is no such setting", did_you_mean(name, DEFAULTS))
    values = {**DEFAULTS, **configuration}
    timestamp_type = values[TIMESTAMP_TYPE]
    if timestamp_type not in ("CreateTime", "LogAppendTime"):
        raise _invalid(
            topic, TIMESTAMP_TYPE, f"`{timestamp_type}` is neither CreateTime nor LogAppendTime"
        )
    return TopicSettings(
        segment_bytes=_number(topic, SEGMENT_BYTES, values, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        batch_bytes_max=_number(topic, MAX_MESSAGE_BYTES, values, 61, BATCH_BYTES_MAX),
        is_append_time=timestamp_type == "LogAppendTime",
    )


def _number(topic: str, name: str, values: Mapping[str, str], lowest: int, highest: int) -> int:
    text = values[name]
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or not lowest <= int(text) <= highest:
        raise _invalid(topic, name, f"`{text}` is not a number from {lowest} to {highest}")
    return int(text)


def _invalid(topic: str, name: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"set `{name}` of topic {topic}",
        happened=happened,
        hint=hint,
    )
