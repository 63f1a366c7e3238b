"""What the client believes of the cluster: brokers, topics, leaders.

Owns the cache and its rules: a lower metadata version or leader epoch never replaces a higher one,
and an answer of another cluster is refused. It must never fetch anything: it says what is due.
"""

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, TopicId
from tidelog.wire.nearest import nearest_name

NAMES_COMPARED_MAX = 10_000
"""A hint is not worth more comparisons than this."""


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker as metadata tells it."""

    broker_id: int
    address: str
    rack: str = ""
    is_fenced: bool = False


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's leader; -1: none."""

    partition: PartitionId
    leader_id: int
    leader_epoch: LeaderEpoch


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, or why it could not be described."""

    name: str
    topic_id: TopicId = TopicId(b"")
    is_internal: bool = False
    partitions: tuple[PartitionView, ...] = ()
    error: TidelogError | None = None


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to a metadata request."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerView, ...]
    topics: tuple[TopicView, ...]
    version: int
    is_complete: bool = False
    """Every topic was asked for."""


class MetadataCache:
    """1. version never falls. 2. Nor does a partition's leader_epoch while its topic id stays."""

    def __init__(self) -> None:
        self.cluster_id: str = ""
        self.controller_id: int = -1
        self.version: int = -1
        self.brokers: dict[int, BrokerView] = {}
        self.topics: dict[str, TopicView] = {}
        self.updated_at_ns = 0

    @property
    def is_known(self) -> bool:
        """Whether any broker has ever answered."""
        return self.version >= 0

    def apply(self, view: ClusterView, now_ns: int) -> bool:
        """Take an answer in; False if it is older than what is known."""
        if self.is_known and view.cluster_id != self.cluster_id:
            raise TidelogError(
                ErrorCode.WRONG_CLUSTER,
                tried=f"refresh metadata of cluster {self.cluster_id}",
                happened=f"a node of cluster {view.cluster_id} answered",
            )
        if view.version < self.version:
            return False
        self.cluster_id, self.controller_id = view.cluster_id, view.controller_id
        self.version, self.updated_at_ns = view.version, now_ns
        self.brokers = {broker.broker_id: broker for broker in view.brokers}
        if view.is_complete:
            named = {topic.name for topic in view.topics}
            self.topics = {name: topic for name, topic in self.topics.items() if name in named}
        for topic in view.topics:
            self._apply_topic(topic)
        return True

    def _apply_topic(self, topic: TopicView) -> None:
        if topic.error is not None:
            if topic.error.code in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID):
                self.topics.pop(topic.name, None)
            return
        known = self.topics.get(topic.name)
        if known is None or known.topic_id != topic.topic_id:
            self.topics[topic.name] = topic
            return
        merged = tuple(
            known.partitions[index]
            if index < len(known.partitions)
            and known.partitions[index].leader_epoch > partition.leader_epoch
            else partition
            for index, partition in enumerate(topic.partitions)
        )
        self.topics[topic.name] = msgspec.structs.replace(topic, partitions=merged)

    def follow_hint(
        self, topic: str, topic_id: bytes, partition: int, leader_id: int, leader_epoch: int
    ) -> None:
        """A broker said who leads the partition; what is known to be newer stays."""
        known = self.topics.get(topic)
        if known is None or known.topic_id != topic_id or partition >= len(known.partitions):
            return
        if leader_epoch <= known.partitions[partition].leader_epoch:
            return
        partitions = list(known.partitions)
        partitions[partition] = PartitionView(
            partition=PartitionId(partition),
            leader_id=leader_id,
            leader_epoch=LeaderEpoch(leader_epoch),
        )
        self.topics[topic] = msgspec.structs.replace(known, partitions=tuple(partitions))

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The newest that is known; -1: none."""
        known = self.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return -1
        return known.partitions[partition].leader_epoch

    def leader(self, topic: str, partition: int) -> tuple[BrokerView, int] | None:
        """The leader and its epoch, if both the leader and its address are known."""
        known = self.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        view = known.partitions[partition]
        broker = self.brokers.get(view.leader_id)
        if broker is None:
            return None
        return broker, view.leader_epoch

    def has(self, topic: str, partition: int) -> bool:
        """Whether the topic is known to have this partition."""
        known = self.topics.get(topic)
        return known is not None and 0 <= partition < len(known.partitions)

    def unknown_topic(self, name: str, *, tried: str, hint: str = "") -> TidelogError:
        """The error for a topic that does not exist, with the name that was probably meant."""
        nearest = nearest_name(name, self.topics, known_max=NAMES_COMPARED_MAX)
        hint = hint or f"create it with `tidelog topic create {name}`"
        if nearest is not None and nearest not in hint:
            hint = f"did you mean {nearest!r}? Otherwise {hint}"
        return TidelogError(
            ErrorCode.UNKNOWN_TOPIC,
            tried=tried,
            happened=f"there is no topic {name!r}; reading makes none, and writing only where "
            "auto_create_topics of the nodes and allow_auto_create_topics of the producer are true",
            hint=hint,
        )

    def unknown_partition(self, name: str, partition: int, *, tried: str) -> TidelogError:
        """The error for a partition number that the topic does not have."""
        count = len(self.topics[name].partitions)
        return TidelogError(
            ErrorCode.UNKNOWN_PARTITION,
            tried=tried,
            happened=f"topic {name!r} has the partitions 0 to {count - 1}, not {partition}",
        )
