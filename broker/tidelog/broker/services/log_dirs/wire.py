"""LogDirService, and what brokers ask each other for it: protobuf and the handler's Structs.

Owns who is asked. Every broker at once, each within a deadline: one that does not answer is told
with its error, and holds up nobody.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tidelog.broker.services.log_dirs.handler import (
    DirectoryView,
    LogDirsHandler,
    Wanted,
    wanted_of,
)
from tidelog.broker.shared.limits import PARTS_PER_REQUEST_MAX
from tidelog.contract.errors import fill_error
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Method, Network, RequestContext, TaskScope, UnaryMethod
from tidelog.v1 import broker_peer_pb2, common_pb2, log_dirs_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import invalid, validate_cluster, validate_topic_id

DESCRIBE_OWN: Final = "/tidelog.v1.BrokerPeerService/DescribeOwnLogDirs"
PEER_TIMEOUT_MS: Final = 3_000
PEERS_AT_ONCE: Final = 32
TRIED: Final = "describe log directories"


class LogDirsRpc:
    """The methods of both services."""

    def __init__(
        self,
        handler: LogDirsHandler,
        metadata: ImageSource,
        network: Network,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        address_of: Callable[[BrokerId], str | None],
    ) -> None:
        self._handler = handler
        self._metadata = metadata
        self._network = network
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._address_of = address_of

    def peer_methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {DESCRIBE_OWN: UnaryMethod(self.describe_own)}

    async def describe_log_dirs(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeLogDirs`."""
        del context
        asked = log_dirs_pb2.DescribeLogDirsRequest.FromString(message)
        wanted = _wanted(asked.topics)
        _refuse_too_many(len(asked.broker_ids), "brokers")
        image = self._metadata.image()
        known = [BrokerId(each) for each in image.brokers]
        brokers = [BrokerId(each) for each in dict.fromkeys(sorted(asked.broker_ids))] or known
        found = [log_dirs_pb2.BrokerLogDirs(broker_id=each) for each in brokers]
        room = asyncio.Semaphore(PEERS_AT_ONCE)
        async with TaskScope() as scope:
            for each in found:
                scope.start(self._fill(each, asked, wanted, room), name="log directories")
        return log_dirs_pb2.DescribeLogDirsResponse(brokers=found).SerializeToString()

    async def describe_own(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeOwnLogDirs`."""
        del context
        asked = broker_peer_pb2.DescribeOwnLogDirsRequest.FromString(message)
        validate_cluster(asked.cluster_id, self._cluster_id, tried=TRIED)
        views = await self._handler.describe(
            _wanted(asked.topics), directories_only=asked.directories_only
        )
        return broker_peer_pb2.DescribeOwnLogDirsResponse(
            directories=[_message(view) for view in views]
        ).SerializeToString()

    async def _fill(
        self,
        found: log_dirs_pb2.BrokerLogDirs,
        asked: log_dirs_pb2.DescribeLogDirsRequest,
        wanted: Wanted,
        room: asyncio.Semaphore,
    ) -> None:
        broker_id = BrokerId(found.broker_id)
        async with room:
            try:
                if broker_id == self._broker_id:
                    views = await self._handler.describe(
                        wanted, directories_only=asked.directories_only
                    )
                    found.directories.extend(_message(view) for view in views)
                else:
                    found.directories.extend(await self._ask(broker_id, asked))
            except TidelogError as error:
                fill_error(found.error, error)

    async def _ask(
        self, broker_id: BrokerId, asked: log_dirs_pb2.DescribeLogDirsRequest
    ) -> Iterable[log_dirs_pb2.LogDir]:
        address = self._address_of(broker_id)
        if address is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_BROKER,
                tried=f"{TRIED} of broker {broker_id}",
                happened="no such broker is registered",
            )
        request = broker_peer_pb2.DescribeOwnLogDirsRequest(
            cluster_id=self._cluster_id,
            topics=asked.topics,
            directories_only=asked.directories_only,
        ).SerializeToString()
        data = await self._network.call(address, DESCRIBE_OWN, request, timeout_ms=PEER_TIMEOUT_MS)
        return broker_peer_pb2.DescribeOwnLogDirsResponse.FromString(data).directories


def _refuse_too_many(count: int, what: str) -> None:
    if count > PARTS_PER_REQUEST_MAX:
        raise invalid(
            TRIED,
            f"{count} {what}, the limit is {PARTS_PER_REQUEST_MAX}",
            "Ask in several requests.",
        )


def _wanted(topics: Sequence[common_pb2.TopicPartitions]) -> Wanted:
    # A topic that is named without partitions is a part as well.
    _refuse_too_many(sum(max(1, len(each.partitions)) for each in topics), "topics and partitions")
    return wanted_of(
        [(validate_topic_id(each.topic_id, tried=TRIED), tuple(each.partitions)) for each in topics]
    )


def _message(view: DirectoryView) -> log_dirs_pb2.LogDir:
    message = log_dirs_pb2.LogDir(
        path=view.path,
        directory_uuid=view.directory_uuid,
        free_bytes=view.free_bytes,
        total_bytes=-1,
    )
    if view.failure is not None:
        fill_error(message.error, view.failure)
    for each in view.replicas:
        replica = message.replicas.add(
            topic_name=each.topic_name,
            size_bytes=each.size_bytes,
            log_end_offset=each.log_end_offset,
            lag=each.lag,
        )
        replica.partition.topic_id = each.topic_id
        replica.partition.partition = each.partition
        if each.failure is not None:
            fill_error(replica.error, each.failure)
    return message
