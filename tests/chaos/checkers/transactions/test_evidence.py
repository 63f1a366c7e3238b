"""What the checks say can be followed without knowing how they work."""

from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import (
    TRANSACTION_CHECKS,
    TransactionOutcome,
    check_transactions,
)
from tidelog.chaos.checkers.transactions.checks import FINDINGS_MAX


def test_a_cycle_is_told_edge_by_edge_with_its_reasons() -> None:
    script = TransactionScript()
    script.write("p1", ("x", "a", 3))
    script.begin("p2")
    script.poll("p2", x=[(3, "a")])
    script.send("p2", "y", "b", 0)
    script.commit("p2")
    script.begin("p3")
    script.poll("p3", y=[(0, "b")])
    script.poll("p3", {"x": 3})
    script.commit("p3")
    (told,) = script.told()
    assert told == (
        "G_single in x, y: transaction 1 of p2 sent b in y at 0, and a poll in transaction 2 of "
        "p3 (14.000 to 15.000 ms) read that (wr); a poll in transaction 2 of p3 (14.000 to 15.000 "
        "ms) came before a poll in transaction 2 of p3 (16.000 to 17.000 ms), in the same "
        "transaction; a poll in transaction 2 of p3 (16.000 to 17.000 ms) asked for the end of x "
        "and read up to 3, so a in x at 3 was not readable yet (rw), but a poll in transaction 1 "
        "of p2 (7.000 to 8.000 ms) read that (wr): a circle"
    )


def test_a_cycle_that_takes_real_time_tells_the_times() -> None:
    script = TransactionScript()
    script.write("p1", ("x", "a", 3))
    script.poll("p2", x=[(3, "a")])
    script.poll("p3", {"x": 3})
    (told,) = script.told()
    assert "was over at 7.000 ms, before a poll in plain call 2 of p3" in told


def test_a_lost_write_names_the_record_its_place_and_the_reader_that_passed_it() -> None:
    script = TransactionScript()
    script.write("p1", ("x", "a", 2))
    script.write("p1", ("x", "b", 4))
    script.assign("reader", x=0)
    script.poll("reader", x=[(4, "b")])
    (told,) = script.told()
    assert told == (
        "lost_write in x: a of transaction 0 of p1, acknowledged at 2, was never read: a poll in "
        "plain call 2 of reader (12.000 to 13.000 ms) stood behind -1 and was handed 4"
    )


def test_a_torn_transaction_tells_what_was_read_and_what_was_not() -> None:
    script = TransactionScript()
    script.begin("p1")
    script.send("p1", "x", "a1", 0)
    script.send("p1", "y", "a2", 0)
    script.commit("p1")
    script.drain({"x": 2, "y": 2}, y=[(0, "a2")])
    (told,) = script.told()
    assert "a2 was read in y at 0, but 1 of its 2 records never were: a1 in x" in told


def test_findings_of_one_check_are_counted_beyond_the_first() -> None:
    script = TransactionScript()
    for number in range(FINDINGS_MAX + 3):
        script.poll("reader", x=[(number, f"v{number}")])
    anomalies = check_transactions(script.history())
    assert len(anomalies) == FINDINGS_MAX + 1
    assert anomalies[-1].detail == "and 3 more"


def test_every_check_has_a_name_of_its_own() -> None:
    assert len(set(TRANSACTION_CHECKS)) == len(TRANSACTION_CHECKS)


def test_an_empty_history_has_no_anomaly() -> None:
    script = TransactionScript()
    script.begin("p1")
    script.commit("p1", TransactionOutcome.UNKNOWN)
    assert script.told() == []
