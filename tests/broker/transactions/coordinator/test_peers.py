"""How leaders ask coordinators: found by the image, on this broker or another one."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import cast

import msgspec
import pytest

from tests.broker.support.transaction_glue import AT_OTHER, AT_OWN, OTHER, OWN
from tests.broker.transactions.support.house import identity
from tests.metadata_quorum.controller import clusters
from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.peers import ADD, COUNT, TransactionPeers
from tidelog.broker.services.transactions.wire import identity_message
from tidelog.broker.transactions.coordinator.keeper import TransactionCoordinators
from tidelog.broker.transactions.state.answers import AddPartitionsAnswer, Response
from tidelog.broker.transactions.state.messages import AddPartitions, AnyRequest
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.metadata.image.image import Image
from tidelog.ports import Network, RequestContext, UnaryMethod
from tidelog.ports.request_context import CLUSTER_LISTENER, NO_DEADLINE_NS
from tidelog.v1 import transaction_coordinator_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

BY = identity(5, 3)
KEYS = (AT_OWN, AT_OTHER)
CONTEXT = RequestContext(
    principal="broker-2",
    listener=CLUSTER_LISTENER,
    client_id="",
    address="",
    deadline_ns=NO_DEADLINE_NS,
)


def led_by(broker_id: int) -> Image:
    """One partition of `__transactions`, which holds all ids."""
    replicas = (broker_id, 3 - broker_id)
    return clusters.with_topic(clusters.cluster(2), replicas, name="__transactions", number=9)


class Coordinator:
    """Answers as it is told, or not at all."""

    def __init__(self) -> None:
        self.asked: list[AnyRequest] = []
        self.refusal: TidelogError | None = None
        self.hangs = False

    async def ask(self, request: AnyRequest) -> Response:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        return AddPartitionsAnswer()


class House:
    """Two brokers: a call to the other one comes to that one's methods."""

    def __init__(self) -> None:
        self.image = led_by(OTHER)
        self.coordinators = {OWN: Coordinator(), OTHER: Coordinator()}
        self.prepared: Mapping[str, int] = {"alice": 2}
        self.failure: TidelogError | None = None
        self.brokers = {number: self._broker(number) for number in (OWN, OTHER)}

    def _broker(self, broker_id: BrokerId) -> TransactionPeers:
        calls = PeerCalls(
            cast(Network, self),
            cluster_id="c",
            broker_id=broker_id,
            address_of=lambda number: str(number) if number in (OWN, OTHER) else None,
        )
        return TransactionPeers(
            cast(TransactionCoordinators, Kept(self, broker_id)),
            lambda: self.image,
            calls,
            own_prepared=lambda: self.prepared,
        )

    async def call(self, address: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        if self.failure is not None:
            raise self.failure
        served = self.brokers[BrokerId(int(address))].methods()[method]
        assert isinstance(served, UnaryMethod)
        return await served.handler(CONTEXT, message)

    async def add(
        self, keys: Sequence[PartitionKey] = KEYS, name: str = "t", timeout_ms: int = 5_000
    ) -> ErrorCode | None:
        """As a leader on the first broker asks; the code of the refusal."""
        try:
            await self.brokers[OWN].add_partitions(name, BY, tuple(keys), timeout_ms=timeout_ms)
        except TidelogError as error:
            return error.code
        return None


class Kept(msgspec.Struct):
    """A keeper's one question."""

    house: House
    broker_id: BrokerId

    def of(self, name: str) -> Coordinator:
        """As the image says."""
        place = TRANSACTIONS.place_of(name, self.house.image, CLUSTER_LISTENER)
        if place.broker_id != self.broker_id:
            raise TRANSACTIONS.not_coordinator(AT_OWN)
        return self.house.coordinators[self.broker_id]


def in_house(work: Callable[[House], Coroutine[None, None, None]]) -> None:
    """Run the work."""

    async def run() -> None:
        await work(House())

    asyncio.run(run())


@pytest.mark.parametrize("leader", [OWN, OTHER])
def test_the_coordinator_is_asked_wherever_it_is(leader: BrokerId) -> None:
    async def work(house: House) -> None:
        house.image = led_by(leader)
        assert await house.add() is None
        (asked,) = house.coordinators[leader].asked
        assert asked == AddPartitions(transactional_id="t", identity=BY, keys=KEYS)
        house.coordinators[leader].refusal = TidelogError(
            ErrorCode.TRANSACTION_ABORTED, tried="add", happened="it took too long"
        )
        assert await house.add() is ErrorCode.TRANSACTION_ABORTED, "as the producer is told"

    in_house(work)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.UNKNOWN_BROKER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_PARTITION,
    ],
)
def test_what_only_brokers_can_mend_the_producer_is_told_to_ask_again(code: ErrorCode) -> None:
    async def work(house: House) -> None:
        refusal = TidelogError(code, tried="ask", happened="it is elsewhere")
        house.coordinators[OTHER].refusal = refusal
        assert await house.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        house.coordinators[OTHER].refusal, house.failure = None, refusal
        assert await house.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE

    in_house(work)


@pytest.mark.parametrize("leader", [OWN, OTHER])
def test_a_coordinator_that_does_not_answer_is_waited_for_no_longer_than_asked(
    leader: BrokerId,
) -> None:
    async def work(house: House) -> None:
        house.image = led_by(leader)
        house.coordinators[leader].hangs = True
        assert await house.add(timeout_ms=1) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    in_house(work)


def test_below_the_feature_nobody_is_asked() -> None:
    async def work(house: House) -> None:
        levels = house.image.features.updated({"transaction.version": 1})
        house.image = msgspec.structs.replace(house.image, features=levels)
        assert await house.add() is ErrorCode.NOT_IMPLEMENTED
        assert house.coordinators[OTHER].asked == []

    in_house(work)


def test_each_transaction_of_a_call_is_answered_by_itself_and_in_its_place() -> None:
    async def work(house: House) -> None:
        call = transaction_coordinator_pb2.AddPartitionsRequest(cluster_id="c")
        for name in ("a", "", "b"):
            each = call.transactions.add(transactional_id=name, identity=identity_message(BY))
            each.topics.add(topic_id=AT_OWN.topic_id, partitions=[0])
        data = await house.call(str(OTHER), ADD, call.SerializeToString(), timeout_ms=1)
        results = transaction_coordinator_pb2.AddPartitionsResponse.FromString(data).results
        codes = [each.error.code for each in results]
        assert [each.transactional_id for each in results] == ["a", "", "b"]
        assert codes == [0, ErrorCode.INVALID_ARGUMENT, 0]
        call.transactions[0].ClearField("identity")
        data = await house.call(str(OTHER), ADD, call.SerializeToString(), timeout_ms=1)
        (first, *_) = transaction_coordinator_pb2.AddPartitionsResponse.FromString(data).results
        assert int(first.error.code) == ErrorCode.INVALID_ARGUMENT, "without one it would be 0@0"
        call.transactions.add(transactional_id="a")
        with pytest.raises(TidelogError) as caught:
            await house.call(str(OTHER), ADD, call.SerializeToString(), timeout_ms=1)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT

    in_house(work)


@pytest.mark.parametrize("method", [ADD, COUNT])
def test_another_cluster_s_broker_is_refused(method: str) -> None:
    async def work(house: House) -> None:
        asked = transaction_coordinator_pb2.CountPreparedRequest(cluster_id="d")
        with pytest.raises(TidelogError) as caught:
            await house.call(str(OTHER), method, asked.SerializeToString(), timeout_ms=1)
        assert caught.value.code is ErrorCode.WRONG_CLUSTER

    in_house(work)


def test_what_is_prepared_is_counted_over_the_network() -> None:
    async def work(house: House) -> None:
        assert await house.brokers[OWN].count_prepared(OTHER, timeout_ms=1) == {"alice": 2}

    in_house(work)
