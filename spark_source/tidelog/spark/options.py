"""The options of a read, checked once, before anything is asked of a cluster.

Names and meanings are those of Spark's Kafka connector, so that a job moves over by its format's
name alone. What this release cannot do is refused by name, never ignored.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import nearest_name

EARLIEST: Final = -2
LATEST: Final = -1
"""The two places that Spark's offset JSON writes as negative numbers."""

BOOTSTRAP_DEFAULT: Final = "localhost:9192"
BOOTSTRAP_ENVIRONMENT: Final = "TIDELOG_BOOTSTRAP"

_KNOWN: Final = (
    "assign",
    "bootstrap.servers",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchTimeoutMs",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "startingOffsets",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)

_LATER: Final = (
    "endingOffsetsByTimestamp",
    "groupIdPrefix",
    "kafka.group.id",
    "kafka.isolation.level",
    "maxBytesPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
"""Options of the Kafka connector that this release refuses."""

_SPARKS_OWN: Final = ("path",)

FETCH_TIMEOUT_MS_DEFAULT: Final = 120_000


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin or to end: one of a word, a time, or an offset for each partition."""

    word: str | None = None
    """`earliest` or `latest`."""
    timestamp_ms: int | None = None
    offsets: dict[str, dict[int, int]] | None = None
    """Topic → partition → offset, or EARLIEST or LATEST."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, in full."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] = {}
    starting: Place
    ending: Place
    include_headers: bool
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fetch_timeout_ms: int


def parse_options(raw: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Raises INVALID_CONFIGURATION naming the option, what is wrong, and the nearest name."""
    given = {name.lower(): value for name, value in raw.items()}
    _refuse_unknown(raw, is_streaming=is_streaming)
    topics, pattern, assigned = _parse_topics(given)
    return SourceOptions(
        bootstrap=_parse_bootstrap(given),
        topics=topics,
        topic_pattern=pattern,
        assigned=assigned,
        starting=_parse_place(given, "starting", "latest" if is_streaming else "earliest"),
        ending=_parse_place(given, "ending", "latest"),
        include_headers=_parse_bool(given, "includeHeaders", default=False),
        fail_on_data_loss=_parse_bool(given, "failOnDataLoss", default=True),
        max_offsets_per_trigger=_parse_count(given, "maxOffsetsPerTrigger"),
        min_partitions=_parse_count(given, "minPartitions"),
        fetch_timeout_ms=_parse_count(given, "fetchTimeoutMs") or FETCH_TIMEOUT_MS_DEFAULT,
    )


def refused(option: str, happened: str, hint: str) -> TidelogError:
    """The error for one option."""
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"read with the option {option}",
        happened=happened,
        hint=hint,
    )


def _refuse_unknown(raw: Mapping[str, str], *, is_streaming: bool) -> None:
    known = {name.lower() for name in _KNOWN + _SPARKS_OWN}
    later = {name.lower() for name in _LATER}
    for name in raw:
        if name.lower() in later:
            raise TidelogError(
                ErrorCode.NOT_IMPLEMENTED,
                tried=f"read with the option {name}",
                happened="this release does not honour it",
                hint="take the option out, or stay with the Kafka connector for this job",
            )
        if name.lower() not in known:
            near = nearest_name(name, _KNOWN)
            raise refused(
                name,
                "no such option",
                f"did you mean {near}?" if near else f"known are {', '.join(_KNOWN)}",
            )
        if is_streaming and name.lower() in ("endingoffsets", "endingtimestamp"):
            raise refused(name, "a stream has no end", "take it out, or use spark.read")


def _parse_bootstrap(given: Mapping[str, str]) -> str:
    ours, theirs = given.get("bootstrap.servers"), given.get("kafka.bootstrap.servers")
    if ours is not None and theirs is not None and ours != theirs:
        raise refused(
            "bootstrap.servers",
            f"it says {ours}, and kafka.bootstrap.servers says {theirs}",
            "give one of them",
        )
    return ours or theirs or os.environ.get(BOOTSTRAP_ENVIRONMENT) or BOOTSTRAP_DEFAULT


def _parse_topics(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    named = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(named) != 1:
        raise refused(
            "subscribe",
            f"{len(named)} of subscribe, subscribePattern and assign are given",
            "give exactly one of them",
        )
    if named == ["subscribe"]:
        topics = tuple(sorted({name.strip() for name in given["subscribe"].split(",")} - {""}))
        return topics, None, {}
    if named == ["subscribepattern"]:
        return (), _parse_pattern(given["subscribepattern"]), {}
    return (), None, _parse_assigned(given["assign"])


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise refused(
            "subscribePattern", f"{text!r} is no regular expression: {error}", "correct it"
        ) from error
    return text


def _parse_assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        parsed = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.MsgspecError as error:
        raise refused(
            "assign", f"{text!r} is not what is expected: {error}", 'write {"topic":[0,1]}'
        ) from error
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in sorted(parsed.items())}


def _parse_place(given: Mapping[str, str], side: str, default: str) -> Place:
    offsets = given.get(f"{side}offsets")
    timestamp = given.get(f"{side}timestamp")
    if timestamp is not None:
        # As in the Kafka connector, a time wins over offsets.
        return Place(timestamp_ms=_parse_number(f"{side}Timestamp", timestamp))
    text = (offsets or default).strip()
    if text.lower() in ("earliest", "latest"):
        if side == "ending" and text.lower() == "earliest":
            raise refused("endingOffsets", "a read cannot end at earliest", "use latest")
        return Place(word=text.lower())
    return Place(offsets=_parse_offsets(f"{side}Offsets", text))


def _parse_offsets(option: str, text: str) -> dict[str, dict[int, int]]:
    try:
        parsed = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.MsgspecError as error:
        raise refused(
            option,
            f"{text!r} is not what is expected: {error}",
            'write earliest, latest or {"topic":{"0":23,"1":-2}} (-2 earliest, -1 latest)',
        ) from error
    for topic, offsets in parsed.items():
        if bad := [offset for offset in offsets.values() if offset < EARLIEST]:
            raise refused(option, f"{topic} has the offset {bad[0]}", "use -2, -1 or above")
    return parsed


def _parse_bool(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise refused(option, f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


def _parse_count(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    number = _parse_number(option, text)
    if number < 1:
        raise refused(option, f"{number} is below 1", "give a number of at least 1")
    return number


def _parse_number(option: str, text: str) -> int:
    try:
        return int(json.loads(text))
    except (ValueError, TypeError) as error:
        raise refused(option, f"{text!r} is no whole number", "give a whole number") from error
