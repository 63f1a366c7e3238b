"""Money is neither made nor lost at any read, and a reader that is not there yet accuses nobody."""

import pytest

from tests.chaos.support.transaction_model import TransactionModel
from tests.chaos.support.transaction_mutations import tear_a_transaction
from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import TransactionHistory, check_bank
from tidelog.chaos.sim.base.seeds import SeededRandom

SEEDS = range(60)


def amount_of(value: str) -> int | None:
    """Values of transfers end with what they move."""
    _, is_leg, amount = value.partition(":")
    return int(amount) if is_leg else None


@pytest.fixture
def script() -> TransactionScript:
    return TransactionScript()


def told(script: TransactionScript) -> list[str]:
    return [str(anomaly) for anomaly in check_bank(script.history(), amount_of)]


def test_a_whole_transfer_adds_up(script: TransactionScript) -> None:
    script.write("p1", ("x", "a:-5", 0), ("y", "b:5", 0))
    script.poll("reader", x=[(0, "a:-5")], y=[(0, "b:5")])
    assert told(script) == []


def test_a_leg_that_the_reader_has_not_come_to_is_counted(script: TransactionScript) -> None:
    script.write("p1", ("x", "a:-5", 0), ("y", "b:5", 3))
    script.assign("reader", x=0, y=0)
    script.poll("reader", x=[(0, "a:-5")])
    script.poll("reader", {"y": 3})
    script.poll("reader", y=[(3, "b:5")])
    assert told(script) == []


def test_a_leg_that_the_reader_passes_is_money_lost(script: TransactionScript) -> None:
    script.write("p1", ("x", "a:-5", 0), ("y", "b:5", 3))
    script.write("p2", ("y", "c", 2), ("y", "d", 5))
    script.assign("reader", x=0, y=0)
    script.poll("reader", x=[(0, "a:-5")])
    script.poll("reader", y=[(2, "c"), (5, "d")])
    (anomaly,) = told(script)
    assert anomaly == (
        "bank in y: after a poll in plain call 3 of reader (18.000 to 19.000 ms) the balance is "
        "-5, and legs worth 0 lie ahead of the reader: -5 was made or lost; it has passed b:5 in "
        "y without being handed it"
    )


def test_a_leg_that_the_reader_leaps_over_is_not_passed(script: TransactionScript) -> None:
    script.write("p1", ("x", "a:-5", 0), ("y", "b:5", 3))
    script.write("p2", ("y", "c", 2), ("y", "d", 5))
    script.assign("reader", x=0, y=0)
    script.poll("reader", x=[(0, "a:-5")], y=[(2, "c")])
    script.seek("reader", y=5)
    script.poll("reader", y=[(5, "d")])
    assert told(script) == []


def test_a_leg_before_the_first_record_of_a_reader_is_not_passed(
    script: TransactionScript,
) -> None:
    script.write("p1", ("y", "b:5", 0), ("x", "a:-5", 0))
    script.write("p2", ("y", "c", 2))
    script.assign("reader", x=0, y=1)
    script.poll("reader", x=[(0, "a:-5")], y=[(2, "c")])
    assert told(script) == []


def test_a_drain_that_lacks_a_leg_has_lost_it(script: TransactionScript) -> None:
    script.write("p1", ("x", "a:-5", 0), ("y", "b:5", 3))
    script.drain({"x": 2, "y": 5}, x=[(0, "a:-5")])
    assert len(told(script)) == 1


def test_a_transfer_that_does_not_add_up_is_a_fault_of_the_workload(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a:-5", 0))
    with pytest.raises(AssertionError, match="out of nothing"):
        told(script)


def _amounts(history: TransactionHistory) -> dict[str, int]:
    """Each transaction of several records is a transfer from its first to its last."""
    amounts: dict[str, int] = {}
    for transaction in history.transactions:
        values = [each.value for each in transaction.sends()]
        if len(values) > 1:
            amounts |= {values[0]: -transaction.number - 1, values[-1]: transaction.number + 1}
    return amounts


@pytest.mark.slow
def test_transfers_of_a_correct_log_always_add_up() -> None:
    for seed in SEEDS:
        history = TransactionModel(seed).run()
        assert check_bank(history, _amounts(history).get) == [], f"seed {seed}"


@pytest.mark.slow
def test_a_transfer_that_is_torn_is_found() -> None:
    torn = 0
    for seed in SEEDS:
        history = TransactionModel(seed).run()
        amounts = _amounts(history)
        broken = tear_a_transaction(history, SeededRandom(seed, "bank"))
        if broken is None:
            continue
        read = {
            value
            for transaction in broken.transactions
            for poll in transaction.polls()
            for _, records in poll.records
            for _, value in records
        }
        # The record that is gone is a leg, and the other leg is read.
        is_leg_gone = any(
            not {legs[0], legs[-1]} <= read and {legs[0], legs[-1]} & read
            for legs in _transfers(broken)
        )
        found = check_bank(broken, amounts.get)
        assert bool(found) == is_leg_gone, f"seed {seed}: {found}"
        torn += is_leg_gone
    assert torn > len(SEEDS) // 4


def _transfers(history: TransactionHistory) -> list[list[str]]:
    """The values of each transaction of several acknowledged records."""
    return [
        [each.value for each in transaction.sends()]
        for transaction in history.transactions
        if len(list(transaction.sends())) > 1
    ]
