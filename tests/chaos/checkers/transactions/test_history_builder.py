"""The builder writes down what processes did, and refuses what no client can have done."""

import msgspec
import pytest

from tidelog.chaos.checkers.transactions import (
    HistoryBuilder,
    HistoryFull,
    PollOperation,
    SendOperation,
    TransactionHistory,
    TransactionOutcome,
)


@pytest.fixture
def builder() -> HistoryBuilder:
    return HistoryBuilder()


def test_a_transaction_holds_its_operations_in_the_order_of_their_calls(
    builder: HistoryBuilder,
) -> None:
    builder.begin("p", at_ns=1)
    builder.send("p", "x-0", "a", at_ns=2)
    builder.send("p", "x-1", "b", at_ns=3)
    builder.acknowledge("p", "b", offset=7, at_ns=4)
    builder.poll("p", {"x-0": [(5, "c")], "x-1": []}, began_ns=5, ended_ns=6)
    builder.commit("p", at_ns=7)
    builder.end("p", TransactionOutcome.COMMITTED, at_ns=8)
    (transaction,) = builder.build(at_ns=9).transactions
    assert transaction.operations == (
        SendOperation(partition="x-0", value="a", began_ns=2, ended_ns=8),
        SendOperation(partition="x-1", value="b", began_ns=3, ended_ns=4, offset=7),
        PollOperation(began_ns=5, ended_ns=6, records=(("x-0", ((5, "c"),)),)),
    )
    assert (transaction.began_ns, transaction.deciding_ns, transaction.ended_ns) == (1, 7, 8)
    assert transaction.may_commit


def test_what_has_not_ended_has_an_unknown_outcome(builder: HistoryBuilder) -> None:
    builder.begin("p", at_ns=1)
    builder.send("q", "x-0", "a", at_ns=2)
    outcomes = [each.outcome for each in builder.build(at_ns=3).transactions]
    assert outcomes == [TransactionOutcome.UNKNOWN, TransactionOutcome.UNKNOWN]


def test_what_never_asked_for_its_commit_cannot_commit(builder: HistoryBuilder) -> None:
    builder.begin("p", at_ns=1)
    builder.begin("q", at_ns=1)
    builder.commit("q", at_ns=2)
    may_commit = {each.process: each.may_commit for each in builder.build(at_ns=3).transactions}
    assert may_commit == {"p": False, "q": True}


def test_plain_sends_of_one_process_may_overlap(builder: HistoryBuilder) -> None:
    builder.send("p", "x-0", "a", at_ns=1)
    builder.send("p", "x-0", "b", at_ns=2)
    builder.acknowledge("p", "b", offset=1, at_ns=3)
    builder.give_up("a", TransactionOutcome.UNKNOWN, at_ns=4)
    sent = [
        (next(each.sends()).value, each.outcome) for each in builder.build(at_ns=5).transactions
    ]
    assert sent == [("b", TransactionOutcome.COMMITTED), ("a", TransactionOutcome.UNKNOWN)]


def test_a_value_is_sent_once_in_a_history(builder: HistoryBuilder) -> None:
    builder.send("p", "x-0", "a", at_ns=1)
    with pytest.raises(AssertionError, match="sent twice"):
        builder.send("q", "x-1", "a", at_ns=2)


def test_a_process_has_one_open_transaction(builder: HistoryBuilder) -> None:
    builder.begin("p", at_ns=1)
    with pytest.raises(AssertionError, match="open transaction already"):
        builder.begin("p", at_ns=2)


def test_the_time_of_a_process_never_goes_back(builder: HistoryBuilder) -> None:
    builder.begin("p", at_ns=5)
    with pytest.raises(AssertionError, match="goes back"):
        builder.send("p", "x-0", "a", at_ns=4)


def test_only_what_asked_for_its_commit_is_told_that_it_committed(
    builder: HistoryBuilder,
) -> None:
    builder.begin("p", at_ns=1)
    builder.abort("p", at_ns=2)
    with pytest.raises(AssertionError, match="never asked"):
        builder.end("p", TransactionOutcome.COMMITTED, at_ns=3)


def test_a_history_that_is_too_long_is_refused() -> None:
    builder = HistoryBuilder(operations_max=1)
    builder.send("p", "x-0", "a", at_ns=1)
    with pytest.raises(HistoryFull, match="at most 1 operations"):
        builder.send("p", "x-0", "b", at_ns=2)


def test_a_history_survives_its_way_through_a_file(builder: HistoryBuilder) -> None:
    builder.assign("p", {"x-0": 3}, at_ns=1)
    builder.begin("p", at_ns=2)
    builder.send("p", "x-0", "a", at_ns=3)
    builder.poll("p", {"x-0": [(3, "b")]}, began_ns=4, ended_ns=5, ends={"x-0": 4})
    built = builder.build(at_ns=6)
    encoded = msgspec.json.encode(built)
    assert msgspec.json.decode(encoded, type=TransactionHistory) == built
