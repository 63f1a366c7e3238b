"""AdminService, as far as a broker answers it itself: protobuf and the handlers' Structs."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tidelog.broker.replicas.failures import ReplicaFailure
from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.services.metadata.handler import MissingTopic
from tidelog.broker.services.metadata.wire import NO_CONTROLLER
from tidelog.broker.services.topics.handler import AdminHandler
from tidelog.contract.errors import fill_error
from tidelog.metadata.image.image import Image, PartitionImage, TopicImage
from tidelog.ports import RequestContext
from tidelog.v1 import admin_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

NOT_KNOWN_HERE: Final = -1
PARTITIONS_A_TURN: Final = 500


class AdminRpc:
    """The service's methods; `release` is what this node runs."""

    def __init__(self, handler: AdminHandler, *, release: str) -> None:
        self._handler = handler
        self._release = release

    async def describe_topics(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeTopics`."""
        asked = admin_pb2.DescribeTopicsRequest.FromString(message)
        response = admin_pb2.DescribeTopicsResponse()
        failures = self._handler.failures() if asked.with_replica_states else None
        for topic in await self._handler.describe_topics(context, list(asked.topic_names)):
            message_of_topic = response.topics.add(name=topic.name)
            if isinstance(topic, MissingTopic):
                fill_error(message_of_topic.error, topic.error)
                continue
            message_of_topic.topic_id = topic.topic_id
            message_of_topic.is_internal = topic.is_internal
            message_of_topic.replication_factor = topic.replication_factor
            message_of_topic.configuration.update(topic.configuration)
            await self._fill_partitions(message_of_topic, topic, failures)
        return response.SerializeToString()

    async def describe_cluster(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeCluster`."""
        admin_pb2.DescribeClusterRequest.FromString(message)
        view = await self._handler.describe_cluster(context)
        controller_id = NO_CONTROLLER if view.controller_id is None else view.controller_id
        response = admin_pb2.DescribeClusterResponse(
            cluster_id=view.image.cluster_id, controller_id=controller_id, release=self._release
        )
        response.without_controller_ms = self._handler.without_controller_ms()
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
        counts = self._handler.count(view)
        summary = response.partitions
        summary.topic_count = len(view.image.topics)
        summary.partition_count = counts.partitions
        summary.offline_count = counts.offline
        summary.under_replicated_count = counts.under_replicated
        summary.under_min_in_sync_count = counts.under_min_isr
        summary.not_preferred_count = counts.not_preferred
        summary.reassigning_count = counts.reassigning
        return response.SerializeToString()

    async def _fill_partitions(
        self,
        message: admin_pb2.TopicDescription,
        topic: TopicImage,
        failures: Mapping[PartitionKey, ReplicaFailure] | None,
    ) -> None:
        """None: nobody wants to know of single replicas. The loop turns in between."""
        for place, partition in enumerate(topic.partitions):
            each = message.partitions.add(
                partition=partition.partition,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                in_sync_replicas=partition.in_sync_replicas,
                log_start_offset=NOT_KNOWN_HERE,
                high_watermark=NOT_KNOWN_HERE,
                size_bytes=NOT_KNOWN_HERE,
                eligible_replicas=sorted(
                    {*partition.in_sync_replicas, *partition.eligible_replicas}
                ),
            )
            for found in self._handler.ineligible(partition):
                each.ineligible_replicas.add(
                    broker_id=found.broker_id, reason=found.reason, hint=found.hint
                )
            replica = self._handler.replica(topic.topic_id, partition.partition)
            if replica is not None and replica.is_led:
                each.log_start_offset = replica.log.log_start_offset
                each.high_watermark = replica.log.high_watermark
                each.size_bytes = replica.log.size_bytes
            if failures is not None:
                key = PartitionKey(topic.topic_id, partition.partition)
                self._fill_states(each, replica, partition, failures.get(key))
            if place % PARTITIONS_A_TURN == PARTITIONS_A_TURN - 1:
                await asyncio.sleep(0)

    def _fill_states(
        self,
        message: admin_pb2.PartitionDescription,
        replica: Replica | None,
        partition: PartitionImage,
        failure: ReplicaFailure | None,
    ) -> None:
        if replica is None and failure is None:
            return
        states = {self._handler.broker_id: self._own_state(replica, partition, failure)}
        if replica is not None and replica.is_led:
            log = replica.log
            for each in self._handler.followers(log.key):
                states[each.broker_id] = admin_pb2.ReplicaDescription(
                    broker_id=each.broker_id,
                    log_end_offset=each.log_end_offset,
                    flushed_offset=each.flushed_offset,
                    lag=max(0, log.log_end_offset - each.log_end_offset),
                    caught_up_ago_ms=each.caught_up_ago_ms,
                )
        message.replica_states.extend(states[broker_id] for broker_id in sorted(states))

    def _own_state(
        self, replica: Replica | None, partition: PartitionImage, failure: ReplicaFailure | None
    ) -> admin_pb2.ReplicaDescription:
        own = admin_pb2.ReplicaDescription(
            broker_id=self._handler.broker_id,
            log_end_offset=NOT_KNOWN_HERE,
            flushed_offset=NOT_KNOWN_HERE,
            lag=NOT_KNOWN_HERE,
            caught_up_ago_ms=NOT_KNOWN_HERE,
            is_own=True,
        )
        if replica is not None:
            own.log_end_offset = replica.log.log_end_offset
            own.flushed_offset = replica.log.flushed_offset
            own.size_bytes = replica.log.size_bytes
            if partition.leader_id == self._handler.broker_id:
                own.lag = own.caught_up_ago_ms = 0
        if failure is not None:
            error = TidelogError(
                failure.code, tried=failure.tried, happened=failure.happened, hint=failure.hint
            )
            fill_error(own.failure, error)
        return own


def _count_replicas(image: Image) -> tuple[dict[BrokerId, int], dict[BrokerId, int]]:
    leaders: dict[BrokerId, int] = {}
    replicas: dict[BrokerId, int] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            leaders[partition.leader_id] = leaders.get(partition.leader_id, 0) + 1
            for each in partition.replicas:
                replicas[each] = replicas.get(each, 0) + 1
    return leaders, replicas
