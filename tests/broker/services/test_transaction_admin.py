"""TransactionAdminService: any broker asks all coordinators and leaders; who is missing is told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import pytest

from tidelog.broker.services.shared.peer_calls import PeerCalls
from tidelog.broker.services.transactions.admin.calls import OneCoordinator, TransactionCalls
from tidelog.broker.services.transactions.admin.partitions import ProducerView
from tidelog.broker.services.transactions.admin.peers import ADMINISTER, OperatorPeers
from tidelog.broker.services.transactions.admin.rpc import FoundPlace, TransactionAdminRpc
from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    DescribeTransactionAnswer,
    Identity,
    ListTransactionsAnswer,
    Response,
    TransactionListing,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AnyRequest,
    DescribeTransaction,
    ListTransactions,
)
from tidelog.broker.transactions.state.states import IDLE, TransactionState
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage, TopicImage
from tidelog.metadata.image.map import ImageMap
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Network, RequestContext, UnaryMethod
from tidelog.v1 import transaction_admin_pb2 as pb
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from tidelog.wire.partitioner import coordinator_partition

COORDINATORS: Final = TopicId(b"transactions....")
ORDERS: Final = TopicId(b"orders..........")
BROKERS: Final = (1, 2, 3)
CONTEXT: Final = RequestContext(
    principal="", listener="client", client_id="", address="", deadline_ns=1 << 62
)
OFF: Final = TidelogError(ErrorCode.NOT_IMPLEMENTED, tried="test", happened="transactions are off")


def topic(topic_id: TopicId, name: str, leaders: Sequence[int]) -> TopicImage:
    return TopicImage(
        topic_id=topic_id,
        name=name,
        configuration={},
        is_internal=name.startswith("__"),
        partitions=tuple(
            PartitionImage(
                partition=PartitionId(number),
                leader_id=BrokerId(leader),
                leader_epoch=LeaderEpoch(1),
                partition_epoch=PartitionEpoch(1),
                replicas=(BrokerId(1),),
                in_sync_replicas=(BrokerId(1),),
            )
            for number, leader in enumerate(leaders)
        ),
    )


class Place(msgspec.Struct, frozen=True):
    broker_id: BrokerId


class Kind:
    """As the coordinators' own rule, with `on` for the feature."""

    on = True

    def check_on(self, image: Image, *, tried: str) -> None:
        if not self.on:
            raise OFF

    def topic_in(self, image: Image) -> TopicImage | None:
        return image.topics.get(COORDINATORS)

    def place_of(self, name: str, image: Image, listener: str) -> FoundPlace:
        found = image.topics[COORDINATORS].partitions
        leader = found[coordinator_partition(name, len(found))].leader_id
        if leader == NO_LEADER:
            raise TidelogError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, tried="find", happened="nobody leads it"
            )
        return Place(leader)


class Coordinator:
    """What one coordinator has, by id; counts what it was asked."""

    def __init__(self) -> None:
        self.is_led = True
        self.by_id: dict[str, TransactionListing] = {}
        self.failure: TidelogError | None = None
        self.aborted: list[tuple[str, bool]] = []

    async def ask(self, request: AnyRequest) -> Response:
        if self.failure is not None:
            raise self.failure
        if isinstance(request, ListTransactions):
            return ListTransactionsAnswer(transactions=tuple(self.by_id.values()))
        found = self.by_id.get(request.transactional_id)
        if found is None:
            raise TidelogError(
                ErrorCode.TRANSACTION_NOT_FOUND, tried="find", happened="it is not known"
            )
        if isinstance(request, AbortTransaction):
            self.aborted.append((request.transactional_id, request.validate_only))
            return AbortAnswer(was_aborted=found.state not in IDLE)
        assert isinstance(request, DescribeTransaction)
        return DescribeTransactionAnswer(
            transactional_id=found.transactional_id,
            identity=found.identity,
            state=found.state,
            started_ms=1_000,
            timeout_ms=60_000,
            keys=(PartitionKey(ORDERS, PartitionId(0)), PartitionKey(ORDERS, PartitionId(1))),
            waits_for=(PartitionKey(ORDERS, PartitionId(1)),),
            principal="till",
        )


class Broker:
    """One broker: its coordinators, its partitions, and the service on it."""

    def __init__(self, house: "House", number: int) -> None:
        self._house = house
        self.broker_id = BrokerId(number)
        calls = PeerCalls(
            cast(Network, house),
            cluster_id="c",
            broker_id=self.broker_id,
            address_of=lambda broker_id: f"broker-{broker_id}",
        )
        own = TransactionCalls(self, self, broker_id=self.broker_id)
        self.waited: list[int] = []
        peers = OperatorPeers(own, calls, self.wait_applied, topic_name="__transactions")
        self.methods = peers.methods()
        self.rpc = TransactionAdminRpc(peers, house.kind, cast(ImageSource, house), house.confirm)
        self.producers: dict[PartitionKey, list[ProducerView]] = {}
        self.ended: list[tuple[PartitionKey, int, int, bool]] = []
        self.is_behind = False
        """It does not know yet what it leads."""

    async def wait_applied(self, version: int) -> None:
        self.waited.append(version)

    @property
    def by_partition(self) -> Mapping[PartitionId, OneCoordinator]:
        if self.is_behind:
            return {}
        found = self._house.image().topics[COORDINATORS].partitions
        return {
            each.partition: self._house.coordinators[each.partition]
            for each in found
            if each.leader_id == self.broker_id
        }

    def of(self, transactional_id: str) -> OneCoordinator:
        number = coordinator_partition(transactional_id, len(self._house.coordinators))
        return self._house.coordinators[number]

    async def describe_producers(self, key: PartitionKey) -> Sequence[ProducerView]:
        if key not in self.producers:
            raise TidelogError(ErrorCode.NOT_LEADER, tried="describe", happened="it does not lead")
        return self.producers[key]

    async def abort_hanging(
        self,
        key: PartitionKey,
        producer_id: int,
        transaction_start_offset: int,
        *,
        validate_only: bool,
    ) -> None:
        self.ended.append((key, producer_id, transaction_start_offset, validate_only))


class House:
    """Three brokers; each leads two of the six partitions of `__transactions`."""

    def __init__(self) -> None:
        self.kind = Kind()
        self.coordinators = [Coordinator() for _ in range(6)]
        self.leaders = [1, 2, 3, 1, 2, 3]
        self.dead: set[int] = set()
        self.has_topic = True
        self.brokers = {number: Broker(self, number) for number in BROKERS}
        self.calls = 0
        self.version = 41
        """Of the metadata that the broker knows; the quorum has one more."""

    async def confirm(self, tried: str) -> None:
        """As `Leadership.confirm`."""
        del tried
        self.version = 42

    def image(self) -> Image:
        topics = [topic(ORDERS, "orders", (2, 3, NO_LEADER))]
        if self.has_topic:
            topics.append(topic(COORDINATORS, "__transactions", self.leaders))
        return Image(
            version=self.version, topics=ImageMap.of({each.topic_id: each for each in topics})
        )

    def put(
        self, name: str, state: TransactionState, age_ms: int = -1, producer_id: int = 7
    ) -> Coordinator:
        """An id at its coordinator."""
        coordinator = self.coordinators[coordinator_partition(name, 6)]
        coordinator.by_id[name] = TransactionListing(
            transactional_id=name,
            identity=Identity(ProducerId(producer_id), ProducerEpoch(3)),
            state=state,
            age_ms=age_ms,
        )
        return coordinator

    async def call(self, address: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """The network between them."""
        self.calls += 1
        number = int(address.removeprefix("broker-"))
        if number in self.dead:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="call", happened="it is refused")
        found = self.brokers[number].methods[method]
        assert isinstance(found, UnaryMethod)
        return await found.handler(CONTEXT, message)


@pytest.fixture
def house() -> House:
    return House()


def run(call: Callable[[RequestContext, bytes], Awaitable[bytes]], message: Any) -> bytes:
    async def work() -> bytes:
        return await call(CONTEXT, message.SerializeToString())

    return asyncio.run(work())


def listed(house: House, broker: int = 1, **asked: Any) -> pb.ListTransactionsResponse:
    data = run(house.brokers[broker].rpc.list_transactions, pb.ListTransactionsRequest(**asked))
    return pb.ListTransactionsResponse.FromString(data)


def names(found: pb.ListTransactionsResponse) -> list[str]:
    return [each.transactional_id for each in found.transactions]


def fill(house: House, count: int = 20) -> list[str]:
    every = [f"till-{number:02}" for number in range(count)]
    for number, name in enumerate(every):
        is_open = number % 2 == 0
        state = TransactionState.ONGOING if is_open else TransactionState.EMPTY
        house.put(name, state, age_ms=number * 1_000 if is_open else -1)
    return every


def test_every_broker_lists_the_ids_of_all_coordinators_in_order(house: House) -> None:
    every = fill(house)
    for broker in BROKERS:
        page = listed(house, broker)
        assert names(page) == every
        assert (page.next_after_id, page.missing_coordinators) == ("", 0)
    found = listed(house)
    assert found.transactions[0].identity.producer_id == 7
    assert found.transactions[0].age_ms == 0
    assert found.transactions[1].age_ms == -1


@pytest.mark.parametrize("most", [1, 3, 7, 19, 20, 21])
def test_pages_tell_each_id_once_and_end(house: House, most: int) -> None:
    every = fill(house)
    found: list[str] = []
    after_id = ""
    for _ in range(len(every) + 1):
        page = listed(house, max_transactions=most, after_id=after_id)
        assert len(page.transactions) <= most
        found += names(page)
        after_id = page.next_after_id
        if not after_id:
            break
    assert found == every


def test_states_and_age_filter_before_pages_are_cut(house: House) -> None:
    every = fill(house)
    assert names(listed(house, states=[pb.TRANSACTION_STATE_EMPTY])) == every[1::2]
    old = listed(house, min_age_ms=14_000)
    assert names(old) == ["till-16", "till-18"]
    page = listed(house, states=[pb.TRANSACTION_STATE_ONGOING], max_transactions=2)
    assert names(page) == ["till-00", "till-02"]
    assert page.next_after_id == "till-02"
    with pytest.raises(TidelogError) as caught:
        listed(house, states=[pb.TRANSACTION_STATE_UNSPECIFIED])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_coordinators_that_cannot_be_asked_are_counted(house: House) -> None:
    every = fill(house, 60)
    house.dead.add(2)
    found = listed(house)
    assert found.missing_coordinators == 2
    missing = set(every) - set(names(found))
    assert {coordinator_partition(name, 6) for name in missing} == {1, 4}
    house.dead.clear()
    house.leaders[5] = NO_LEADER
    assert listed(house).missing_coordinators == 1
    house.leaders[5] = 3
    house.coordinators[0].failure = OFF
    assert listed(house, 3).missing_coordinators == 1
    house.coordinators[0].failure = None
    house.coordinators[3].is_led = False
    found = listed(house, 3)
    assert found.missing_coordinators == 1, "a coordinator that was deposed knows nothing"
    assert list(found.answered_coordinators) == [0, 1, 2, 4, 5]


def test_before_the_first_transaction_nothing_is_missing(house: House) -> None:
    house.has_topic = False
    found = listed(house)
    assert names(found) == []
    assert found.missing_coordinators == 0
    (each,) = described(house, "till-00")
    assert each.error.code == int(ErrorCode.TRANSACTION_NOT_FOUND)
    with pytest.raises(TidelogError) as caught:
        abort(house, "till-00")
    assert caught.value.code is ErrorCode.TRANSACTION_NOT_FOUND
    assert house.calls == 0


def described(house: House, *ids: str, broker: int = 1) -> list[pb.TransactionDescription]:
    asked = pb.DescribeTransactionsRequest(transactional_ids=ids)
    data = run(house.brokers[broker].rpc.describe_transactions, asked)
    return list(pb.DescribeTransactionsResponse.FromString(data).transactions)


def test_ids_are_described_in_the_order_of_the_request_each_with_its_own_error(
    house: House,
) -> None:
    every = fill(house)
    house.dead.add(3)
    found = described(house, *reversed(every), "nobody")
    assert [each.transactional_id for each in found] == [*reversed(every), "nobody"]
    for each in found:
        number = coordinator_partition(each.transactional_id, 6)
        if house.leaders[number] == 3:
            assert each.error.code == int(ErrorCode.UNAVAILABLE)
            assert each.coordinator_id == NO_LEADER
        elif each.transactional_id == "nobody":
            assert each.error.code == int(ErrorCode.TRANSACTION_NOT_FOUND)
        else:
            assert not each.HasField("error")
            assert each.coordinator_id == house.leaders[number]
            assert list(each.topics[0].partitions) == [0, 1]
            assert list(each.waits_for[0].partitions) == [1]
            assert (each.start_time_ms, each.timeout_ms, each.principal) == (1_000, 60_000, "till")
    with pytest.raises(TidelogError, match="twice"):
        described(house, "till-00", "till-00")
    with pytest.raises(TidelogError, match="0 bytes"):
        described(house, "")
    with pytest.raises(TidelogError, match="the limit is 1000"):
        described(house, *(f"x{number}" for number in range(1_001)))


def abort(house: House, name: str, broker: int = 1, *, validate_only: bool = False) -> bool:
    asked = pb.AbortTransactionRequest(transactional_id=name, validate_only=validate_only)
    data = run(house.brokers[broker].rpc.abort_transaction, asked)
    return pb.AbortTransactionResponse.FromString(data).was_aborted


@pytest.mark.parametrize("broker", BROKERS)
def test_an_abort_goes_to_the_coordinator_of_the_id_only(house: House, broker: int) -> None:
    coordinator = house.put("till-00", TransactionState.PREPARED, 9)
    assert abort(house, "till-00", broker, validate_only=True)
    assert abort(house, "till-00", broker)
    assert coordinator.aborted == [("till-00", True), ("till-00", False)]
    assert sum(len(each.aborted) for each in house.coordinators) == 2
    house.put("till-00", TransactionState.EMPTY)
    assert not abort(house, "till-00", broker)
    with pytest.raises(TidelogError) as caught:
        abort(house, "nobody", broker)
    assert caught.value.code is ErrorCode.TRANSACTION_NOT_FOUND
    house.leaders = [NO_LEADER] * 6
    with pytest.raises(TidelogError) as caught:
        abort(house, "till-00", broker)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def view(producer_id: int, start_offset: int = -1) -> ProducerView:
    return ProducerView(
        producer_id=producer_id,
        producer_epoch=3,
        last_sequence=9,
        last_timestamp_ms=1_000,
        transaction_start_offset=start_offset,
        coordinator_epoch=2,
    )


def key(number: int) -> PartitionKey:
    return PartitionKey(ORDERS, PartitionId(number))


def producers_of(house: House, *partitions: int, broker: int = 1) -> list[pb.PartitionProducers]:
    asked = pb.DescribeProducersRequest()
    for number in partitions:
        asked.partitions.add(topic_id=ORDERS, partition=number)
    data = run(house.brokers[broker].rpc.describe_producers, asked)
    return list(pb.DescribeProducersResponse.FromString(data).partitions)


@pytest.mark.parametrize("broker", BROKERS)
def test_producers_are_asked_of_the_leaders_of_their_partitions(house: House, broker: int) -> None:
    house.brokers[2].producers[key(0)] = [view(5), view(7, 40)]
    house.brokers[3].producers[key(1)] = []
    found = producers_of(house, 1, 0, 2, 9, broker=broker)
    assert [each.partition.partition for each in found] == [1, 0, 2, 9]
    assert list(found[0].producers) == []
    assert not found[0].HasField("error")
    assert [each.transaction_start_offset for each in found[1].producers] == [-1, 40]
    assert found[1].producers[1].coordinator_epoch == 2
    assert found[2].error.code == int(ErrorCode.NOT_LEADER)
    assert found[3].error.code == int(ErrorCode.UNKNOWN_PARTITION)
    with pytest.raises(TidelogError, match="twice"):
        producers_of(house, 1, 1)


def end_hanging(house: House, partition: int = 0, producer_id: int = 7) -> None:
    asked = pb.AbortHangingTransactionRequest(producer_id=producer_id, transaction_start_offset=40)
    asked.partition.topic_id, asked.partition.partition = ORDERS, partition
    run(house.brokers[1].rpc.abort_hanging_transaction, asked)


@pytest.mark.parametrize("state", [each for each in TransactionState if each not in IDLE])
def test_what_a_coordinator_has_in_progress_does_not_hang(
    house: House, state: TransactionState
) -> None:
    house.put("till-00", state, age_ms=1, producer_id=7)
    with pytest.raises(TidelogError) as caught:
        end_hanging(house)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_STATE
    assert "till-00" in caught.value.happened
    assert house.brokers[2].ended == []


def test_a_hanging_transaction_is_ended_by_the_leader_of_its_partition(house: House) -> None:
    fill(house, 4)  # of producer 7, in progress
    house.put("till-98", TransactionState.EMPTY, producer_id=8)
    end_hanging(house, producer_id=8)
    assert house.brokers[2].ended == [(key(0), 8, 40, False)]
    assert [each.waited[0] for each in house.brokers.values()] == [42, 42, 42], (
        "nobody answers by metadata older than what the quorum had committed"
    )


def test_nothing_is_ended_while_a_coordinator_cannot_be_asked(house: House) -> None:
    house.dead.add(3)
    with pytest.raises(TidelogError) as caught:
        end_hanging(house)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    house.dead.clear()
    house.brokers[3].is_behind = True
    with pytest.raises(TidelogError) as caught:
        end_hanging(house)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    house.brokers[3].is_behind = False
    with pytest.raises(TidelogError) as caught:
        end_hanging(house, partition=2)
    assert caught.value.code is ErrorCode.NOT_LEADER
    assert house.brokers[2].ended == []


def test_with_the_feature_off_transactions_are_not_told(house: House) -> None:
    house.kind.on = False
    for ask in (listed, lambda house: described(house, "a"), lambda house: abort(house, "a")):
        with pytest.raises(TidelogError) as caught:
            ask(house)
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED


def test_brokers_ask_each_other_for_these_methods_only(house: House) -> None:
    from tidelog.v1 import broker_peer_pb2

    for cluster_id, method, code in (
        ("other", "/tidelog.v1.TransactionAdminService/ListTransactions", ErrorCode.WRONG_CLUSTER),
        ("c", "/tidelog.v1.GroupAdminService/ListGroups", ErrorCode.INVALID_ARGUMENT),
    ):
        call = broker_peer_pb2.AdministerTransactionsRequest(cluster_id=cluster_id, method=method)
        with pytest.raises(TidelogError) as caught:
            asyncio.run(
                house.call("broker-1", ADMINISTER, call.SerializeToString(), timeout_ms=1_000)
            )
        assert caught.value.code is code
