"""Which events come before which: no edge says more than a correct log promises."""

from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import TransactionOutcome
from tidelog.chaos.checkers.transactions.events import Decided, EventGraph
from tidelog.chaos.checkers.transactions.graph import PROCESS, REALTIME
from tidelog.chaos.checkers.transactions.view import TransactionView


def later_than_decisions(script: TransactionScript) -> dict[int, int]:
    """How many edges by process or time leave the decision of each transaction."""
    made = EventGraph(TransactionView(script.history()))
    return {
        event.transaction.number: len(made.graph.successors(node, PROCESS | REALTIME))
        for node, event in enumerate(made.events)
        if isinstance(event, Decided)
    }


def test_a_known_commit_comes_before_what_its_process_and_time_bring_next() -> None:
    script = TransactionScript()
    script.write("p1", ("x", "a", 0))
    script.poll("p1", x=[(0, "a")])
    assert later_than_decisions(script) == {0: 2}


def test_an_unknown_commit_may_be_decided_after_anything_that_follows() -> None:
    script = TransactionScript()
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.lose("p1")
    script.poll("p1")
    script.poll("reader", x=[(0, "a")])
    assert later_than_decisions(script) == {0: 0}


def test_plain_sends_that_overlap_are_in_no_order_of_their_process() -> None:
    script = TransactionScript()
    builder = script.builder
    for value in ("a", "b"):
        builder.send("p1", value, value, at_ns=script.later())
    for value in ("a", "b"):
        builder.acknowledge("p1", value, offset=0, at_ns=script.later())
    # Each is over at some time, and that is all.
    assert later_than_decisions(script) == {0: 1, 1: 1}


def test_a_poll_after_the_call_of_the_commit_may_be_answered_after_the_decision() -> None:
    script = TransactionScript()
    script.begin("p1")
    script.send("p1", "x", "a", 0)
    script.builder.commit("p1", at_ns=script.later())
    script.begin("p2")
    script.poll("p2", x=[(0, "a")])
    script.send("p2", "y", "b", 0)
    script.commit("p2")
    script.poll("p1", y=[(0, "b")])
    script.builder.end("p1", TransactionOutcome.COMMITTED, at_ns=script.later())
    assert script.found() == set()
