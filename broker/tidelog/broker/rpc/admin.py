"""AdminService, as far as a broker answers it itself: protobuf and the handlers' Structs."""

from tidelog.broker.handlers.admin import AdminHandler
from tidelog.broker.handlers.metadata import MissingTopic
from tidelog.broker.rpc.errors import fill_error
from tidelog.broker.rpc.metadata import NO_CONTROLLER
from tidelog.metadata_quorum.image import Image, TopicImage
from tidelog.ports import RequestContext
from tidelog.v1 import admin_pb2
from tidelog.wire.ids import BrokerId

NOT_KNOWN_HERE = -1


class AdminRpc:
    """The service's methods; `release` is what this node runs."""

    def __init__(self, handler: AdminHandler, *, release: str) -> None:
        self._handler = handler
        self._release = release

    async def describe_topics(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeTopics`."""
        asked = admin_pb2.DescribeTopicsRequest.FromString(message)
        response = admin_pb2.DescribeTopicsResponse()
        for topic in await self._handler.describe_topics(context, list(asked.topic_names)):
            self._fill_topic(response.topics.add(), topic)
        return response.SerializeToString()

    async def describe_cluster(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeCluster`."""
        admin_pb2.DescribeClusterRequest.FromString(message)
        view = await self._handler.describe_cluster(context)
        controller_id = NO_CONTROLLER if view.controller_id is None else view.controller_id
        response = admin_pb2.DescribeClusterResponse(
            cluster_id=view.image.cluster_id, controller_id=controller_id, release=self._release
        )
        leaders, replicas = _count_replicas(view.image)
        for broker in view.brokers():
            response.brokers.add(
                broker_id=broker.broker_id,
                address=broker.listeners.get(view.listener, ""),
                rack=broker.rack,
                is_fenced=broker.is_fenced,
                leader_count=leaders.get(broker.broker_id, 0),
                replica_count=replicas.get(broker.broker_id, 0),
            )
        return response.SerializeToString()

    def _fill_topic(
        self, message: admin_pb2.TopicDescription, topic: TopicImage | MissingTopic
    ) -> None:
        message.name = topic.name
        if isinstance(topic, MissingTopic):
            fill_error(message.error, topic.error)
            return
        message.topic_id = topic.topic_id
        message.is_internal = topic.is_internal
        message.replication_factor = topic.replication_factor
        message.configuration.update(topic.configuration)
        for partition in topic.partitions:
            each = message.partitions.add(
                partition=partition.partition,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                in_sync_replicas=partition.in_sync_replicas,
                log_start_offset=NOT_KNOWN_HERE,
                high_watermark=NOT_KNOWN_HERE,
                size_bytes=NOT_KNOWN_HERE,
            )
            replica = self._handler.replica(topic.topic_id, partition.partition)
            if replica is not None:
                each.log_start_offset = replica.log.log_start_offset
                each.high_watermark = replica.log.high_watermark
                each.size_bytes = replica.log.size_bytes


def _count_replicas(image: Image) -> tuple[dict[BrokerId, int], dict[BrokerId, int]]:
    leaders: dict[BrokerId, int] = {}
    replicas: dict[BrokerId, int] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            leaders[partition.leader_id] = leaders.get(partition.leader_id, 0) + 1
            for each in partition.replicas:
                replicas[each] = replicas.get(each, 0) + 1
    return leaders, replicas
