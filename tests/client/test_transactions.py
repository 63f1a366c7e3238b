"""What a transactional producer does on both drivers, and what its user is told."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import Clients
from tests.client.support.group_members import clients, refused
from tests.support.waiting import HANG_SECONDS
from tidelog.client import TopicPartition, TransactionToken
from tidelog.client.errors import ErrorCode, TidelogError, TransactionError
from tidelog.wire.batch import read_header

__all__ = ["clients"]

pytestmark = pytest.mark.slow

SHORT = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "linger_ms": 0}


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        for topic in ("accounts", "out"):
            running.create(topic, 2)
        yield running


@pytest.fixture
def producer(clients: Clients, server: ContractServer) -> Iterator[Any]:
    with make(clients, server) as found:
        yield found


def make(clients: Clients, server: ContractServer, name: str | None = "pay", **more: Any) -> Any:
    options = {**SHORT, **more}
    if name is not None:
        options["transactional_id"] = name
    return clients.Producer(bootstrap_servers=server.address, **options)


def transfer(producer: Any, number: int) -> None:
    """A record in each of two partitions: all of it counts, or nothing."""
    for partition in (0, 1):
        producer.send("accounts", b"%d" % number, partition=partition)


def failed(call: Any) -> TransactionError:
    error = refused(call)
    assert isinstance(error, TransactionError), error
    return error


def test_what_is_committed_counts_and_what_is_aborted_does_not(
    producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        transfer(producer, number)
        getattr(producer, f"{end}_transaction")()
    assert server.transactions.committed("accounts") == [b"0", b"2", b"0", b"2"]
    assert server.transactions.asked == ["initialize", "end commit", "end abort", "end commit"]


def test_each_transaction_has_an_identity_whose_sequences_begin_at_0(
    producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        for _ in range(2):
            transfer(producer, number)
            producer.flush()
        producer.commit_transaction()
    headers = [read_header(data) for _, _, data in server.log("accounts").batches]
    epochs = [(header.producer_epoch, header.base_sequence) for header in headers]
    first = epochs[0][0]
    assert epochs == [(first + step, at) for step in range(3) for at in (0, 1)]
    assert all(header.is_transactional for header in headers)
    assert {request.transactional_id for request in server.produce_requests} == {"pay"}
    assert server.ids_given == 0, "no identity but the coordinator's"


def test_an_end_of_nothing_asks_nobody(producer: Any, server: ContractServer) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    assert server.transactions.asked == ["initialize"]


def test_a_batch_waits_until_the_transaction_before_is_finished(
    producer: Any, server: ContractServer
) -> None:
    server.transactions.finishing = 3
    producer.init_transactions()
    for number in range(2):
        producer.begin_transaction()
        transfer(producer, number)
        producer.commit_transaction()
    assert server.transactions.committed("accounts") == [b"0", b"1", b"0", b"1"]


def test_a_record_that_is_refused_for_good_leaves_abort_as_the_only_way(
    producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    server.judge = lambda topic, partition, before: (
        ErrorCode.BATCH_TOO_LARGE if partition == 1 else None
    )
    transfer(producer, 1)
    error = failed(producer.commit_transaction)
    assert (error.code, error.abort_required) == (ErrorCode.BATCH_TOO_LARGE, True)
    assert failed(lambda: transfer(producer, 1)).abort_required, "sending says so at once"
    assert failed(producer.begin_transaction).abort_required
    server.judge = None
    producer.abort_transaction()
    producer.begin_transaction()
    transfer(producer, 2)
    producer.commit_transaction()
    assert server.transactions.committed("accounts") == [b"2", b"2"]


def test_a_timeout_is_an_abort_after_which_the_producer_goes_on(
    producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    transfer(producer, 1)
    producer.flush()
    server.transactions.time_out("pay")
    future = producer.send("accounts", b"late", partition=0)
    error = future.exception(HANG_SECONDS)
    assert (error.code, error.abort_required) == (ErrorCode.TRANSACTION_ABORTED, True)
    assert failed(producer.commit_transaction).code is ErrorCode.TRANSACTION_ABORTED
    producer.abort_transaction()
    producer.begin_transaction()
    transfer(producer, 2)
    producer.commit_transaction()
    assert server.transactions.committed("accounts") == [b"2", b"2"]


def test_a_producer_that_was_fenced_says_so_for_good(producer: Any, server: ContractServer) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    transfer(producer, 1)
    producer.flush()
    server.transactions.take_over("pay")
    error = failed(producer.commit_transaction)
    assert (error.code, error.fatal) == (ErrorCode.FENCED_PRODUCER_EPOCH, True)
    for call in (
        producer.begin_transaction,
        producer.abort_transaction,
        producer.init_transactions,
        lambda: transfer(producer, 2),
    ):
        assert failed(call).fatal
    assert server.transactions.committed("accounts") == []


def test_calls_that_do_not_fit_say_what_helps(producer: Any) -> None:
    first = "Call init_transactions() first, or use `with producer.transaction()`."
    for call in (producer.begin_transaction, producer.commit_transaction):
        assert failed(call).hint == first
    assert failed(lambda: transfer(producer, 1)).hint == first
    producer.init_transactions()
    begin = "Call begin_transaction() first, or use `with producer.transaction()`."
    for call in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.prepare_transaction,
        lambda: transfer(producer, 1),
        lambda: producer.send_batch("accounts", [b"v"]),
        lambda: producer.send_offsets_to_transaction({TopicPartition("accounts", 0): 1}, "g"),
    ):
        error = failed(call)
        assert (error.code, error.hint) == (ErrorCode.INVALID_TRANSACTION_STATE, begin)
        assert (error.retriable, error.abort_required, error.fatal) == (False, False, False)
    producer.begin_transaction()
    assert failed(producer.begin_transaction).hint == "Commit or abort it first."


def test_a_plain_producer_has_no_transactions(clients: Clients, server: ContractServer) -> None:
    with make(clients, server, None) as plain:
        for call in (plain.init_transactions, plain.begin_transaction, plain.transaction):
            assert "has no transactional_id" in failed(call).happened
        plain.send("out", b"plain").get(HANG_SECONDS)
    assert server.transactions.committed("out") == [b"plain"]


def test_a_timeout_beyond_the_limit_of_the_cluster_is_refused(
    clients: Clients, server: ContractServer
) -> None:
    server.transactions.timeout_ms_max = 1_000
    with make(clients, server, transaction_timeout_ms=1_001) as producer:
        assert failed(producer.init_transactions).code is ErrorCode.INVALID_ARGUMENT
    with make(clients, server, transaction_timeout_ms=999) as producer:
        producer.init_transactions()
    assert server.transactions.timeouts_ms == [1_001, 999]


def test_a_closed_producer_aborts_what_it_had_open(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        transfer(producer, 1)
        producer.flush()
    assert server.transactions.asked[-1] == "end abort"
    assert refused(lambda: transfer(producer, 1)).code is ErrorCode.CLOSED


def test_a_prepared_transaction_is_decided_by_its_token_from_anywhere(
    clients: Clients, producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    for number, decide in enumerate(("complete", "abandon", "complete")):
        producer.begin_transaction()
        transfer(producer, number)
        text = str(producer.prepare_transaction())
        assert failed(producer.commit_transaction).hint.startswith("Complete or abandon")
        assert failed(lambda: transfer(producer, 9)).code is ErrorCode.INVALID_TRANSACTION_STATE
        if number == 2:
            getattr(producer, decide)(TransactionToken.parse(text))
        else:
            with make(clients, server, None) as other:
                for _ in range(2):
                    getattr(other, decide)(text)
            getattr(producer, decide)(text)
    assert server.transactions.committed("accounts") == [b"0", b"2", b"0", b"2"]
    unknown = TransactionToken("nobody", 1, 0)
    assert failed(lambda: producer.complete(unknown)).code is ErrorCode.TRANSACTION_NOT_FOUND


@pytest.mark.parametrize(
    "text", ["", "token", "tidelog-transaction/2/1/1/pay", "tidelog-transaction/1/1/99999/pay"]
)
def test_a_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TidelogError) as caught:
        TransactionToken.parse(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["pay", "a/b\nc", "é" * 100])
def test_a_token_is_read_from_its_text(name: str) -> None:
    token = TransactionToken(name, 2**63 - 1, 32_766)
    assert TransactionToken.parse(str(token)) == token


def test_offsets_count_with_the_transaction(producer: Any, server: ContractServer) -> None:
    producer.init_transactions()
    for end, offset in (("abort", 7), ("commit", 5)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("out", 1): offset}, "g")
        getattr(producer, f"{end}_transaction")()
    assert server.groups.committed("g") == {1: 5}


def test_offsets_never_hang_when_the_groups_coordinator_is_gone(
    producer: Any, server: ContractServer
) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    server.groups.is_away = True
    place = {TopicPartition("out", 0): 1}
    error = failed(lambda: producer.send_offsets_to_transaction(place, "g", 0.2))
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    server.groups.is_away = False
    producer.send_offsets_to_transaction(place, "g")
    producer.commit_transaction()
    assert server.groups.committed("g") == {0: 1}


def test_offsets_of_an_unknown_member_leave_abort_as_the_only_way(
    producer: Any, server: ContractServer
) -> None:
    from tidelog.client import ConsumerGroupMetadata

    producer.init_transactions()
    producer.begin_transaction()
    who = ConsumerGroupMetadata("g", 3, "nobody")
    place = {TopicPartition("out", 0): 1}
    error = failed(lambda: producer.send_offsets_to_transaction(place, who))
    assert (error.code, error.abort_required) == (ErrorCode.UNKNOWN_MEMBER, True)
    assert failed(producer.commit_transaction).abort_required
    producer.abort_transaction()


def test_a_closed_producer_refuses_every_call_of_a_transaction(
    clients: Clients, server: ContractServer
) -> None:
    producer = make(clients, server)
    client = producer if clients.driver == "threads" else producer._client
    producer.init_transactions()
    t = producer.transaction()
    producer.close()
    assert client.is_closed
    calls = (
        "init_transactions",
        "begin_transaction",
        "commit_transaction",
        "abort_transaction",
        "prepare_transaction",
        "transaction",
    )
    for name in calls:
        assert refused(getattr(producer, name)).code is ErrorCode.CLOSED, name
    assert refused(t.__enter__).code is ErrorCode.CLOSED
    assert refused(lambda: producer.complete(TransactionToken("pay", 1, 0))).code is (
        ErrorCode.CLOSED
    )
