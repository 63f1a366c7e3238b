"""Topics and the cluster, for operators, from what this broker knows."""

from collections.abc import Callable, Sequence

from tidelog.broker.replicas.failures import ReplicaFailure
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replication.tasks.in_sync_keeper import FollowerState
from tidelog.broker.services.metadata.handler import GUESSES_MAX, ClusterView, MissingTopic
from tidelog.broker.shared.image_counts import ImageCounts, PartitionCounts
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.directory_epochs import Ineligible, ineligible_replicas
from tidelog.metadata.image.image import PartitionImage, TopicImage
from tidelog.metadata.refusals.unknown_topics import unknown_topic
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import RequestContext
from tidelog.wire.ids import BrokerId, PartitionKey, TopicId
from tidelog.wire.refusals import invalid


class AdminHandler:
    """Reads the image, and the replicas held here for sizes."""

    def __init__(
        self,
        metadata: Metadata,
        replicas: Replicas,
        limits: BrokerLimits,
        *,
        broker_id: BrokerId,
        followers: Callable[[PartitionKey], tuple[FollowerState, ...]],
    ) -> None:
        self.broker_id = broker_id
        """Whose replicas these are."""
        self._metadata = metadata
        self._replicas = replicas
        self._limits = limits
        self._counts = ImageCounts()
        self.followers = followers
        """What is known of the followers of a partition that is led here."""

    async def describe_topics(
        self, context: RequestContext, topic_names: Sequence[str]
    ) -> list[TopicImage | MissingTopic]:
        """The named topics, or all, each once and in the order of their names."""
        del context
        if len(topic_names) > self._limits.topics_per_request_max:
            raise invalid(
                "describe topics",
                f"{len(topic_names)} topics, the limit is {self._limits.topics_per_request_max}",
                "Ask in several requests, or for all topics with an empty list.",
            )
        image = self._metadata.image()
        topics: list[TopicImage | MissingTopic] = []
        may_guess = len(topic_names) <= GUESSES_MAX
        for name in sorted(dict.fromkeys(topic_names or image.topic_ids)):
            topic = image.topic_named(name)
            if topic is None:
                error = unknown_topic(
                    name, image, tried=f"describe topic {name}", may_guess=may_guess
                )
                topics.append(MissingTopic(name, TopicId(b""), error))
            else:
                topics.append(topic)
        return topics

    def ineligible(self, partition: PartitionImage) -> tuple[Ineligible, ...]:
        """Replicas that may not lead for a cause that the metadata know."""
        return tuple(ineligible_replicas(self._metadata.image(), partition))

    async def describe_cluster(self, context: RequestContext) -> ClusterView:
        """All brokers, and the image to count replicas in."""
        return ClusterView(
            self._metadata.image(), context.listener, self._metadata.controller_id(), ()
        )

    def without_controller_ms(self) -> int:
        """For how long this broker has known nobody who decides; 0: it knows somebody."""
        return self._metadata.without_controller_ms()

    def count(self, view: ClusterView) -> PartitionCounts:
        """How all partitions stand; what did not change since is not counted again."""
        return self._counts.count(view.image)

    def failures(self) -> dict[PartitionKey, ReplicaFailure]:
        """Replicas that are placed here and not in order."""
        return {each.key: each for each in self._replicas.failures()}

    def replica(self, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica held here, for its offsets and size."""
        return self._replicas.get(topic_id, partition)
