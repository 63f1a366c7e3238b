"""What Jepsen's reports on Kafka's protocol, Bufstream and Redpanda have found, as small histories.

Each has its anomaly under exactly its name, and stands beside an innocent neighbour.
"""

import pytest

from tests.chaos.support.transaction_script import TransactionScript


@pytest.fixture
def script() -> TransactionScript:
    return TransactionScript()


def test_a_delayed_end_that_aborts_a_later_transaction_loses_what_was_acknowledged(
    script: TransactionScript,
) -> None:
    # Kafka's protocol: the abort of the first transaction is decided twice, the second time for
    # the next transaction, whose commit is acknowledged all the same.
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.abort("p1")
    script.write("p1", ("x", "b", 2))
    script.write("p2", ("x", "c", 4))
    script.assign("reader", x=0)
    script.poll("reader", x=[(4, "c")])
    assert script.found() == {"lost_write"}


def test_a_reader_that_began_behind_a_record_has_not_lost_it(script: TransactionScript) -> None:
    script.write("p1", ("x", "b", 2))
    script.write("p2", ("x", "c", 4))
    script.assign("reader", x=3)
    script.poll("reader", x=[(4, "c")])
    assert script.found() == set()


def test_a_delayed_end_that_commits_a_later_transaction_shows_what_was_aborted(
    script: TransactionScript,
) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.lose("p1")
    script.begin("p1")
    script.send("p1", "x", "b", 2)
    script.abort("p1")
    script.drain({"x": 4}, x=[(0, "a"), (2, "b")])
    assert script.found() == {"aborted_read"}


def test_a_delayed_end_in_the_midst_of_a_transaction_tears_it(script: TransactionScript) -> None:
    # The delayed abort takes what was sent before it; what is sent after it commits.
    script.begin("p1")
    script.send("p1", "x", "a1", 0)
    script.send("p1", "y", "a2", 0)
    script.commit("p1")
    script.drain({"x": 2, "y": 2}, y=[(0, "a2")])
    assert script.found() == {"torn_transaction"}


def test_a_torn_transaction_of_unknown_outcome_is_torn_as_well(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a1")
    script.send("p1", "y", "a2")
    script.lose("p1")
    script.drain({"x": 2, "y": 2}, y=[(0, "a2")])
    assert script.found() == {"torn_transaction"}


def test_a_transaction_of_unknown_outcome_may_be_gone_as_a_whole(
    script: TransactionScript,
) -> None:
    script.begin("p1")
    script.send("p1", "x", "a1", 0)
    script.send("p1", "y", "a2", 0)
    script.lose("p1")
    script.drain({"x": 2, "y": 2})
    assert script.found() == set()


def test_a_stuck_last_stable_offset_leaves_committed_records_unseen(
    script: TransactionScript,
) -> None:
    # Bufstream: consumers stop before records that were acknowledged.
    script.write("p1", ("x", "a", 0))
    script.write("p1", ("x", "b", 2))
    script.drain({"x": 2}, x=[(0, "a")])
    assert script.found() == {"unseen"}


def test_a_zero_offset_for_a_record_that_lies_elsewhere_is_misplaced(
    script: TransactionScript,
) -> None:
    # Bufstream: acknowledgements with the offset 0 for records further up.
    script.write("p1", ("x", "a", 0))
    script.drain({"x": 8}, x=[(7, "a")])
    assert script.found() == {"misplaced"}


def test_an_acknowledgement_without_an_offset_misplaces_nothing(
    script: TransactionScript,
) -> None:
    script.begin("p1")
    script.builder.send("p1", "x", "a", at_ns=script.later())
    script.builder.acknowledge("p1", "a", at_ns=script.later())
    script.commit("p1")
    script.drain({"x": 8}, x=[(7, "a")])
    assert script.found() == set()


def test_a_retry_that_is_stored_twice_is_a_duplicate(script: TransactionScript) -> None:
    # Redpanda: a retried batch was appended again after a change of leaders.
    script.write("p1", ("x", "a", 0))
    script.drain({"x": 4}, x=[(0, "a"), (2, "a")])
    assert script.found() == {"duplicate"}


def test_two_records_acknowledged_at_one_offset_are_inconsistent(
    script: TransactionScript,
) -> None:
    # Redpanda: two sends of one partition were both acknowledged at 537.
    script.write("p1", ("x", "a", 537))
    script.write("p2", ("x", "b", 537))
    script.drain({"x": 539}, x=[(537, "b")])
    assert script.found() == {"inconsistent_offsets"}


def test_a_reader_that_misses_what_another_has_read_has_skipped_it(
    script: TransactionScript,
) -> None:
    # Redpanda: a consumer misses records that others have read.
    for offset, value in enumerate("abc"):
        script.write("p1", ("x", value, offset))
    script.assign("other", x=0)
    script.poll("other", x=[(0, "a"), (1, "b"), (2, "c")])
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a")])
    script.poll("reader", x=[(2, "c")])
    assert script.found() == {"ext_poll_skip"}


def test_one_answer_that_leaves_a_record_out_has_skipped_it(script: TransactionScript) -> None:
    for offset, value in enumerate("abc"):
        script.write("p1", ("x", value, offset))
    script.assign("other", x=0)
    script.poll("other", x=[(0, "a"), (1, "b"), (2, "c")])
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a"), (2, "c")])
    assert script.found() == {"int_poll_skip"}


def test_an_end_that_is_read_up_to_without_a_record_has_skipped_it(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 0))
    script.assign("other", x=0)
    script.poll("other", x=[(0, "a")])
    script.assign("reader", x=0)
    script.poll("reader", {"x": 2})
    assert script.found() == {"ext_poll_skip"}


def test_offsets_of_markers_and_aborted_records_are_no_skip(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0))
    script.begin("p1")
    script.send("p1", "x", "b", 2)
    script.abort("p1")
    script.write("p1", ("x", "c", 4))
    script.drain({"x": 6}, x=[(0, "a"), (4, "c")])
    assert script.found() == set()


def test_a_subscribed_reader_may_skip_at_a_rebalance(script: TransactionScript) -> None:
    for offset, value in enumerate("abc"):
        script.write("p1", ("x", value, offset))
    script.assign("other", x=0)
    script.poll("other", x=[(0, "a"), (1, "b"), (2, "c")])
    script.builder.subscribe("reader", ["x"], at_ns=script.later())
    script.poll("reader", x=[(0, "a")])
    script.poll("reader", x=[(2, "c")], rebalanced=["x"])
    assert script.found() == set()


def test_a_record_that_was_read_and_is_gone_has_vanished(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0))
    script.write("p1", ("x", "b", 2))
    script.poll("reader", x=[(2, "b")])
    script.drain({"x": 2}, x=[(0, "a")])
    assert script.found() == {"vanished"}
