"""Adya's phenomena G0 to G-single in append-only logs, each beside its innocent neighbour.

Each history has its anomaly under exactly its name; the neighbour, which differs in one thing, has
none.
"""

import pytest

from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import TransactionOutcome


@pytest.fixture
def script() -> TransactionScript:
    return TransactionScript()


def test_g0_in_one_partition_is_a_write_below_one_that_was_acknowledged_before(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 4))
    script.write("p2", ("x", "b", 2))
    assert script.found() == {"G0"}


def test_a_send_that_begins_as_another_is_acknowledged_may_lie_before_it(
    script: TransactionScript,
) -> None:
    script.begin("p1", "p2")
    script.builder.send("p1", "x", "a", at_ns=script.later())
    both_ns = script.later()
    script.builder.acknowledge("p1", "a", offset=4, at_ns=both_ns)
    script.builder.send("p2", "x", "b", at_ns=both_ns)
    script.builder.acknowledge("p2", "b", offset=2, at_ns=script.later())
    script.commit("p1")
    script.commit("p2")
    assert script.found() == set()


def test_interleaved_writes_of_one_partition_are_no_g0(script: TransactionScript) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a1", 0)
    script.send("p2", "x", "b1", 1)
    script.send("p1", "x", "a2", 2)
    script.send("p2", "x", "b2", 3)
    script.commit("p1")
    script.commit("p2")
    script.drain({"x": 6}, x=[(0, "a1"), (1, "b1"), (2, "a2"), (3, "b2")])
    assert script.found() == set()


def test_g0_across_partitions_is_allowed(script: TransactionScript) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a1", 0)
    script.send("p2", "x", "b1", 1)
    script.send("p2", "y", "b2", 0)
    script.send("p1", "y", "a2", 1)
    script.commit("p1")
    script.commit("p2")
    script.drain({"x": 4, "y": 4}, x=[(0, "a1"), (1, "b1")], y=[(0, "b2"), (1, "a2")])
    assert script.found() == set()


def test_g1a_is_a_read_of_what_was_aborted(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.abort("p1")
    script.poll("reader", x=[(0, "a")])
    assert script.found() == {"aborted_read"}


def test_a_commit_of_unknown_outcome_may_be_read(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.lose("p1")
    script.poll("reader", x=[(0, "a")])
    assert script.found() == set()


def test_g1a_is_a_read_of_what_never_asked_for_its_commit(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.poll("reader", x=[(0, "a")])
    assert script.found() == {"aborted_read"}


def test_g1b_is_a_reader_that_passes_a_later_write_of_what_it_has_read(
    script: TransactionScript,
) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a1", 0)
    script.send("p1", "x", "a2", 1)
    script.send("p2", "x", "b", 2)
    script.commit("p1")
    script.commit("p2")
    script.assign("other", x=0)
    script.poll("other", x=[(0, "a1"), (1, "a2"), (2, "b")])
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a1"), (2, "b")])
    assert script.found() == {"intermediate_read"}


def test_reading_the_first_write_of_a_transaction_before_the_second_is_allowed(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a1", 0), ("x", "a2", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(0, "a1")])
    script.poll("reader", x=[(1, "a2")])
    assert script.found() == set()


def test_g1c_is_two_transactions_that_have_read_each_other(script: TransactionScript) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a", 0)
    script.send("p2", "y", "b", 0)
    # Both commits are called before the polls are answered, so no single read is too early.
    first_ns, second_ns = script.later(), script.later()
    script.builder.poll("p1", {"y": [(0, "b")]}, began_ns=first_ns, ended_ns=second_ns)
    script.builder.poll("p2", {"x": [(0, "a")]}, began_ns=first_ns, ended_ns=second_ns)
    script.builder.commit("p1", at_ns=second_ns)
    script.builder.commit("p2", at_ns=second_ns)
    script.builder.end("p1", TransactionOutcome.COMMITTED, at_ns=script.later())
    script.builder.end("p2", TransactionOutcome.COMMITTED, at_ns=script.later())
    assert script.found() == {"G1c"}


def test_a_transaction_that_has_read_one_committed_before_is_no_g1c(
    script: TransactionScript,
) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a", 0)
    script.send("p2", "y", "b", 0)
    script.commit("p1")
    script.poll("p2", x=[(0, "a")])
    script.commit("p2")
    assert script.found() == set()


def test_g1c_counts_what_lies_below_a_record_that_is_read(script: TransactionScript) -> None:
    script.begin("p1", "p2", "p3")
    script.send("p1", "x", "a", 0)
    script.send("p3", "x", "c", 1)
    script.send("p2", "y", "b", 0)
    first_ns, second_ns = script.later(), script.later()
    script.builder.poll("p1", {"y": [(0, "b")]}, began_ns=first_ns, ended_ns=second_ns)
    script.builder.poll("p2", {"x": [(1, "c")]}, began_ns=first_ns, ended_ns=second_ns)
    for process in ("p1", "p2", "p3"):
        script.builder.commit(process, at_ns=second_ns)
    for process in ("p1", "p2", "p3"):
        script.builder.end(process, TransactionOutcome.COMMITTED, at_ns=script.later())
    assert script.found() == {"G1c"}


def test_a_cycle_of_a_write_in_one_partition_and_a_read_in_another_is_allowed(
    script: TransactionScript,
) -> None:
    script.begin("p1", "p2")
    script.send("p1", "x", "a1", 0)
    script.send("p2", "x", "b1", 1)
    script.send("p2", "y", "b2", 0)
    script.commit("p2")
    script.poll("p1", y=[(0, "b2")])
    script.commit("p1")
    script.drain({"x": 4, "y": 2}, x=[(0, "a1"), (1, "b1")], y=[(0, "b2")])
    assert script.found() == set()


def test_g1c_process_takes_the_order_of_a_process(script: TransactionScript) -> None:
    # p1 reads b and only then begins the transaction that sends a; b's transaction has read a.
    script.begin("p2")
    script.send("p2", "y", "b", 0)
    first_ns = script.later()
    script.builder.poll("p1", {"y": [(0, "b")]}, began_ns=first_ns, ended_ns=first_ns)
    script.builder.begin("p1", at_ns=first_ns)
    script.builder.send("p1", "x", "a", at_ns=first_ns)
    script.builder.acknowledge("p1", "a", offset=0, at_ns=first_ns)
    script.builder.commit("p1", at_ns=first_ns)
    script.builder.poll("p2", {"x": [(0, "a")]}, began_ns=first_ns, ended_ns=first_ns)
    script.builder.commit("p2", at_ns=first_ns)
    for process in ("p1", "p2"):
        script.builder.end(process, TransactionOutcome.COMMITTED, at_ns=script.later())
    assert script.found() == {"G1c_process"}


def test_g1c_that_takes_real_time_holds_a_read_that_came_too_early(
    script: TransactionScript,
) -> None:
    # p3 has read b before p1 begins to send a; the transaction of b has read a.
    script.begin("p2")
    script.send("p2", "y", "b", 0)
    script.poll("p3", y=[(0, "b")])
    script.write("p1", ("x", "a", 0))
    script.poll("p2", x=[(0, "a")])
    script.commit("p2")
    assert script.found() == {"uncommitted_read"}


def test_a_read_beside_the_call_of_the_commit_is_not_too_early(script: TransactionScript) -> None:
    script.begin("p2")
    script.send("p2", "y", "b", 0)
    called_ns = script.later()
    script.builder.poll("p3", {"y": [(0, "b")]}, began_ns=called_ns, ended_ns=called_ns)
    script.builder.commit("p2", at_ns=called_ns)
    script.builder.end("p2", TransactionOutcome.COMMITTED, at_ns=script.later())
    assert script.found() == set()


def test_a_record_above_an_open_transaction_is_read_in_a_dirty_order(
    script: TransactionScript,
) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.write("p2", ("x", "b", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(1, "b")])
    script.commit("p1")
    script.drain({"x": 4}, x=[(0, "a"), (1, "b")])
    assert script.found() == {"dirty_order"}


def test_a_record_above_a_transaction_that_aborts_later_is_no_dirty_order_that_shows(
    script: TransactionScript,
) -> None:
    # The coordinator may have aborted it by its timeout long before the process asks.
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.write("p2", ("x", "b", 1))
    script.assign("reader", x=0)
    script.poll("reader", x=[(1, "b")])
    script.abort("p1")
    assert script.found() == set()


def test_a_transaction_reads_its_own_record_before_it_commits(script: TransactionScript) -> None:
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.poll("p1", x=[(0, "a")])
    script.commit("p1")
    assert script.found() == {"precommitted_read"}


def test_a_process_reads_its_own_record_after_it_has_committed(script: TransactionScript) -> None:
    script.write("p1", ("x", "a", 0))
    script.poll("p1", x=[(0, "a")])
    assert script.found() == set()


def test_g_single_is_an_end_that_lies_before_what_led_to_the_read(
    script: TransactionScript,
) -> None:
    # T2 has read T1's record in x and sent to y; T3 reads that, then asks for the end of x.
    script.write("p1", ("x", "a", 3))
    script.begin("p2")
    script.poll("p2", x=[(3, "a")])
    script.send("p2", "y", "b", 0)
    script.commit("p2")
    script.begin("p3")
    script.poll("p3", y=[(0, "b")])
    script.poll("p3", {"x": 3})
    script.commit("p3")
    assert script.found() == {"G_single"}


def test_a_poll_that_did_not_ask_for_the_end_may_return_nothing(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 3))
    script.begin("p2")
    script.poll("p2", x=[(3, "a")])
    script.send("p2", "y", "b", 0)
    script.commit("p2")
    script.begin("p3")
    script.poll("p3", y=[(0, "b")])
    script.poll("p3")
    script.commit("p3")
    assert script.found() == set()


def test_read_skew_between_partitions_is_allowed_while_markers_arrive(
    script: TransactionScript,
) -> None:
    script.begin("p1")
    script.send("p1", "x", "a1", 0)
    script.send("p1", "y", "a2", 0)
    script.commit("p1")
    script.begin("p2")
    script.poll("p2", x=[(0, "a1")])
    script.poll("p2", {"y": 0})
    script.commit("p2")
    script.drain({"x": 2, "y": 2}, x=[(0, "a1")], y=[(0, "a2")])
    assert script.found() == set()


def test_g_single_process_is_an_end_that_goes_back_in_one_process(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 3))
    script.poll("p2", x=[(3, "a")])
    script.poll("p2", {"x": 2})
    assert script.found() == {"G_single_process"}


def test_an_end_that_stays_where_the_process_has_been_is_allowed(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 3))
    script.poll("p2", x=[(3, "a")])
    script.poll("p2", {"x": 4})
    assert script.found() == set()


def test_g_single_realtime_is_an_end_before_what_another_has_read_already(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 3))
    script.poll("p2", x=[(3, "a")])
    script.poll("p3", {"x": 3})
    assert script.found() == {"G_single_realtime"}


def test_an_end_that_was_asked_for_at_the_same_time_may_lie_before(
    script: TransactionScript,
) -> None:
    script.write("p1", ("x", "a", 3))
    began_ns = script.later()
    ended_ns = script.later()
    script.builder.poll("p2", {"x": [(3, "a")]}, began_ns=began_ns, ended_ns=ended_ns)
    script.builder.poll("p3", {}, ends={"x": 3}, began_ns=began_ns, ended_ns=ended_ns)
    assert script.found() == set()


def test_g2_is_two_readers_each_of_whom_sees_what_the_other_does_not(
    script: TransactionScript,
) -> None:
    # Each has read one record and asks then for the end of the other's partition, which is before
    # the record that the other has read.
    script.write("p1", ("x", "a", 0))
    script.write("p2", ("y", "b", 0))
    began_ns, between_ns, ended_ns = script.later(), script.later(), script.later()
    for process, partition, value, other in (("r1", "x", "a", "y"), ("r2", "y", "b", "x")):
        script.builder.poll(
            process, {partition: [(0, value)]}, began_ns=began_ns, ended_ns=between_ns
        )
        script.builder.poll(process, {}, ends={other: 0}, began_ns=between_ns, ended_ns=ended_ns)
    assert script.found() == {"G2"}
