"""The list of invariants sees what it is there to see."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.broker.transactions.support.house import House, identity
from tests.broker.transactions.support.requests import A0, B0, add, begun, commit, init, prepare
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    EndAnswer,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.invariants import TransactionView, check, check_step
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.states import Succession, TransactionState
from tidelog.broker.transactions.state.transaction import (
    NEVER_MS,
    Transaction,
    keys_of,
    touched_topics,
)
from tidelog.wire.ids import ProducerId

ABORTING = TransactionState.PREPARE_ABORT


def ending() -> House:
    """A house whose id `t` is decided, and whose leaders have not answered."""
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    house.ask(commit(by), EndAnswer)
    return house


def ongoing() -> House:
    house = House()
    begun(house)
    return house


def standing() -> House:
    house = House()
    house.ask(prepare(begun(house)), PrepareAnswer)
    return house


def _set(transaction: Transaction, value: TransactionValue) -> None:
    transaction.value = value
    transaction.keys = keys_of(value.topics)


def _no_deadline(each: Transaction) -> None:
    each.due_ms = NEVER_MS


def _markers_lost(each: Transaction) -> None:
    assert each.markers is not None
    each.markers.sent.clear()
    each.markers.unanswered.clear()


def _all_there(each: Transaction) -> None:
    assert each.markers is not None
    _markers_lost(each)
    each.markers.waiting.clear()


def _changed(**fields: object) -> Callable[[Transaction], None]:
    return lambda each: _set(each, replace(each.value, **fields))


@pytest.mark.parametrize(
    ("house", "break_it", "complaint"),
    [
        (ongoing, _changed(current=identity(1_000, 32_767)), "no epoch to work with"),
        (ongoing, _changed(next_producer_id=ProducerId(5)), "a next producer id"),
        (ongoing, _changed(topics=()), "touches nothing"),
        (ongoing, _changed(started_ms=-1), "started"),
        (ongoing, _changed(state=TransactionState.EMPTY, started_ms=-1), "touches something"),
        (ongoing, _changed(succession=Succession.TIMED_OUT), "no last one"),
        (ongoing, _changed(principal="alice"), "prepared by"),
        (ongoing, _changed(timeout_ms=0), "no timeout"),
        (ongoing, _no_deadline, "never times out"),
        (standing, _changed(principal=""), "prepared by"),
        (ending, _changed(current=identity(1_000, 2)), "after"),
        (ending, _changed(current=identity(1_001, 1)), "another producer id"),
        (ending, _changed(next_producer_id=ProducerId(5)), "rotation"),
        (ending, _changed(last=None, succession=Succession.NONE), "nobody's"),
        (ending, _markers_lost, "nobody sends"),
        (ending, _all_there, "not complete"),
    ],
)
def test_the_invariants_see_a_state_that_cannot_be(
    house: Callable[[], House], break_it: Callable[[Transaction], None], complaint: str
) -> None:
    transactions = house().core.transactions
    check(transactions)
    break_it(transactions.by_id["t"])
    with pytest.raises(AssertionError, match=complaint):
        check(transactions)


def test_the_invariants_see_a_producer_id_of_two_owners_and_a_wrong_count() -> None:
    house = ongoing()
    house.ask(init(name="u"), InitAnswer)
    transactions = house.core.transactions
    other = transactions.by_id["u"]
    _set(other, replace(other.value, current=identity(1_000, 9)))
    with pytest.raises(AssertionError, match="belongs to `t` and `u`"):
        check(transactions)
    house = standing()
    house.core.transactions.prepared.clear()
    with pytest.raises(AssertionError, match="alice"):
        check(house.core.transactions)


@pytest.mark.parametrize(
    ("before", "fields", "complaint"),
    [
        (ending, {"state": ABORTING}, "the decision changed|not in the table"),
        (ending, {"state": TransactionState.ONGOING}, "not in the table"),
        (
            ending,
            {"state": TransactionState.COMPLETE_COMMIT, "current": identity(1_000, 2)},
            "instead of",
        ),
        (ongoing, {"topics": touched_topics([B0])}, "forgets what it touches"),
        (ongoing, {"current": identity(1_000, 1)}, "another epoch within"),
        (ongoing, {"current": identity(1_005, 0)}, "while in progress"),
        (ongoing, {"state": ABORTING, "current": identity(1_000, 2)}, "epochs at once"),
        (
            ongoing,
            {
                "state": ABORTING,
                "current": identity(1_000, 1),
                "topics": touched_topics([A0, B0]),
            },
            "did not touch",
        ),
        (standing, {"state": TransactionState.ONGOING}, "not in the table"),
        (standing, {"state": TransactionState.EMPTY}, "not in the table"),
    ],
)
def test_the_invariants_see_a_step_that_must_not_be(
    before: Callable[[], House], fields: dict[str, object], complaint: str
) -> None:
    old = before().value("t")
    new = replace(old, **fields)
    with pytest.raises(AssertionError, match=complaint):
        check_step(TransactionView({"t": old}), TransactionView({"t": new}))


def test_the_invariants_see_that_an_open_transaction_is_forgotten_or_rotates_too_soon() -> None:
    house = ongoing()
    old = house.value("t")
    with pytest.raises(AssertionError, match="was forgotten while ONGOING"):
        check_step(TransactionView({"t": old}), TransactionView({}))
    house = House()
    house.ask(init(), InitAnswer)
    idle = house.value("t")
    rotated = replace(idle, current=identity(1_005, 0))
    with pytest.raises(AssertionError, match="rotated before its time"):
        check_step(TransactionView({"t": idle}), TransactionView({"t": rotated}))
    check_step(TransactionView({"t": idle}), TransactionView({}))
    house.ask(add(idle.current), AddPartitionsAnswer)
