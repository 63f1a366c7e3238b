"""Transactions through both admin clients: what is asked, asked again, and told."""

import asyncio
import inspect
import time
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from tests.client.support.transaction_server import TransactionServer
from tidelog.client import AdminClient, TopicPartition, TransactionState
from tidelog.client.aio import AsyncAdminClient
from tidelog.client.aio.admin.transactions import AsyncTransactionCalls
from tidelog.client.sync.admin.transactions import TransactionCalls
from tidelog.v1 import transaction_admin_pb2 as pb
from tidelog.v1 import transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LONG_AGO_MS = 1_700_000_000_000


class Both:
    """One of the two clients, called in the same way."""

    def __init__(self, address: str, *, is_async: bool) -> None:
        self._address = address
        self._is_async = is_async

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        if not self._is_async:
            with AdminClient(bootstrap_servers=self._address, retry_backoff_ms=1) as admin:
                return getattr(admin, name)(*arguments, **named)

        async def run() -> Any:
            async with AsyncAdminClient(
                bootstrap_servers=self._address, retry_backoff_ms=1
            ) as admin:
                return await getattr(admin, name)(*arguments, **named)

        return asyncio.run(run())


@pytest.fixture
def server() -> Iterator[TransactionServer]:
    """One id at work, one that is prepared, one that ends, one that is done."""
    with TransactionServer() as started:
        started.create("orders", 2)
        started.create("refunds", 1)
        started.hold(
            "billing", pb.TRANSACTION_STATE_ONGOING, ("refunds", 0), ("orders", 1), ("orders", 0),
            producer_id=7, started_ms=5_000, age_ms=90_000,
        )  # fmt: skip
        started.hold(
            "ledger", pb.TRANSACTION_STATE_PREPARED, ("orders", 0),
            producer_id=8, started_ms=6_000, age_ms=30_000, principal="bank",
        )  # fmt: skip
        started.hold(
            "sink", pb.TRANSACTION_STATE_PREPARE_COMMIT, ("orders", 0), ("orders", 1),
            producer_id=9, started_ms=7_000, age_ms=10, waits_for=[("orders", 1)],
        )  # fmt: skip
        started.hold("till", pb.TRANSACTION_STATE_COMPLETE_COMMIT, producer_id=10)
        yield started


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def admin(server: TransactionServer, request: pytest.FixtureRequest) -> Both:
    return Both(server.address, is_async=request.param)


def test_both_clients_have_the_same_calls() -> None:
    for name, call in inspect.getmembers(TransactionCalls, inspect.isfunction):
        if name.startswith("_") or name not in vars(TransactionCalls):
            continue
        other = getattr(AsyncTransactionCalls, name)
        assert inspect.signature(call) == inspect.signature(other), name
        assert get_type_hints(call) == get_type_hints(other), name


def test_transactions_are_listed_by_id_page_by_page(server: TransactionServer, admin: Both) -> None:
    server.page_max = 1
    billing, ledger, sink, till = admin.call("list_transactions")
    assert (billing.transactional_id, billing.state) == ("billing", TransactionState.ONGOING)
    assert (billing.producer_id, billing.producer_epoch, billing.age_ms) == (7, 3, 90_000)
    assert (ledger.state, sink.state) == (TransactionState.PREPARED, TransactionState.COMMITTING)
    assert (till.state, till.age_ms) == (TransactionState.COMMITTED, None)
    assert len(server.asked) == 4
    (found,) = admin.call("list_transactions", states_filter=[TransactionState.PREPARED])
    assert found.transactional_id == "ledger"
    old = admin.call("list_transactions", older_than_ms=20_000)
    assert [each.transactional_id for each in old] == ["billing", "ledger"]


def test_a_list_that_lacks_somebodys_ids_says_so(server: TransactionServer, admin: Both) -> None:
    server.missing_coordinators = 2
    found = admin.call("try_list_transactions")
    assert (len(found.transactions), found.missing_coordinators) == (4, 2)
    with pytest.raises(TidelogError) as caught:
        admin.call("list_transactions", timeout_ms=2_000)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "2 coordinators" in caught.value.happened
    server.missing_coordinators, server.lists_before_all = 0, 2
    assert len(admin.call("list_transactions")) == 4, "a coordinator that moves is waited for"


def test_a_transaction_is_described_with_its_partitions_and_its_deadline(
    server: TransactionServer, admin: Both
) -> None:
    billing, sink = admin.call("describe_transactions", ["billing", "sink"])
    assert billing.partitions == (ORDERS_0, ORDERS_1, TopicPartition("refunds", 0))
    assert (billing.start_time_ms, billing.deadline_ms) == (5_000, 65_000)
    assert (billing.producer_id, billing.coordinator_id) == (7, 1)
    assert (sink.deadline_ms, sink.waits_for) == (None, (ORDERS_1,))
    (ledger,) = admin.call("describe_transactions", ["ledger"])
    assert (ledger.principal, ledger.deadline_ms) == ("bank", None)


def test_each_id_has_an_outcome_of_its_own(server: TransactionServer, admin: Both) -> None:
    found = admin.call("try_describe_transactions", ["till", "nobody", "billing"])
    assert list(found) == ["till", "nobody", "billing"]
    assert found["till"].start_time_ms is None
    assert found["nobody"].code is ErrorCode.TRANSACTION_NOT_FOUND
    with pytest.raises(TidelogError):
        admin.call("describe_transactions", ["till", "nobody"])
    server.failures = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
    (again,) = admin.call("describe_transactions", ["till"])
    assert again.transactional_id == "till", "a coordinator that is loading is waited for"


def test_a_transaction_is_aborted_once(server: TransactionServer, admin: Both) -> None:
    assert admin.call("abort_transaction", "billing", validate_only=True)
    assert server.held["billing"].state == pb.TRANSACTION_STATE_ONGOING
    assert admin.call("abort_transaction", "billing")
    assert server.held["billing"].state == pb.TRANSACTION_STATE_COMPLETE_ABORT
    assert not admin.call("abort_transaction", "billing")
    with pytest.raises(TidelogError) as caught:
        admin.call("abort_transaction", "nobody")
    assert caught.value.code is ErrorCode.TRANSACTION_NOT_FOUND
    server.failures = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert admin.call("abort_transaction", "ledger"), "who did nothing is asked again"


@pytest.mark.parametrize("decision", ["commit", "abort"])
def test_a_prepared_transaction_is_decided_with_its_token(
    server: TransactionServer, admin: Both, decision: str
) -> None:
    server.failures = []
    admin.call("decide_prepared_transaction", "ledger", decision)
    (asked,) = server.decided
    assert (asked.identity.producer_id, asked.identity.producer_epoch) == (8, 3)
    expected = {
        "commit": transactions_pb2.TRANSACTION_DECISION_COMMIT,
        "abort": transactions_pb2.TRANSACTION_DECISION_ABORT,
    }
    assert asked.decision == expected[decision]
    with pytest.raises(TidelogError) as caught:
        admin.call("decide_prepared_transaction", "billing", decision)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_STATE
    assert "ongoing" in caught.value.happened
    assert len(server.decided) == 1


def test_producers_of_partitions_are_told(server: TransactionServer, admin: Both) -> None:
    server.remember("orders", 0, 7, 40, 1_000)
    server.remember("orders", 0, 8, -1, 2_000)
    found = admin.call("describe_producers", [ORDERS_1, ORDERS_0])
    assert list(found) == [ORDERS_0, ORDERS_1]
    first, second = found[ORDERS_0]
    assert (first.producer_id, first.transaction_start_offset) == (7, 40)
    assert (second.transaction_start_offset, second.coordinator_epoch) == (None, None)
    assert found[ORDERS_1] == ()
    server.failures = [ErrorCode.NOT_LEADER]
    outcomes = admin.call("try_describe_producers", [ORDERS_0])
    assert outcomes[ORDERS_0].code is ErrorCode.NOT_LEADER
    server.failures = [ErrorCode.NOT_LEADER, ErrorCode.NOT_LEADER]
    assert len(admin.call("describe_producers", [ORDERS_0])[ORDERS_0]) == 2
    with pytest.raises(TidelogError):
        admin.call("describe_producers", [TopicPartition("orders", 9)])


def test_what_no_coordinator_knows_hangs(server: TransactionServer, admin: Both) -> None:
    now_ms = int(time.time() * 1000)
    server.remember("orders", 0, 7, 40, LONG_AGO_MS)  # `billing` has it in progress
    server.remember("orders", 0, 10, 44, LONG_AGO_MS)  # of `till`, which is done
    server.remember("orders", 1, 99, 3, LONG_AGO_MS)
    server.remember("refunds", 0, 98, 1, now_ms)  # too young
    server.remember("refunds", 0, 97, -1, LONG_AGO_MS)  # nothing is open
    found = admin.call("find_hanging_transactions")
    assert [(each.partition, each.producer_id) for each in found] == [
        (ORDERS_0, 10),
        (ORDERS_1, 99),
    ]
    assert (found[1].transaction_start_offset, found[1].producer_epoch) == (3, 3)
    (only,) = admin.call("find_hanging_transactions", [ORDERS_1])
    assert only == found[1]
    young = admin.call("find_hanging_transactions", older_than_ms=0)
    assert TopicPartition("refunds", 0) in [each.partition for each in young]
    server.missing_coordinators = 1
    with pytest.raises(TidelogError):
        admin.call("find_hanging_transactions", timeout_ms=2_000)


def test_what_ends_while_the_coordinators_are_asked_does_not_hang(
    server: TransactionServer, admin: Both
) -> None:
    server.remember("orders", 1, 99, 3, LONG_AGO_MS)

    def end() -> None:
        for each in server.producers[server.topics["orders"], 1]:
            each.transaction_start_offset = -1

    server.on_list = end
    assert admin.call("find_hanging_transactions") == []


def test_a_hanging_transaction_is_ended_on_its_partition(
    server: TransactionServer, admin: Both
) -> None:
    server.remember("orders", 1, 99, 3, LONG_AGO_MS)
    (found,) = admin.call("find_hanging_transactions")
    place = (found.partition, found.producer_id, found.transaction_start_offset)
    admin.call("abort_hanging_transaction", *place, validate_only=True)
    assert admin.call("find_hanging_transactions") == [found]
    admin.call("abort_hanging_transaction", *place)
    assert admin.call("find_hanging_transactions") == []
    server.remember("orders", 0, 7, 40, LONG_AGO_MS)
    with pytest.raises(TidelogError) as caught:
        admin.call("abort_hanging_transaction", ORDERS_0, 7, 40)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_STATE
