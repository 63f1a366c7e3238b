"""Between which offsets partitions hold committed records: asked of brokers, this one included.

Owns both ends of `DescribeOwnOffsets`. It stands apart from the calls to coordinators: their
answers hold the lag of groups, and that is found out by asking here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.broker.groups.coordinator.watermarks import OwnOffsets, OwnWatermarks
from tidelog.broker.groups.state.limits import PARTITIONS_PER_GROUP_MAX
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.contract.errors import fill_error, read_error
from tidelog.contract.partitions import by_topic, validate_partitions
from tidelog.ports import Method, RequestContext, UnaryMethod
from tidelog.v1 import broker_peer_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, Offset, PartitionId, PartitionKey, TopicId

DESCRIBE_OFFSETS: Final = "/tidelog.v1.BrokerPeerService/DescribeOwnOffsets"
OFFSETS_TIMEOUT_MS: Final = 3_000
NOT_KNOWN: Final = -1


class PeerOffsets:
    """`offsets` of what a broker leads, and the answer to brokers that ask this one."""

    def __init__(self, watermarks: OwnWatermarks, leadership: Leadership, calls: PeerCalls) -> None:
        self._watermarks = watermarks
        self._leadership = leadership
        self._calls = calls

    def methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {DESCRIBE_OFFSETS: UnaryMethod(self._on_describe_offsets)}

    async def offsets(
        self, broker_id: BrokerId, keys: Sequence[PartitionKey]
    ) -> Mapping[PartitionKey, OwnOffsets | TidelogError]:
        """Between which offsets partitions that the broker leads hold records."""
        if broker_id == self._calls.broker_id:
            await self._leadership.catch_up()
            return self._watermarks.describe(keys)
        request = broker_peer_pb2.DescribeOwnOffsetsRequest(
            cluster_id=self._calls.cluster_id, topics=by_topic(keys)
        )
        data = await self._calls.call(
            broker_id, DESCRIBE_OFFSETS, request.SerializeToString(), OFFSETS_TIMEOUT_MS
        )
        answer = broker_peer_pb2.DescribeOwnOffsetsResponse.FromString(data)
        return {_key_of(each): _read_offsets(each) for each in answer.partitions}

    async def _on_describe_offsets(self, context: RequestContext, message: bytes) -> bytes:
        del context
        asked = broker_peer_pb2.DescribeOwnOffsetsRequest.FromString(message)
        self._calls.check_cluster(asked.cluster_id)
        keys = validate_partitions(
            asked.topics,
            tried="describe the offsets of partitions",
            count_max=PARTITIONS_PER_GROUP_MAX,
        )
        response = broker_peer_pb2.DescribeOwnOffsetsResponse()
        await self._leadership.catch_up()
        for key, found in self._watermarks.describe(keys).items():
            each = response.partitions.add(log_start_offset=NOT_KNOWN, high_watermark=NOT_KNOWN)
            each.partition.topic_id = key.topic_id
            each.partition.partition = key.partition
            if isinstance(found, TidelogError):
                fill_error(each.error, found)
            else:
                each.log_start_offset = found.log_start_offset
                each.high_watermark = found.high_watermark
                each.last_stable_offset = found.last_stable_offset
        return response.SerializeToString()


def _key_of(message: broker_peer_pb2.OwnOffsets) -> PartitionKey:
    return PartitionKey(
        TopicId(message.partition.topic_id), PartitionId(message.partition.partition)
    )


def _read_offsets(message: broker_peer_pb2.OwnOffsets) -> OwnOffsets | TidelogError:
    if message.HasField("error"):
        return read_error(message.error)
    knows_transactions = message.HasField("last_stable_offset")
    return OwnOffsets(
        Offset(message.log_start_offset),
        Offset(message.high_watermark),
        Offset(message.last_stable_offset if knows_transactions else message.high_watermark),
    )
