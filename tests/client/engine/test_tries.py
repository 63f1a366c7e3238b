"""Calls that are tried until their time is over: silence hides no reason, and no open outcome."""

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tests.client.support.contract_errors import error
from tidelog.client import OffsetAndMetadata
from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.tries import Doubt, Tries
from tidelog.client.engine.group.admin_calls import Outcomes
from tidelog.client.errors import NoAnswerError, PeerError, is_lost
from tidelog.client.shared import group_plans
from tidelog.client.shared.asking import all_failed
from tidelog.client.shared.group_plans import Plan, Settling
from tidelog.client.sync.connections import error_of
from tidelog.client.types.groups import GroupDescription
from tidelog.v1 import group_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

ADDRESS = "a:1"
TOPIC_ID = b"t" * 16
LOADING = error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is loading")
SHORT = Backoff(initial_ms=1, max_ms=1)


def silence(timeout_ms: int = 1) -> NoAnswerError:
    return NoAnswerError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried="call",
        happened=f"{ADDRESS}: no answer within {timeout_ms} ms",
    )


def refused(code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> TidelogError:
    return PeerError(code, tried="ask", happened="it is loading", retriable=True, retry_after_ms=7)


# One call.


def last_words(errors: Sequence[TidelogError], doubt: Doubt | None = None) -> TidelogError:
    """What a call ends with that fails like this, one try a millisecond, the last at its end."""
    tries = Tries(SHORT, len(errors), 0, doubt=doubt)
    for number, each in enumerate(errors, 1):
        further = tries.fail(each, number * NS_PER_MS - 1)
        if isinstance(further, TidelogError):
            assert number == len(errors), "there was time for another try"
            return further
        assert further == 1
    raise AssertionError("the time is over")


def test_a_call_that_is_tried_for_long_tells_the_log_now_and_then() -> None:
    tries = Tries(SHORT, 120_000, 0, doubt=None)
    told = []
    for second in range(60):
        tries.fail(refused(), second * 10**9)
        told.append(tries.waiting_text(refused(), second * 10**9))
    assert [second for second, text in enumerate(told) if text] == [5, 35]
    assert told[5] is not None
    assert told[5].startswith(
        "waiting: it is loading [COORDINATOR_NOT_AVAILABLE], for 5 s, 6 tries"
    )


def test_silence_behind_an_answer_is_told_with_it() -> None:
    found = last_words([refused(), silence(2), silence(1)])
    assert isinstance(found, PeerError)
    assert found.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.happened == "it is loading; then a:1: no answer within 1 ms"
    assert (found.retriable, found.retry_after_ms) == (True, 7)


def test_the_last_reason_is_told() -> None:
    without_leader = TidelogError(ErrorCode.NOT_LEADER, tried="look", happened="nobody leads")
    found = last_words([refused(), without_leader, silence()])
    assert found.code is ErrorCode.NOT_LEADER
    assert found.happened == "nobody leads; then a:1: no answer within 1 ms"
    final = TidelogError(ErrorCode.UNKNOWN_TOPIC, tried="look", happened="there is none")
    assert last_words([refused(), silence(), final]) is final


def test_nothing_but_silence_is_told_as_it_is() -> None:
    last = silence()
    assert last_words([silence(), last]) is last


def change(*, may_repeat: bool = True) -> Doubt:
    return Doubt("change it", may_repeat=may_repeat)


def test_silence_of_a_call_that_changes_something_is_hidden_by_nothing() -> None:
    found = last_words([refused(), silence()], change())
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.tried == "change it"
    assert found.happened == "a:1: no answer within 1 ms; it may have been done"
    assert found.hint == "ask again: done twice it comes to the same"
    assert found.retriable


def test_what_may_not_be_repeated_is_to_be_looked_at_first() -> None:
    found = last_words([silence()], change(may_repeat=False))
    assert found.hint == "look whether it was done, and ask again if it was not"


def test_a_refusal_behind_silence_does_not_say_that_nothing_was_done() -> None:
    found = last_words([silence(), refused()], change())
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.happened == ("it is loading; it may have been done: a:1: no answer within 1 ms")


def test_a_refusal_for_good_behind_silence_keeps_its_code_and_says_so_too() -> None:
    final = PeerError(ErrorCode.UNKNOWN_TOPIC, tried="ask", happened="gone", retriable=False)
    found = last_words([silence(), final], change())
    assert (found.code, found.retriable) == (ErrorCode.UNKNOWN_TOPIC, False)
    assert found.happened == "gone; it may have been done: a:1: no answer within 1 ms"


def test_a_change_that_was_only_refused_was_not_done() -> None:
    last = refused(ErrorCode.UNAVAILABLE)
    assert last_words([refused(), last], change()) is last


def test_an_answer_that_its_own_time_was_over_is_no_silence() -> None:
    last = refused(ErrorCode.DEADLINE_EXCEEDED)
    assert last_words([refused(), last]) is last


def test_a_try_has_what_is_left_and_a_millisecond_at_least() -> None:
    tries = Tries(SHORT, 30, 0, doubt=None)
    assert [tries.left_ms(at_ms * NS_PER_MS) for at_ms in (0, 29, 30, 40)] == [30, 1, 1, 1]


class Ended:
    """A call of gRPC's, by default one whose deadline is over."""

    def __init__(
        self, status: str = "DEADLINE_EXCEEDED", details: str = "Deadline Exceeded"
    ) -> None:
        self._status, self._details = status, details

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def code(self) -> Any:
        import grpc

        return grpc.StatusCode[self._status]

    def details(self) -> str:
        return self._details


def test_a_deadline_is_silence_alone_and_among_silent_addresses() -> None:
    found = error_of(Ended(), address=ADDRESS, tried="call", timeout_ms=1)
    assert isinstance(found, NoAnswerError)
    assert isinstance(pickle.loads(pickle.dumps(found)), NoAnswerError)
    both = all_failed([("a:1", found), ("b:1", found)])
    assert isinstance(both, NoAnswerError)
    assert both.code is ErrorCode.UNAVAILABLE
    one_of_them = all_failed([("a:1", found), ("b:1", refused())])
    assert not isinstance(one_of_them, NoAnswerError)
    assert is_lost(one_of_them)
    assert not is_lost(all_failed([("b:1", refused())]))


def test_the_hint_of_a_broker_that_answered_counts_more_than_that_others_are_not_there() -> None:
    answered = PeerError(
        ErrorCode.UNAVAILABLE, tried="forward", happened="nobody leads", hint="Start the voters."
    )
    nobody = TidelogError(ErrorCode.UNAVAILABLE, tried="call", happened="connection refused")
    error = all_failed([("a:1", nobody), ("b:1", answered), ("c:1", silence())])
    assert error.hint == "Start the voters."
    assert "bootstrap_servers" in all_failed([("a:1", nobody)]).hint


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("Socket closed", True),
        ("Stream removed (ping timeout)", True),
        ("failed to connect to all addresses; last error: Connection refused", False),
        ("DNS resolution failed for nowhere:1", False),
    ],
)
def test_a_call_whose_connection_broke_may_have_been_done(details: str, expected: bool) -> None:
    call = Ended("UNAVAILABLE", details)
    found = error_of(call, address=ADDRESS, tried="call", timeout_ms=1)
    assert found.code is ErrorCode.UNAVAILABLE
    assert is_lost(found) is expected


# Several groups.


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def describe() -> Plan[GroupDescription]:
    return group_plans.describe(Outcomes[GroupDescription](["billing", "reports"]), {})


def described(*groups: str) -> bytes:
    return group_admin_pb2.DescribeGroupsResponse(
        groups=[group_admin_pb2.GroupDescription(group=name, error=LOADING) for name in groups]
    ).SerializeToString()


def last_try_is_silent(plan: Plan[Any], first: bytes) -> dict[str, Any]:
    """One answer, and silence for nearly all of the time that is left."""
    clock = Clock()
    settling = Settling(plan, 1_000, clock)
    assert settling.next_request() is not None
    settling.take(first)
    clock.now += settling.pause_s(lambda _: 0.25)
    assert settling.next_request() is not None
    assert settling.left_ms == 750
    clock.now += 0.5
    settling.fail(all_failed([(ADDRESS, silence())]))
    assert not settling.pause_s(lambda _: 0.125)
    assert settling.next_request() is None, "nobody answered: it is not asked once more"
    found: dict[str, Any] = plan.outcomes.all()
    return found


def test_each_group_keeps_what_was_answered_of_it() -> None:
    found = last_try_is_silent(describe(), described("billing", "reports"))
    for name in ("billing", "reports"):
        assert found[name].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert found[name].happened == "it is loading; then a:1: no answer within 1 ms"


def test_offsets_that_may_have_been_set_are_not_told_as_refused() -> None:
    wanted = [((TOPIC_ID, 0), OffsetAndMetadata(5))]
    plan = group_plans.alter_offsets("alter", "billing", wanted, validate_only=False)
    loading = group_admin_pb2.AlterGroupOffsetsResponse(error=LOADING).SerializeToString()
    found = last_try_is_silent(plan, loading)
    assert found["billing"].happened == "a:1: no answer within 1 ms"
    assert isinstance(found["billing"], NoAnswerError)
