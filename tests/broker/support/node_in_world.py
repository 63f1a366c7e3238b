"""A whole node on simulated ports, and a plain client that speaks the contract to it."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.chaos.sim import SimulatedPorts
from tidelog.chaos.sim.ports.network import SimulatedNetwork
from tidelog.ports import AllowAll, Authorizer, Disk
from tidelog.server.node.node import Node, NodePorts
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.loading import load
from tidelog.server.storage.format import is_formatted
from tidelog.server.storage.formatting import FormatOptions, format_disks
from tidelog.v1 import admin_pb2, fetch_pb2, metadata_pb2, produce_pb2
from tidelog.wire.batch import decode_batch, encode_batch, iterate_headers, read_header, route_sum
from tidelog.wire.ids import TopicId

ADDRESS: Final = "node:9192"
CLUSTER_ADDRESS: Final = "node:9193"
CALL_MS: Final = 60_000


def configuration(**settings: str) -> NodeConfiguration:
    """Settings with `__` for the dot."""
    flags = {name.replace("__", "."): value for name, value in settings.items()}
    known = {
        "listeners.client.bind": ADDRESS,
        "listeners.cluster.bind": CLUSTER_ADDRESS,
        "allow_plaintext": "true",
    }
    return load(flags={**known, **flags})


class NodeLife:
    """Starts a node as the main coroutine of a simulated process."""

    def __init__(
        self, settings: NodeConfiguration | None = None, authorizer: Authorizer | None = None
    ) -> None:
        self.settings = settings or configuration()
        self.authorizer = authorizer or AllowAll()
        self.node: Node | None = None

    async def live(self, ports: SimulatedPorts) -> None:
        """The process."""
        node_ports = await formatted(
            ports, ports.open_disk(), ports.open_disk("quorum"), self.authorizer
        )
        self.node = Node(self.settings, node_ports)
        await self.node.run(lambda ready: None)


async def formatted(
    ports: SimulatedPorts, disk: Disk, quorum_disk: Disk, authorizer: Authorizer | None = None
) -> NodePorts:
    """Ports of a node whose directories are formatted, now or before, for a quorum of its own."""
    node_ports = NodePorts(
        clock=ports.clock,
        random=ports.random,
        disk=disk,
        quorum_disk=quorum_disk,
        worker=ports.worker,
        sealer=ports.sealer,
        network=ports.network,
        host=ports.host,
        authorizer=authorizer or AllowAll(),
    )
    if not await is_formatted(disk):
        options = FormatOptions(data_dir="", node_id=1, standalone_address=CLUSTER_ADDRESS)
        await format_disks(disk, quorum_disk, ports.random, options)
    return node_ports


def sealed(values: Sequence[bytes], timestamp_ms: int = 1) -> bytes:
    """A batch of keyless records."""
    return encode_batch(
        [(timestamp_ms + place, None, value, ()) for place, value in enumerate(values)]
    )


def partition_batch(topic_id: bytes, partition: int, batch: bytes) -> produce_pb2.PartitionBatch:
    """A batch with its route sum."""
    return produce_pb2.PartitionBatch(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=-1,
        batch=batch,
        route_sum=route_sum(TopicId(topic_id), partition, read_header(batch).crc),
    )


class PlainClient:
    """Calls by bytes, as any client does."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network

    async def call(self, method: str, message: bytes) -> bytes:
        """One unary call."""
        return await self.network.call(
            ADDRESS, f"/tidelog.v1.{method}", message, timeout_ms=CALL_MS
        )

    async def create_topic(
        self, name: str, partition_count: int = 1, settings: Mapping[str, str] | None = None
    ) -> bytes:
        """The new topic's id."""
        new = admin_pb2.NewTopic(name=name, partition_count=partition_count, configuration=settings)
        request = admin_pb2.CreateTopicsRequest(topics=[new])
        answer = await self.call("AdminService/CreateTopics", request.SerializeToString())
        result = admin_pb2.CreateTopicsResponse.FromString(answer).results[0]
        assert not result.HasField("error"), result
        return result.topic_id

    async def topic_id(self, name: str) -> bytes:
        """The id of an existing topic."""
        request = metadata_pb2.GetMetadataRequest(topic_names=[name])
        answer = await self.call("MetadataService/GetMetadata", request.SerializeToString())
        return metadata_pb2.GetMetadataResponse.FromString(answer).topics[0].topic_id

    async def produce(
        self,
        *batches: produce_pb2.PartitionBatch,
        acks: produce_pb2.Acks.ValueType = produce_pb2.ACKS_ALL,
        timeout_ms: int = 0,
    ) -> list[produce_pb2.PartitionAcknowledgement]:
        """What became of each batch."""
        request = produce_pb2.ProduceRequest(batches=batches, acks=acks, timeout_ms=timeout_ms)
        answer = await self.call("ProduceService/Produce", request.SerializeToString())
        return list(produce_pb2.ProduceResponse.FromString(answer).acknowledgements)

    async def fetch(
        self, topic_id: bytes, partition: int, offset: int, *, max_bytes: int = 0, wait_ms: int = 0
    ) -> fetch_pb2.PartitionBatches | None:
        """What one partition answers; None without news."""
        request = fetch_pb2.FetchRequest(
            positions=[position(topic_id, partition, offset, max_bytes)], max_wait_ms=wait_ms
        )
        answer = await self.call("FetchService/Fetch", request.SerializeToString())
        partitions = fetch_pb2.FetchResponse.FromString(answer).partitions
        return partitions[0] if partitions else None

    async def read_all(self, topic_id: bytes, partition: int = 0) -> list[tuple[int, bytes]]:
        """Offset and value of every committed record."""
        found: list[tuple[int, bytes]] = []
        offset = 0
        while (answer := await self.fetch(topic_id, partition, offset)) is not None:
            assert not answer.HasField("error"), answer.error
            records = values_of(answer.batches)
            found += [record for record in records if record[0] >= offset]
            offset = found[-1][0] + 1
        return found


def position(
    topic_id: bytes, partition: int, offset: int, max_bytes: int = 0
) -> fetch_pb2.FetchPosition:
    """Where to read, with nothing checked."""
    return fetch_pb2.FetchPosition(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        max_bytes=max_bytes,
    )


def values_of(data: bytes) -> list[tuple[int, bytes]]:
    """Offset and value of every record in whole batches."""
    return [
        (record[0], record[4] or b"")
        for place, _ in iterate_headers(data)
        for record in decode_batch(data, place)
    ]
