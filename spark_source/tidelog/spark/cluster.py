"""What the driver asks a cluster: which partitions there are, and where they begin and end.

All talking is the SDK's; this module turns options into positions. Every question about offsets
names the topic's id, so that no answer is of another topic of the same name.
"""

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import msgspec

from tidelog.client import TopicPartition
from tidelog.client.engine.cluster.metadata import TopicView
from tidelog.client.sync.admin.positions import PositionClient
from tidelog.spark.losses import Loss, beyond_end
from tidelog.spark.offsets import Progress, TopicProgress
from tidelog.spark.option_values import refused
from tidelog.spark.options import EARLIEST, LATEST, Place, SourceOptions
from tidelog.spark.planning import NO_EPOCH, NO_VERSION
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode, TidelogError

UNKNOWN_TOPIC_GRACE_MS: Final = 2_000
"""A topic that was just created may be unknown to the broker that was asked."""
LOOKUP_MS: Final = 60_000
"""How long leaders may be changing before a look-up, and with it the query, gives up."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the options name, as the cluster has it now."""

    partitions: dict[TopicPartition, bytes]
    """Partition → its topic's id."""
    missing: tuple[str, ...] = ()
    """Topics named that are not there."""
    lacking: tuple[TopicPartition, ...] = ()
    """Partitions named that their topics do not have."""
    version: int = NO_VERSION
    """Of the metadata."""


class Cluster:
    """One connection; closed by whoever opened it."""

    def __init__(self, options: SourceOptions, *, grace_ms: int = UNKNOWN_TOPIC_GRACE_MS) -> None:
        self._options = options
        self._grace_ms = grace_ms
        self._client = PositionClient(
            bootstrap_servers=options.bootstrap, **options.client.for_admin()
        )
        self._missing: frozenset[str] = frozenset()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def look(self) -> View:
        """Which topics and partitions there are now; offsets are asked for in such a view."""
        found = self._topics()
        partitions: dict[TopicPartition, bytes] = {}
        lacking = []
        for name, topic in sorted(found.items()):
            numbers = self._options.assigned.get(name, range(len(topic.partitions)))
            for number in numbers:
                if number < len(topic.partitions):
                    partitions[TopicPartition(name, number)] = topic.topic_id
                else:
                    lacking.append(TopicPartition(name, number))
        missing = tuple(name for name in self._named() if name not in found)
        return View(
            partitions=partitions,
            missing=missing,
            lacking=tuple(lacking),
            version=self._client.version,
        )

    def earliest(self, view: View) -> Progress:
        """The first kept offset of every partition."""
        return self._ask(view, OffsetSpec.EARLIEST)

    def latest(self, view: View) -> Progress:
        """The high watermark of every partition."""
        return self._ask(view, OffsetSpec.LATEST)

    def resolve(self, view: View, place: Place, option: str) -> tuple[Progress, list[Loss]]:
        """Where the options let a read begin or end, and what they name that is not there."""
        if place.timestamp_ms is not None:
            return self._at_time(view, place.timestamp_ms), []
        if place.offsets is not None:
            return self._at_offsets(view, place.offsets, option)
        return (self.earliest(view) if place.word == "earliest" else self.latest(view)), []

    def cuts(
        self, read: Mapping[TopicPartition, tuple[int, int]], view: View
    ) -> dict[TopicPartition, int]:
        """Where logs part from what was read of them: partition → (offset, leader epoch) in."""
        return self._client.partings(read, _ids(view), LOOKUP_MS)

    def _ask(self, view: View, spec: OffsetSpec, timestamp_ms: int = -1) -> Progress:
        wanted = dict.fromkeys(view.partitions, (spec, timestamp_ms))
        answers = self._client.offsets(wanted, _ids(view), LOOKUP_MS) if wanted else {}
        by_topic: dict[str, TopicProgress] = {}
        for name, answer in sorted(answers.items()):
            topic_id = view.partitions[name].hex()
            progress = by_topic.setdefault(name.topic, TopicProgress(topic_id, {}, {}))
            progress.offsets[name.partition] = answer.offset
            # Of a log that is empty no record tells the epoch: its leader's is the latest.
            epoch = answer.leader_epoch
            progress.leader_epochs[name.partition] = (
                self._client.leader_epoch(name) if epoch == NO_EPOCH else epoch
            )
        return by_topic

    def _at_time(self, view: View, timestamp_ms: int) -> Progress:
        """A partition without a record that late is taken at its end."""
        ends = self.latest(view)
        found = self._ask(view, OffsetSpec.AT_TIME, timestamp_ms)
        for topic, progress in found.items():
            for partition, offset in list(progress.offsets.items()):
                if offset < 0:
                    progress.offsets[partition] = ends[topic].offsets[partition]
        # Of a record in the middle, the epoch of the last one serves as well.
        return _with_epochs(found, ends)

    def _at_offsets(
        self, view: View, wanted: dict[str, dict[int, int]], option: str
    ) -> tuple[Progress, list[Loss]]:
        named = {
            TopicPartition(topic, number) for topic, numbers in wanted.items() for number in numbers
        }
        if wrong := sorted(named ^ view.partitions.keys()):
            raise refused(
                option,
                f"it and the partitions that are read differ in "
                f"{', '.join(f'{topic}-{number}' for topic, number in wrong[:5])}",
                "name every partition that is read, and no other",
            )
        ends = self.latest(view)
        beginnings = self.earliest(view)
        losses = []
        for name in view.partitions:
            end = ends[name.topic].offsets[name.partition]
            offset = wanted[name.topic][name.partition]
            words = {EARLIEST: beginnings[name.topic].offsets[name.partition], LATEST: end}
            if offset > end:
                losses.append(beyond_end(f"{name.topic}-{name.partition}", offset, end, option))
            beginnings[name.topic].offsets[name.partition] = min(words.get(offset, offset), end)
        return _with_epochs(beginnings, ends), losses

    def _topics(self) -> dict[str, TopicView]:
        if self._options.topic_pattern is not None:
            pattern = re.compile(self._options.topic_pattern)
            every = self._client.all_topics(LOOKUP_MS)
            return {name: topic for name, topic in every.items() if pattern.fullmatch(name)}
        found = self._client.topics(self._named(), LOOKUP_MS)
        missing = frozenset(self._named()) - found.keys()
        if missing - self._missing:
            found = self._client.topics(self._named(), LOOKUP_MS, grace_ms=self._grace_ms)
            missing = frozenset(self._named()) - found.keys()
        self._missing = missing
        return found

    def _named(self) -> tuple[str, ...]:
        return self._options.topics or tuple(sorted(self._options.assigned))


def check_named(view: View) -> None:
    """Raises for a topic or a partition that is named and was never there."""
    if view.missing:
        raise TidelogError(
            ErrorCode.UNKNOWN_TOPIC,
            tried=f"read {', '.join(view.missing)}",
            happened=f"there is no topic {view.missing[0]!r}",
            hint="check the name, or create the topic with `tidelog topic create`",
        )
    for topic, number in view.lacking:
        count = sum(name.topic == topic for name in view.partitions)
        raise TidelogError(
            ErrorCode.UNKNOWN_PARTITION,
            tried=f"read {topic}-{number}, as assign says",
            happened=f"{topic} does not have it; of those that assign names it has {count}",
        )


def _ids(view: View) -> dict[str, bytes]:
    return {name.topic: topic_id for name, topic_id in view.partitions.items()}


def _with_epochs(progress: Progress, ends: Progress) -> Progress:
    return {
        topic: msgspec.structs.replace(each, leader_epochs=dict(ends[topic].leader_epochs))
        for topic, each in progress.items()
    }
