"""Transactions on whole nodes of a simulated cluster: a caller that finds coordinators."""

import asyncio
import contextlib

from google.protobuf.message import Message

from tests.broker.support.node_in_world import partition_batch
from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.transactions.state.answers import Identity
from tidelog.chaos.sim.ports.clock import WALL_START_MS
from tidelog.v1 import (
    admin_pb2,
    coordinator_pb2,
    fetch_pb2,
    metadata_pb2,
    produce_pb2,
    transactions_pb2,
)
from tidelog.wire.batch import encode_batch, iterate_headers
from tidelog.wire.batch.marker import read_marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

COMMIT = transactions_pb2.TRANSACTION_DECISION_COMMIT
ABORT = transactions_pb2.TRANSACTION_DECISION_ABORT
TRIES = 400
CALL_S = 5.0


async def find(
    cluster: Cluster, number: int, *names: str
) -> list[coordinator_pb2.CoordinatorPlace]:
    """What that broker says."""
    request = coordinator_pb2.FindCoordinatorsRequest(
        kind=coordinator_pb2.COORDINATOR_KIND_TRANSACTION, keys=names
    )
    data = await cluster.call(
        number, "CoordinatorService/FindCoordinators", request.SerializeToString(), CALL_S
    )
    return list(coordinator_pb2.FindCoordinatorsResponse.FromString(data).coordinators)


class Transactions:
    """A producer's calls to coordinators, repeated where that is safe."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def living(self) -> list[int]:
        """Nodes whose process runs."""
        return [number for number, node in self.cluster.nodes.items() if node.node is not None]

    async def coordinator(self, name: str) -> int:
        """The broker that coordinates the id; waits until there is one."""
        for attempt in range(TRIES):
            living = self.living()
            try:
                (place,) = await find(self.cluster, living[attempt % len(living)], name)
            except TidelogError as error:
                if not error.retriable:
                    raise
            else:
                if not place.HasField("error") and place.broker_id in living:
                    return place.broker_id
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody coordinates {name}")

    async def call(self, name: str, method: str, request: Message) -> bytes:
        """At the coordinator, again and again while that is safe and it is elsewhere."""
        for _ in range(TRIES):
            number = await self.coordinator(name)
            try:
                return await self.call_at(number, method, request)
            except TidelogError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(0.1)
        raise AssertionError(f"{method} of {name} is never answered")

    async def call_at(self, number: int, method: str, request: Message) -> bytes:
        """Once, at that broker."""
        method = f"TransactionService/{method}"
        return await self.cluster.call(number, method, request.SerializeToString(), CALL_S)

    async def init(
        self, name: str, *, expected: Identity | None = None, timeout_ms: int = 0
    ) -> Identity:
        """Take the id over."""
        request = transactions_pb2.InitTransactionalProducerRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms
        )
        if expected is not None:
            request.expected.CopyFrom(sent(expected))
        data = await self.call(name, "InitTransactionalProducer", request)
        return told(transactions_pb2.InitTransactionalProducerResponse.FromString(data).identity)

    async def end(
        self,
        name: str,
        identity: Identity,
        decision: transactions_pb2.TransactionDecision.ValueType = COMMIT,
    ) -> Identity:
        """Decide; the identity to go on with."""
        request = transactions_pb2.EndTransactionRequest(
            transactional_id=name, identity=sent(identity), decision=decision
        )
        data = await self.call(name, "EndTransaction", request)
        return told(transactions_pb2.EndTransactionResponse.FromString(data).identity)

    async def prepare(self, name: str, identity: Identity) -> None:
        """The first half; once, at the coordinator."""
        request = transactions_pb2.PrepareTransactionRequest(
            transactional_id=name, identity=sent(identity)
        )
        await self.call_at(await self.coordinator(name), "PrepareTransaction", request)

    async def decide(
        self,
        name: str,
        identity: Identity,
        decision: transactions_pb2.TransactionDecision.ValueType = COMMIT,
    ) -> None:
        """The second half."""
        request = transactions_pb2.DecidePreparedRequest(
            transactional_id=name, identity=sent(identity), decision=decision
        )
        await self.call(name, "DecidePrepared", request)

    async def code_of_end(
        self,
        name: str,
        identity: Identity,
        decision: transactions_pb2.TransactionDecision.ValueType = COMMIT,
    ) -> ErrorCode:
        """Of the refusal."""
        try:
            await self.end(name, identity, decision)
        except TidelogError as error:
            return error.code
        raise AssertionError("it was not refused")

    async def topic(self, name: str, partitions: int, *, replicas: int = 1) -> bytes:
        """A new topic's id."""
        new = admin_pb2.NewTopic(name=name, partition_count=partitions, replication_factor=replicas)
        request = admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString()
        data = await self.cluster.call(self.living()[0], "AdminService/CreateTopics", request)
        (made,) = admin_pb2.CreateTopicsResponse.FromString(data).results
        assert not made.HasField("error"), made
        return made.topic_id

    async def leader(self, name: str, partition: int) -> int:
        """Who leads it; waits until somebody does who lives."""
        asked = metadata_pb2.GetMetadataRequest(topic_names=[name]).SerializeToString()
        for attempt in range(TRIES):
            living = self.living()
            try:
                data = await self.cluster.call(
                    living[attempt % len(living)], "MetadataService/GetMetadata", asked, CALL_S
                )
            except TidelogError:
                await asyncio.sleep(0.1)
                continue
            (topic,) = metadata_pb2.GetMetadataResponse.FromString(data).topics
            leader_id = topic.partitions[partition].leader_id
            if leader_id in living:
                return leader_id
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody leads {name}-{partition}")

    async def produce(
        self,
        name: str,
        identity: Identity,
        at: tuple[str, int],
        *,
        topic_id: bytes,
        sequence: int = 0,
    ) -> ErrorCode | None:
        """One record of a transaction, again and again while that is safe; the refusal's code."""
        batch = encode_batch(
            [(WALL_START_MS, b"k", b"%d" % sequence, ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_pb2.ProduceRequest(acks=produce_pb2.ACKS_ALL, transactional_id=name)
        request.batches.append(partition_batch(topic_id, at[1], batch))
        for _ in range(TRIES):
            number = await self.leader(*at)
            try:
                data = await self.cluster.call(
                    number, "ProduceService/Produce", request.SerializeToString(), CALL_S
                )
            except TidelogError as error:
                if not error.retriable:
                    raise
            else:
                (answer,) = produce_pb2.ProduceResponse.FromString(data).acknowledgements
                if not answer.HasField("error"):
                    return None
                if not answer.error.retriable:
                    return ErrorCode(answer.error.code)
            await asyncio.sleep(0.1)
        raise AssertionError(f"a record for {at} is never acknowledged")

    async def log(self, topic_id: bytes, at: tuple[str, int]) -> list[str]:
        """The leader's log in words: `data 5@0`, `commit 5@1`."""
        found: list[str] = []
        offset = 0
        while data := await self._batches(topic_id, at, offset):
            for position, header in iterate_headers(data):
                word = "data"
                if header.is_control:
                    word = read_marker(data, header, position).type.name.lower()
                found.append(f"{word} {header.producer_id}@{header.producer_epoch}")
                offset = header.base_offset + header.last_offset_delta + 1
        return found

    async def _batches(self, topic_id: bytes, at: tuple[str, int], offset: int) -> bytes:
        position = fetch_pb2.FetchPosition(
            topic_id=topic_id,
            partition=at[1],
            leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
        )
        request = fetch_pb2.FetchRequest(positions=[position]).SerializeToString()
        why = ""
        for _ in range(TRIES):
            number = await self.leader(*at)
            try:
                data = await self.cluster.call(number, "FetchService/Fetch", request, CALL_S)
            except TidelogError as error:
                why = str(error)
                await asyncio.sleep(0.1)
                continue
            answer = fetch_pb2.FetchResponse.FromString(data).partitions
            if not answer:
                return b""
            if not answer[0].HasField("error"):
                return answer[0].batches
            why = str(answer[0].error)
            await asyncio.sleep(0.1)
        raise AssertionError(f"{at} cannot be read: {why}")

    async def stable(self, topic_id: bytes, at: tuple[str, int]) -> tuple[int, int]:
        """Up to where readers of committed records read at its leader, and all others."""
        node = self.cluster.nodes[await self.leader(*at)].node
        assert node is not None
        replicas = node.view().replicas
        assert replicas is not None
        log = replicas.find(
            TopicId(topic_id), PartitionId(at[1]), NO_LEADER_EPOCH, tried="look at it"
        ).log
        return log.last_stable_offset, log.high_watermark

    async def wait_stable(self, topic_id: bytes, at: tuple[str, int]) -> None:
        """Until no transaction is open there."""
        found = (0, -1)
        for _ in range(TRIES):
            with contextlib.suppress(TidelogError, AssertionError):
                found = await self.stable(topic_id, at)
                if found[0] == found[1] > 0:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{at} stands still at {found}")


def sent(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    """As it is sent."""
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def told(message: transactions_pb2.TransactionalIdentity) -> Identity:
    """As it came."""
    return Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))
