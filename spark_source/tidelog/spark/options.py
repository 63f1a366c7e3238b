"""The options of a read, checked once, before anything is asked of a cluster.

Names and meanings are those of Spark's Kafka connector, so that a job moves over by its format's
name alone. What this release cannot do is refused by name; what means nothing here is named in one
warning; nothing is ignored in silence.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.spark.kafka_options import PREFIX, TAKEN, ClientSettings, check_name, parse_client
from tidelog.spark.option_values import (
    LONG_MAX,
    check_once,
    given_text,
    not_yet,
    parse_bool,
    parse_count,
    parse_whole,
    refused,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.nearest import nearest_name

LOGGER = logging.getLogger("tidelog.spark")

EARLIEST: Final = -2
LATEST: Final = -1
"""The two places that Spark's offset JSON writes as negative numbers."""

BOOTSTRAP_DEFAULT: Final = "localhost:9192"
BOOTSTRAP_ENVIRONMENT: Final = "TIDELOG_BOOTSTRAP"

KNOWN: Final = (
    "assign",
    "bootstrap.servers",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchTimeoutMs",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "startingOffsets",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)

LATER: Final = (
    "endingOffsetsByTimestamp",
    "groupIdPrefix",
    "maxBytesPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
"""Options of the Kafka connector that this release refuses."""

MEANINGLESS: Final = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
"""How the Kafka connector goes about things that the SDK does by itself here."""

STREAMS_ONLY: Final = ("maxOffsetsPerTrigger",)
BATCHES_ONLY: Final = ("endingOffsets", "endingTimestamp")
_SPARKS_OWN: Final = ("path",)
"""What `load("...")` is given: no topic is named so."""

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
    client: ClientSettings = ClientSettings()

    def is_named(self, topic: str) -> bool:
        """Whether the topic is asked for."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics or topic in self.assigned


def parse_options(raw: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Raises INVALID_CONFIGURATION naming the option, what is wrong, and the nearest name."""
    given = {name.lower(): value for name, value in raw.items()}
    _warn_of_ignored(_check_names(raw, is_streaming=is_streaming), is_streaming=is_streaming)
    topics, pattern, assigned = _parse_topics(given)
    most_rows = parse_count(given, "maxOffsetsPerTrigger", most=LONG_MAX)
    starting = _parse_place(given, "starting", "latest" if is_streaming else "earliest")
    ending = _parse_place(given, "ending", "latest")
    _check_order(starting, ending)
    return SourceOptions(
        bootstrap=_parse_bootstrap(given),
        topics=topics,
        topic_pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending,
        include_headers=parse_bool(given, "includeHeaders", default=False),
        fail_on_data_loss=parse_bool(given, "failOnDataLoss", default=True),
        max_offsets_per_trigger=most_rows if is_streaming else None,
        min_partitions=parse_count(given, "minPartitions"),
        fetch_timeout_ms=_parse_fetch_timeout(given),
        client=parse_client(given),
    )


def _check_names(raw: Mapping[str, str], *, is_streaming: bool) -> list[str]:
    """The options that mean nothing here; raises for those that cannot be passed over."""
    known = {name.lower() for name in KNOWN}
    later = {name.lower(): name for name in LATER}
    meaningless = {name.lower() for name in MEANINGLESS + _SPARKS_OWN}
    batches_only = {name.lower(): name for name in BATCHES_ONLY}
    ignored = []
    for name in sorted(raw):
        small = name.lower()
        if small in later:
            # Spark hands names over in small letters.
            raise not_yet(later[small])
        if small in meaningless:
            ignored.append(name)
        elif small not in known and small.startswith(PREFIX):
            if not check_name(name):
                ignored.append(name)
        elif small not in known:
            near = nearest_name(name, KNOWN)
            raise refused(
                name,
                "no such option",
                f"did you mean {near}?" if near else f"known are {', '.join(KNOWN)}",
            )
        if is_streaming and small in batches_only:
            raise refused(
                batches_only[small], "a stream has no end", "take it out, or use spark.read"
            )
        if not is_streaming and small in {each.lower() for each in STREAMS_ONLY}:
            ignored.append(name)
    return ignored


def _warn_of_ignored(names: Iterable[str], *, is_streaming: bool) -> None:
    """One line, as long as the list may be."""
    told = []
    for name in names:
        near = nearest_name(name.lower(), TAKEN) if name.lower().startswith(PREFIX) else None
        told.append(f"{name} (did you mean {near}?)" if near else name)
    if told:
        LOGGER.warning(
            "options that mean nothing to a %s of Tidelog are ignored: %s",
            "stream" if is_streaming else "batch read",
            ", ".join(told),
        )


def _parse_fetch_timeout(given: Mapping[str, str]) -> int:
    ours = parse_count(given, "fetchTimeoutMs")
    theirs = parse_count(given, "kafkaConsumer.pollTimeoutMs")
    return ours or theirs or FETCH_TIMEOUT_MS_DEFAULT


def _parse_bootstrap(given: Mapping[str, str]) -> str:
    ours = given_text(given, "bootstrap.servers")
    theirs = given_text(given, "kafka.bootstrap.servers")
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
    named = {
        name: text
        for name in ("subscribe", "subscribePattern", "assign")
        if (text := given_text(given, name)) is not None
    }
    if len(named) != 1:
        raise refused(
            " and ".join(named) or "subscribe",
            f"{len(named) or 'none'} of subscribe, subscribePattern and assign are given",
            "give exactly one of them",
        )
    if "subscribe" in named:
        return _parse_names(named["subscribe"]), None, {}
    if "subscribePattern" in named:
        return (), _parse_pattern(named["subscribePattern"]), {}
    return (), None, _parse_assigned(named["assign"])


def _parse_names(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise refused("subscribe", f"{text!r} has an empty name", "write topic or topic,topic")
    return tuple(sorted(set(names)))


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise refused(
            "subscribePattern", f"{text!r} is no regular expression: {error}", "correct it"
        ) from error
    return text


def _parse_assigned(text: str) -> dict[str, tuple[int, ...]]:
    how = 'write {"topic":[0,1]}'
    check_once("assign", text)
    try:
        parsed = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.MsgspecError as error:
        raise refused("assign", f"{text!r} is not what is expected: {error}", how) from error
    if not parsed or not all(parsed.values()):
        raise refused("assign", f"{text!r} leaves a topic or all without partitions", how)
    if any(number < 0 for numbers in parsed.values() for number in numbers):
        raise refused("assign", f"{text!r} has a negative partition", how)
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in sorted(parsed.items())}


def _parse_place(given: Mapping[str, str], side: str, default: str) -> Place:
    option = f"{side}Offsets"
    offsets = given_text(given, option)
    timestamp = given_text(given, f"{side}Timestamp")
    place = _parse_word_or_offsets(option, offsets or default)
    if timestamp is not None:
        # As in the Kafka connector, a time wins over offsets.
        at_ms = parse_whole(f"{side}Timestamp", timestamp, most=LONG_MAX)
        return Place(timestamp_ms=at_ms)
    return place


def _check_order(starting: Place, ending: Place) -> None:
    """Numbers that are given the wrong way round are a mistake, not a read of nothing."""
    first_ms, last_ms = starting.timestamp_ms, ending.timestamp_ms
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise _turned_round("endingTimestamp", str(last_ms), str(first_ms))
    for topic, numbers in (starting.offsets or {}).items():
        for partition, first in numbers.items():
            last = (ending.offsets or {}).get(topic, {}).get(partition, first)
            if 0 <= last < first:
                raise _turned_round("endingOffsets", f"{last} for {topic}-{partition}", str(first))


def _turned_round(option: str, last: str, first: str) -> TidelogError:
    happened = f"it says {last}, and the start is {first}"
    return refused(option, happened, "give an end that is not before the start")


def _parse_word_or_offsets(option: str, text: str) -> Place:
    is_end = option == "endingOffsets"
    if text.lower() in ("earliest", "latest"):
        if is_end and text.lower() == "earliest":
            raise refused(option, "a read cannot end at earliest", "use latest")
        return Place(word=text.lower())
    offsets = _parse_offsets(option, text)
    if is_end and any(EARLIEST in each.values() for each in offsets.values()):
        raise refused(option, "a read cannot end at -2, earliest", "use -1, latest")
    return Place(offsets=offsets)


def _parse_offsets(option: str, text: str) -> dict[str, dict[int, int]]:
    check_once(option, text)
    try:
        parsed = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.MsgspecError as error:
        raise refused(
            option,
            f"{text!r} is not what is expected: {error}",
            'write earliest, latest or {"topic":{"0":23,"1":-2}} (-2 earliest, -1 latest)',
        ) from error
    for topic, offsets in parsed.items():
        if bad := [number for number in offsets if number < 0]:
            raise refused(option, f"{topic} has the partition {bad[0]}", "use 0 or above")
        if bad := [each for each in offsets.values() if not EARLIEST <= each <= LONG_MAX]:
            raise refused(option, f"{topic} has the offset {bad[0]}", "use -2, -1 or above")
    return parsed
