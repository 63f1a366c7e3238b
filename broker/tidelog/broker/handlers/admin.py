"""Topics and the cluster, for operators: creation goes to the controller, the rest is local."""

from collections.abc import Sequence

import msgspec

from tidelog.broker.errors import invalid
from tidelog.broker.handlers.metadata import GUESSES_MAX, ClusterView, MissingTopic
from tidelog.broker.limits import DURATION_MS_MAX, BrokerLimits
from tidelog.broker.replicas import Replica, Replicas
from tidelog.metadata_quorum.controller.topics import NewTopic, unknown_topic
from tidelog.metadata_quorum.image import TopicImage
from tidelog.metadata_quorum.port import CreatedTopic, Metadata
from tidelog.ports import RequestContext
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import TopicId


class CreateTopicsRequest(msgspec.Struct, frozen=True):
    """Each topic is created on its own."""

    topics: Sequence[NewTopic]
    validate_only: bool
    timeout_ms: int


class AdminHandler:
    """Asks the metadata port to change, and the replicas held here for sizes."""

    def __init__(self, metadata: Metadata, replicas: Replicas, limits: BrokerLimits) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._limits = limits

    async def create_topics(
        self, context: RequestContext, request: CreateTopicsRequest
    ) -> list[CreatedTopic | TidelogError]:
        """Created topics can be written to on this broker when this returns."""
        if len(request.topics) > self._limits.topics_per_request_max:
            raise invalid(
                "create topics",
                f"{len(request.topics)} topics, the limit is {self._limits.topics_per_request_max}",
            )
        names = [topic.name for topic in request.topics]
        if len(dict.fromkeys(names)) < len(names):
            raise invalid("create topics", "the request names a topic twice", "Name each once.")
        timeout_ms = min(request.timeout_ms or self._limits.admin_timeout_ms, DURATION_MS_MAX)
        results = await self._metadata.create_topics(
            context, request.topics, validate_only=request.validate_only, timeout_ms=timeout_ms
        )
        versions = [each.version for each in results if isinstance(each, CreatedTopic)]
        await self._replicas.wait_applied(max(versions, default=0))
        return results

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
                topics.append(MissingTopic(name, b"", error))
            else:
                topics.append(topic)
        return topics

    async def describe_cluster(self, context: RequestContext) -> ClusterView:
        """All brokers, and the image to count replicas in."""
        return ClusterView(
            self._metadata.image(), context.listener, self._metadata.controller_id(), ()
        )

    def replica(self, topic_id: TopicId, partition: int) -> Replica | None:
        """The replica held here, for its offsets and size."""
        return self._replicas.get(topic_id, partition)
