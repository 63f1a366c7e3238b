"""Each request and answer of a transactional producer is lost once: nothing is doubled or torn."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import Clients
from tests.client.support.group_members import clients
from tests.client.test_transactions import failed, make, transfer
from tests.support.waiting import HANG_SECONDS
from tidelog.client import TopicPartition
from tidelog.client.errors import ErrorCode, TransactionError

__all__ = ["clients"]

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        for topic in ("accounts", "in"):
            running.create(topic, 2)
        yield running


class Loser:
    """Breaks the n-th request of one method, before or after it was carried out."""

    def __init__(self, method: str, at: int, when: str) -> None:
        self.method = method
        self.at = at
        self.when = when
        self.seen = Counter[str]()

    def __call__(self, method: str) -> str | None:
        self.seen[method] += 1
        is_it = method == self.method and self.seen[method] == self.at + 1
        return self.when if is_it else None


def play(clients: Clients, server: ContractServer, name: str) -> None:
    """A commit with offsets, an abort, a commit of a token, a commit; no call may fail."""
    with make(clients, server, name) as producer:
        with producer.transaction() as first:
            transfer(producer, 0)
            first.send_offsets({TopicPartition("in", 0): 5}, name)
        with producer.transaction() as second:
            transfer(producer, 1)
            producer.flush()
            second.abort()
        with producer.transaction() as third:
            transfer(producer, 2)
            token = third.prepare()
        producer.complete(str(token))
        with producer.transaction():
            transfer(producer, 3)


METHODS = (
    "GetMetadata",
    "FindCoordinators",
    "InitTransactionalProducer",
    "Produce",
    "SendOffsets",
    "EndTransaction",
    "PrepareTransaction",
    "DecidePrepared",
)
WANTED = sorted(2 * [b"0", b"2", b"3"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_that_is_lost_changes_nothing(
    clients: Clients, server: ContractServer, when: str
) -> None:
    for method in METHODS:
        at = 0
        while True:
            name = f"pay {method} {at}"
            loser = server.lose = Loser(method, at, when)
            play(clients, server, name)
            found = server.transactions.committed("accounts")
            assert sorted(found) == WANTED, f"{method} {at} was lost {when}"
            assert server.groups.committed(name) == {0: 5}, f"{method} {at} was lost {when}"
            for number in (0, 1):
                server.log("accounts", number).batches.clear()
            if loser.seen[method] <= at:
                break
            at += 1
        assert at, f"{method} was never asked for"


def lost(method: str, when: str = "after") -> Callable[[str], str | None]:
    return lambda asked: when if asked == method else None


def test_an_end_whose_answers_are_lost_is_known_before_anything_else_begins(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        transfer(producer, 1)
        server.lose = lost("EndTransaction", "done, unknown")
        error = failed(producer.commit_transaction)
        assert (error.code, error.retriable) == (ErrorCode.UNKNOWN, True)
        assert "may have been committed" in error.happened
        assert failed(producer.begin_transaction).hint.startswith("Commit or abort again")
        assert failed(lambda: transfer(producer, 2)).code is ErrorCode.INVALID_TRANSACTION_STATE
        server.lose = None
        producer.commit_transaction()
        producer.begin_transaction()
        transfer(producer, 3)
        producer.commit_transaction()
    assert server.transactions.committed("accounts") == [b"1", b"3", b"1", b"3"]


def test_an_abort_after_a_commit_of_unknown_outcome_says_how_it_ended(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:
        for when, decided in (("done, unknown", "commit"), ("not done, unknown", None)):
            with producer.transaction() as t:
                transfer(producer, 1)
                server.lose = lost("EndTransaction", when)
                assert failed(t.commit).retriable
                server.lose = None
                if decided is None:
                    t.abort()
                else:
                    assert failed(t.abort).decided == decided
                assert t.is_over
    assert server.transactions.committed("accounts") == [b"1", b"1"]


def no_abort(what: str) -> ErrorCode | None:
    return ErrorCode.PERMISSION_DENIED if what == "end abort" else None


def test_a_block_that_cannot_be_aborted_says_both(clients: Clients, server: ContractServer) -> None:
    with make(clients, server) as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction() as t:
                t.send("accounts", b"1", partition=0)
                producer.flush()
                server.transactions.refuse = no_abort
                raise KeyError("the user's own")

        with pytest.raises(KeyError) as caught:
            run()
        (note,) = caught.value.__notes__
        assert "could not be aborted" in note
        server.transactions.refuse = None
        assert failed(producer.begin_transaction).abort_required
        producer.abort_transaction()
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
    assert server.transactions.committed("accounts") == [b"2"]


def test_a_block_aborts_by_itself_what_could_not_be_committed(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:

        def run() -> None:
            with producer.transaction() as t:
                t.send("accounts", b"1", partition=0).get(HANG_SECONDS)
                server.transactions.time_out("pay")

        assert failed(run).code is ErrorCode.TRANSACTION_ABORTED
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
        error = failed(lambda: t.send("accounts", b"3"))
        assert error.happened == "this one is over"
        assert failed(t.commit).code is ErrorCode.INVALID_TRANSACTION_STATE
    assert server.transactions.committed("accounts") == [b"2"]


def test_a_block_ends_first_what_the_one_before_could_not_abort(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction() as t:
                t.send("accounts", b"1", partition=0).get(HANG_SECONDS)
                server.transactions.refuse = no_abort
                raise KeyError

        with pytest.raises(KeyError):
            run()
        with pytest.raises(TransactionError), producer.transaction():
            """The coordinator is away still."""
        server.transactions.refuse = None
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
    assert server.transactions.committed("accounts") == [b"2"]


def test_a_block_behind_a_commit_of_unknown_outcome_tells_it_apart(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server) as producer:
        producer.init_transactions()

        def run(value: bytes, when: str) -> None:
            with producer.transaction() as t:
                t.send("accounts", value, partition=0).get(HANG_SECONDS)
                server.lose = lost("EndTransaction", when)

        assert failed(lambda: run(b"1", "done, unknown")).retriable
        server.lose = None
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
        assert failed(lambda: run(b"3", "not done, unknown")).retriable
        server.lose = None
        server.transactions.time_out("pay")
        with pytest.raises(TransactionError) as caught, producer.transaction():
            """It turned out to be aborted."""
        assert caught.value.retriable
        with producer.transaction() as t:
            t.send("accounts", b"4", partition=0)
    assert server.transactions.committed("accounts") == [b"1", b"2", b"4"]


def test_a_block_whose_offsets_reach_nobody_aborts_by_itself(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server, max_block_ms=2_000) as producer:

        def run() -> None:
            with producer.transaction() as t:
                t.send("accounts", b"1", partition=0).get(HANG_SECONDS)
                t.send_offsets({TopicPartition("in", 0): 5}, "g", 0.3)

        producer.init_transactions()
        server.groups.is_away = True
        assert failed(run).code is ErrorCode.DEADLINE_EXCEEDED
        server.groups.is_away = False
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
    assert server.transactions.committed("accounts") == [b"2"]
    assert server.groups.committed("g") == {}


def test_a_commit_that_was_never_sent_leaves_nothing_open_behind_its_block(
    clients: Clients, server: ContractServer
) -> None:
    with make(clients, server, max_block_ms=5_000) as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction() as t:
                t.send("accounts", b"1", partition=0)
                server.lose = lost("Produce", "before")

        error = failed(run)
        assert error.code is ErrorCode.DEADLINE_EXCEEDED
        server.lose = None
        with producer.transaction() as t:
            t.send("accounts", b"2", partition=0)
    assert server.transactions.committed("accounts") == [b"2"]


def test_an_exception_aborts_and_goes_on(clients: Clients, server: ContractServer) -> None:
    with make(clients, server) as producer:

        def run(number: int) -> Any:
            with producer.transaction():
                transfer(producer, number)
                if number % 2:
                    raise ZeroDivisionError

        for number in range(4):
            if number % 2:
                with pytest.raises(ZeroDivisionError):
                    run(number)
            else:
                run(number)
    assert server.transactions.committed("accounts") == [b"0", b"2", b"0", b"2"]
