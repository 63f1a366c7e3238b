"""Transactions on whole nodes of a simulated cluster: a caller that finds coordinators."""

import asyncio

from google.protobuf.message import Message

from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.transactions.state.answers import Identity
from tidelog.v1 import coordinator_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerEpoch, ProducerId

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


def sent(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    """As it is sent."""
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def told(message: transactions_pb2.TransactionalIdentity) -> Identity:
    """As it came."""
    return Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))
