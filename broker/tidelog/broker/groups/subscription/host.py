"""All subscriptions of a broker: their number, their time, their ends.

Owns the bound on streams and what has to be done after a stream is gone: its member leaves, whether
the client ended in order, broke off, or was refused. One task ticks for all of them, and tells
those without a group which partitions there are.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidelog.broker.groups.state.messages import GroupTopic
from tidelog.broker.groups.state.topics import TopicView, compile_pattern
from tidelog.broker.groups.subscription.core import invariants, limits
from tidelog.broker.groups.subscription.core.messages import Begin
from tidelog.broker.groups.subscription.core.subscription import Subscription
from tidelog.broker.groups.subscription.runner import (
    NS_PER_MS,
    GroupPort,
    ReadPort,
    Send,
    SubscriptionRunner,
)
from tidelog.broker.shared.errors import internal
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, Random, TaskScope
from tidelog.wire.calls.groups import Heartbeat
from tidelog.wire.calls.groups import Subscription as Wanted
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey

TICK_MS: Final = 50
"""How late a deadline of a stream may be noticed."""
NAMED_MAX: Final = 20
"""Topics that an error names."""

GroupPorts = Callable[[Begin], GroupPort]
"""The way to the coordinator of the group."""


class Subscriptions:
    """One a broker. `run()` is its task."""

    def __init__(
        self,
        metadata: ImageSource,
        groups: GroupPorts,
        reads: ReadPort,
        clock: Clock,
        random: Random,
        *,
        streams_max: int = limits.STREAMS_MAX,
    ) -> None:
        self._streams_max = streams_max
        self._metadata = metadata
        self._groups = groups
        self._reads = reads
        self._clock = clock
        self._random = random
        self._runners: dict[SubscriptionRunner, Begin] = {}
        self._has_streams = asyncio.Event()
        self._image = Image()
        self._view = TopicView()
        self._scope: TaskScope | None = None

    @property
    def count(self) -> int:
        """Streams at the moment."""
        return len(self._runners)

    def check(self) -> None:
        """Fails if an invariant of a stream does not hold: the simulator asks after steps."""
        for runner in self._runners:
            invariants.check(runner.core)

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            self._scope = scope
            try:
                await self._tick_all()
            finally:
                # Streams may end later: nobody is left to tell their departures.
                self._scope = None

    async def wait_topics(self, begin: Begin) -> None:
        """Until all topics that it names are there; UNKNOWN_TOPIC if one stays away.

        With a pattern nothing is waited for: whatever it means is taken up when it comes.
        """
        due_ms = self._now_ms() + limits.TOPICS_MS
        while missing := _missing(self._metadata.image(), begin):
            if self._now_ms() >= due_ms:
                raise TidelogError(
                    ErrorCode.UNKNOWN_TOPIC,
                    tried="subscribe",
                    happened=f"there is no topic {', '.join(missing[:NAMED_MAX])}",
                    hint="Create it first, or subscribe to a `topic_pattern`, which takes topics "
                    "up when they come.",
                )
            await self._clock.sleep(TICK_MS)

    @contextlib.contextmanager
    def stream(self, begin: Begin, send: Send) -> Iterator[SubscriptionRunner]:
        """As long as this is open it is a member; at the end it leaves."""
        if len(self._runners) >= self._streams_max:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried="subscribe",
                happened=f"this broker has {self._streams_max} subscriptions already",
                hint="Connect to another broker.",
            )
        if begin.topic_pattern:
            compile_pattern(begin.topic_pattern)
        group = self._groups(begin)
        core = Subscription(begin, self._random.uuid().hex(), self._now_ms())
        runner = SubscriptionRunner(core, group, self._reads, self._clock, send)
        self._runners[runner] = begin
        self._has_streams.set()
        self._follow(self._metadata.image())
        if not begin.group:
            runner.show(self._partitions(begin))
        try:
            yield runner
        finally:
            del self._runners[runner]
            departure = core.departure()
            if departure is not None and self._scope is not None:
                self._scope.start(_leave(group, departure), name="subscription departure")

    async def _tick_all(self) -> None:
        while True:
            if not self._runners:
                self._has_streams.clear()
                await self._has_streams.wait()
            await self._clock.sleep(TICK_MS)
            self._follow(self._metadata.image())
            now_ms = self._now_ms()
            for runner in list(self._runners):
                runner.tick(now_ms)

    def _follow(self, image: Image) -> None:
        before, self._image = self._image, image
        is_same = image.topic_ids is before.topic_ids
        if is_same and image.partition_count == before.partition_count:
            return
        self._view = TopicView(
            GroupTopic(topic_id, topic.name, len(topic.partitions))
            for topic_id, topic in image.topics.items()
            if not topic.is_internal
        )
        for runner, begin in self._runners.items():
            runner.forget(image.topics)
            if not begin.group:
                runner.show(self._partitions(begin))

    def _partitions(self, begin: Begin) -> Mapping[PartitionKey, str]:
        wanted = Wanted(topics=begin.topics, topic_pattern=begin.topic_pattern)
        return {
            PartitionKey(topic.topic_id, PartitionId(number)): topic.name
            for topic in self._view.resolve(wanted)
            for number in range(topic.partition_count)
        }

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS


def _missing(image: Image, begin: Begin) -> list[str]:
    """Topics that it names and that are not there, unless it has a pattern as well."""
    missing = []
    for name in begin.topics:
        topic = image.topic_named(name)
        if topic is not None and topic.is_internal:
            raise internal(name, tried="subscribe")
        if topic is None and not begin.topic_pattern:
            missing.append(name)
    return missing


async def _leave(group: GroupPort, departure: Heartbeat) -> None:
    """If the coordinator does not hear it, it removes the member after its session timeout."""
    with contextlib.suppress(TidelogError):
        await group.heartbeat(departure)
