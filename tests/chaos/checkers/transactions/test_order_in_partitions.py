"""Orders that one consumer or one producer sees broken, and what may be missing or elsewhere."""

import pytest

from tests.chaos.support.transaction_script import TransactionScript


@pytest.fixture
def script() -> TransactionScript:
    return TransactionScript()


def test_a_reader_that_goes_back_between_two_answers(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a"), (1, "b")])
    script.poll("reader", x=[(1, "b")])
    assert script.found() == {"ext_nonmonotonic_poll"}


def test_a_reader_that_has_sought_back_reads_again(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a"), (1, "b")])
    script.seek("reader", x=1)
    script.poll("reader", x=[(1, "b")])
    assert script.found() == set()


def test_one_answer_that_goes_back(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a"), (1, "b"), (0, "a")])
    assert script.found() == {"int_nonmonotonic_poll"}


def test_one_transaction_whose_records_lie_in_another_order(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 1), ("x", "b", 0))
    assert script.found() == {"int_nonmonotonic_send"}


def test_one_process_whose_transactions_lie_in_another_order(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 3))
    script.write("p1", ("x", "b", 0))
    assert script.found() == {"ext_nonmonotonic_send"}


def test_other_records_between_those_of_a_process_are_allowed(script: TransactionScript) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a1", 0)
    script.send("p2", "x", "b1", 1)
    script.send("p1", "x", "a2", 2)
    script.commit("p2")
    script.commit("p1")
    assert script.found() == set()


def test_a_record_that_nobody_sent_comes_from_nowhere(script: TransactionScript) -> None:
    script.poll("reader", x=[(0, "a")])
    assert script.found() == {"from_nowhere"}


def test_a_record_in_another_partition_is_misplaced(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a")
    script.lose("p1")
    script.poll("reader", y=[(0, "a")])
    assert script.found() == {"misplaced"}


def test_a_trimmed_record_is_not_missed(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.builder.log_starts["x"] = 1
    script.drain({"x": 3}, x=[(1, "b")])
    assert script.found() == set()


def test_a_compacted_partition_may_drop_records(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.builder.compacted.add("x")
    script.drain({"x": 3}, x=[(1, "b")])
    assert script.found() == set()
