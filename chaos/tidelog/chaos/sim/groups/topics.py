"""Topics that come, grow, and are made again: the metadata as coordinators' cores are told of them.

Owns what topics there are. A topic that is made again under its name has another id.
"""

from typing import Final, Protocol

import msgspec

from tidelog.broker.groups.state.messages import GroupTopic
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.groups.coordinators import Coordinators
from tidelog.chaos.sim.groups.plan import Plan
from tidelog.wire.ids import TopicId

PARTITIONS_MAX: Final = 12
MADE_AGAIN: Final = "cc"
"""The only topic that is ever deleted."""


class Topics(Protocol):
    """What the crowd may do with topics."""

    def change(self) -> None:
        """One of them grows, or is made again."""
        ...


class ToldTopics:
    """Of a run of cores alone."""

    def __init__(
        self, random: SeededRandom, trace: Trace, plan: Plan, coordinators: Coordinators
    ) -> None:
        self._random: Final = random
        self._trace: Final = trace
        self._plan: Final = plan
        self._coordinators: Final = coordinators
        self._topics: dict[str, GroupTopic] = {}
        self._made = 0

    def start(self) -> None:
        """Those of the plan."""
        for name, count in self._plan.topics:
            self._make(name, count)
        self._tell()

    def _make(self, name: str, count: int) -> None:
        self._made += 1
        topic_id = TopicId(f"{name}#{self._made}".encode().ljust(16, b"."))
        self._topics[name] = GroupTopic(topic_id, name, count)

    def _tell(self) -> None:
        topics = tuple(self._topics[name] for name in sorted(self._topics))
        self._coordinators.set_topics(topics)

    def change(self) -> None:
        """One grows by a partition or two, or `cc` is made again."""
        names = sorted(self._topics)
        name = names[self._random.below(len(names))]
        topic = self._topics[name]
        if name == MADE_AGAIN and self._random.chance(0.4):
            self._make(name, self._random.between(1, 3))
        elif topic.partition_count < PARTITIONS_MAX:
            more = topic.partition_count + self._random.between(1, 2)
            self._topics[name] = msgspec.structs.replace(topic, partition_count=more)
        self._trace.note("metadata", "topics", name)
        self._tell()
