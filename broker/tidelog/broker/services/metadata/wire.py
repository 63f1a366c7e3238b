"""MetadataService: conversions between protobuf and the handlers' Structs."""

from tidelog.broker.services.metadata.handler import (
    ClusterView,
    MetadataHandler,
    MetadataRequest,
    MissingTopic,
)
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.contract.errors import fill_error
from tidelog.contract.isolation import read_isolation
from tidelog.contract.offsets import fill_answer, read_query
from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.ports import RequestContext
from tidelog.v1 import metadata_pb2
from tidelog.wire.refusals import validate_topic_id

NO_CONTROLLER = -1


class MetadataRpc:
    """The service's two methods."""

    def __init__(self, metadata: MetadataHandler, offsets: OffsetsHandler) -> None:
        self._metadata = metadata
        self._offsets = offsets

    async def get_metadata(self, context: RequestContext, message: bytes) -> bytes:
        """`GetMetadata`."""
        asked = metadata_pb2.GetMetadataRequest.FromString(message)
        request = MetadataRequest(
            list(asked.topic_names),
            [validate_topic_id(each, tried="get metadata") for each in asked.topic_ids],
            asked.all_topics,
            asked.allow_auto_create_topics,
        )
        view = await self._metadata.get_metadata(context, request)
        return _view_message(view).SerializeToString()

    async def list_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`ListOffsets`."""
        asked = metadata_pb2.ListOffsetsRequest.FromString(message)
        answers = await self._offsets.list_offsets(
            context,
            [read_query(each) for each in asked.queries],
            read_isolation(asked.isolation_level, tried="list offsets"),
        )
        response = metadata_pb2.ListOffsetsResponse()
        for answer in answers:
            fill_answer(response, answer)
        return response.SerializeToString()


def _view_message(view: ClusterView) -> metadata_pb2.GetMetadataResponse:
    controller_id = NO_CONTROLLER if view.controller_id is None else view.controller_id
    response = metadata_pb2.GetMetadataResponse(
        cluster_id=view.image.cluster_id,
        controller_id=controller_id,
        metadata_version=view.image.version,
    )
    for broker in view.brokers():
        response.brokers.add(
            broker_id=broker.broker_id,
            address=broker.listeners.get(view.listener, ""),
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
    for topic in view.topics:
        _fill_topic(response.topics.add(), topic, view.image)
    return response


def _fill_topic(
    message: metadata_pb2.TopicMetadata, topic: TopicImage | MissingTopic, image: Image
) -> None:
    if isinstance(topic, MissingTopic):
        message.name = topic.name
        message.topic_id = topic.topic_id
        fill_error(message.error, topic.error)
        return
    message.name = topic.name
    message.topic_id = topic.topic_id
    message.is_internal = topic.is_internal
    for partition in topic.partitions:
        message.partitions.add(
            partition=partition.partition,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replicas,
            in_sync_replicas=partition.in_sync_replicas,
            offline_replicas=_offline(partition, image),
            partition_epoch=partition.partition_epoch,
        )


def _offline(partition: PartitionImage, image: Image) -> list[int]:
    return [
        each
        for each in partition.replicas
        if each not in image.brokers or image.brokers[each].is_fenced
    ]
