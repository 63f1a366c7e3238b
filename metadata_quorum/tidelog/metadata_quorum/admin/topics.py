"""Topics created, deleted and grown, on the active controller; lists of them, from any image."""

from typing import Final

from tidelog.contract.errors import fill_error
from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic, TopicDefaults
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.admin.execution import Execute, write
from tidelog.metadata_quorum.controller.topics.changes import (
    DeletedTopic,
    PartitionCountChange,
    TopicSelector,
    create_partitions,
    delete_topics,
)
from tidelog.metadata_quorum.controller.topics.creation import TopicPlan, create_topics
from tidelog.metadata_quorum.port import Executed
from tidelog.ports import Random, RequestContext
from tidelog.v1 import admin_pb2, topic_admin_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, TopicId

LISTED_MAX: Final = 10_000


class TopicExecution:
    """The calls that change topics."""

    def __init__(
        self, controller: ActiveController, random: Random, defaults: TopicDefaults
    ) -> None:
        self._controller = controller
        self._random = random
        self._defaults = defaults

    def table(self) -> dict[str, Execute]:
        """By full method name."""
        return {
            "/tidelog.v1.AdminService/CreateTopics": self.create_topics,
            "/tidelog.v1.TopicAdminService/DeleteTopics": self.delete_topics,
            "/tidelog.v1.TopicAdminService/CreatePartitions": self.create_partitions,
        }

    async def create_topics(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`CreateTopics`."""
        del context
        asked = admin_pb2.CreateTopicsRequest.FromString(message)
        wanted = [
            NewTopic(
                name=each.name,
                partition_count=each.partition_count,
                replication_factor=each.replication_factor,
                configuration=dict(each.configuration),
            )
            for each in asked.topics
        ]
        topic_ids = [TopicId(self._random.uuid()) for _ in wanted]
        written = await write(
            self._controller,
            lambda image: create_topics(image, wanted, topic_ids, self._defaults),
            validate_only=asked.validate_only,
            tried="create topics",
            timeout_ms=min(timeout_ms, asked.timeout_ms or timeout_ms),
        )
        response = admin_pb2.CreateTopicsResponse()
        for topic, result in zip(wanted, written.answer, strict=True):
            each = response.results.add(name=topic.name)
            _fill_created(each, result, validate_only=asked.validate_only)
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def delete_topics(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`DeleteTopics`."""
        del context
        asked = topic_admin_pb2.DeleteTopicsRequest.FromString(message)
        selectors = [
            TopicSelector(topic_id=TopicId(each.topic_id))
            if each.WhichOneof("selector") == "topic_id"
            else TopicSelector(name=each.name)
            for each in asked.topics
        ]
        written = await write(
            self._controller,
            lambda image: delete_topics(image, selectors),
            validate_only=asked.validate_only,
            tried="delete topics",
            timeout_ms=timeout_ms,
        )
        response = topic_admin_pb2.DeleteTopicsResponse()
        for result in written.answer:
            _fill_deleted(response.results.add(), result)
        return Executed(response=response.SerializeToString(), applied_index=written.index)

    async def create_partitions(
        self, context: RequestContext, message: bytes, timeout_ms: int
    ) -> Executed:
        """`CreatePartitions`."""
        del context
        asked = topic_admin_pb2.CreatePartitionsRequest.FromString(message)
        changes = [
            PartitionCountChange(
                topic=each.topic,
                partition_count=each.partition_count,
                assignments=tuple(
                    tuple(BrokerId(replica) for replica in placement.replicas)
                    for placement in each.placements
                ),
            )
            for each in asked.topics
        ]
        written = await write(
            self._controller,
            lambda image: create_partitions(image, changes, self._defaults),
            validate_only=asked.validate_only,
            tried="add partitions",
            timeout_ms=timeout_ms,
        )
        response = topic_admin_pb2.CreatePartitionsResponse()
        for result in written.answer:
            each = response.results.add(topic=result.topic)
            if result.error is None:
                each.partition_count = result.partition_count
            else:
                fill_error(each.error, result.error)
        return Executed(response=response.SerializeToString(), applied_index=written.index)


def list_topics(image: Image, message: bytes) -> bytes:
    """`ListTopics`, from an image."""
    asked = topic_admin_pb2.ListTopicsRequest.FromString(message)
    most = min(asked.max_topics or LISTED_MAX, LISTED_MAX)
    response = topic_admin_pb2.ListTopicsResponse()
    for name, topic_id in image.topic_ids.items():
        topic = image.topics[topic_id]
        is_hidden = topic.is_internal and not asked.include_internal
        if is_hidden or name <= asked.after_name or not name.startswith(asked.name_prefix):
            continue
        if len(response.topics) == most:
            response.next_after_name = response.topics[-1].name
            break
        response.topics.add(
            name=name,
            topic_id=topic_id,
            partition_count=len(topic.partitions),
            replication_factor=topic.replication_factor,
            is_internal=topic.is_internal,
        )
    return response.SerializeToString()


def _fill_created(
    message: admin_pb2.CreateTopicResult, result: TopicPlan | TidelogError, *, validate_only: bool
) -> None:
    if isinstance(result, TidelogError):
        fill_error(message.error, result)
        return
    message.topic_id = b"" if validate_only else result.topic_id
    message.partition_count = result.partition_count
    message.replication_factor = result.replication_factor


def _fill_deleted(message: topic_admin_pb2.DeleteTopicResult, result: DeletedTopic) -> None:
    message.name = result.name
    message.topic_id = result.topic_id or b""
    if result.error is not None:
        fill_error(message.error, result.error)
