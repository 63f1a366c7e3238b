"""What the cluster looks like, and topics that come to be by being asked for."""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.image.image import BrokerImage, Image, TopicImage
from tidelog.metadata.internal_topics import is_reserved
from tidelog.metadata.new_topic import NewTopic
from tidelog.metadata.refusals.unknown_topics import unknown_topic
from tidelog.metadata_quorum.port import Metadata
from tidelog.ports import RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, TopicId
from tidelog.wire.refusals import invalid

GUESSES_MAX: Final = 10
"""Names in one request up to which the nearest name is looked for, where one is not there."""


class MetadataRequest(msgspec.Struct, frozen=True):
    """Which topics to describe."""

    topic_names: Sequence[str]
    topic_ids: Sequence[TopicId]
    all_topics: bool
    allow_auto_create_topics: bool


class MissingTopic(msgspec.Struct, frozen=True):
    """A topic that is not there, and why."""

    name: str
    topic_id: TopicId
    error: TidelogError


class ClusterView(msgspec.Struct, frozen=True):
    """The answer: an image and the part of it that was asked for."""

    image: Image
    listener: str
    controller_id: BrokerId | None
    topics: Sequence[TopicImage | MissingTopic]

    def brokers(self) -> list[BrokerImage]:
        """All brokers in the order of their ids."""
        return [self.image.brokers[key] for key in sorted(self.image.brokers)]


class MetadataHandler:
    """Answers from the local image."""

    def __init__(
        self,
        metadata: Metadata,
        replicas: Replicas,
        limits: BrokerLimits,
        *,
        auto_create_topics: bool,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._limits = limits
        self._auto_create_topics = auto_create_topics

    async def get_metadata(self, context: RequestContext, request: MetadataRequest) -> ClusterView:
        """Describe topics; create missing ones if the cluster and the client allow it."""
        asked = len(request.topic_names) + len(request.topic_ids)
        if asked > self._limits.topics_per_request_max:
            raise invalid(
                "get metadata",
                f"{asked} topics, the limit is {self._limits.topics_per_request_max}",
                "Ask for all_topics.",
            )
        created: dict[str, TidelogError] = {}
        if request.allow_auto_create_topics and self._auto_create_topics:
            created = await self._create_missing(context, request.topic_names)
        image = self._metadata.image()
        # Whoever is told of a topic can use it here at once, also if another call created it.
        await self._replicas.wait_applied(image.version)
        topics: list[TopicImage | MissingTopic] = []
        if request.all_topics:
            topics += [image.topics[image.topic_ids[name]] for name in sorted(image.topic_ids)]
        else:
            may_guess = len(request.topic_names) <= GUESSES_MAX
            topics += [
                self._named(image, name, created, may_guess=may_guess)
                for name in request.topic_names
            ]
            topics += [_identified(image, topic_id) for topic_id in request.topic_ids]
        return ClusterView(image, context.listener, self._metadata.controller_id(), topics)

    async def topic(
        self, context: RequestContext, name: str, *, may_create: bool, tried: str
    ) -> TopicImage:
        """One topic by name, created if it may be; else a typed error."""
        image = self._metadata.image()
        topic = image.topic_named(name)
        if topic is not None:
            await self._replicas.wait_applied(image.version)
            return topic
        view = await self.get_metadata(context, MetadataRequest([name], [], False, may_create))
        found = view.topics[0]
        if isinstance(found, TopicImage):
            return found
        error = found.error
        raise TidelogError(error.code, tried=tried, happened=error.happened, hint=error.hint)

    async def _create_missing(
        self, context: RequestContext, names: Sequence[str]
    ) -> dict[str, TidelogError]:
        image = self._metadata.image()
        missing = [
            NewTopic(name=name)
            for name in dict.fromkeys(names)
            if name not in image.topic_ids and not is_reserved(image, name)
        ]
        if not missing:
            return {}
        try:
            results = await self._metadata.create_topics(
                context, missing, timeout_ms=self._limits.admin_timeout_ms
            )
        except TidelogError as error:
            # The topics that are there are told all the same.
            return {wanted.name: error for wanted in missing}
        return {
            wanted.name: result
            for wanted, result in zip(missing, results, strict=True)
            if isinstance(result, TidelogError)
            and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    def _named(
        self, image: Image, name: str, failed: dict[str, TidelogError], *, may_guess: bool
    ) -> TopicImage | MissingTopic:
        topic = image.topic_named(name)
        if topic is not None:
            return topic
        error = failed.get(name)
        if error is None:
            hint = "Create it with `tidelog topic create`"
            if not self._auto_create_topics:
                hint += ", or set auto_create_topics = true on the brokers"
            error = unknown_topic(
                name,
                image,
                tried=f"look up topic {name}",
                hint=f"{hint}.",
                may_guess=may_guess,
            )
        return MissingTopic(name, TopicId(b""), error)


def _identified(image: Image, topic_id: TopicId) -> TopicImage | MissingTopic:
    topic = image.topics.get(topic_id)
    if topic is not None:
        return topic
    error = TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"look up the topic id {topic_id.hex()}",
        happened="there is no such topic",
    )
    return MissingTopic("", topic_id, error)
