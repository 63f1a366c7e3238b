"""What a transactional producer does with one answer: the four rules, each by itself."""

import pytest

from tests.client.engine.test_transaction_properties import OFFSETS
from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    CallDone,
    CallWithdrawn,
    Coordinated,
    CoordinatorFailed,
    CoordinatorFound,
    DecideWanted,
    DropRecords,
    EndWanted,
    FindCoordinator,
    Flush,
    Flushed,
    InitializeWanted,
    Member,
    OffsetsWanted,
    PrepareWanted,
    RecordsAdded,
    RecordsFailed,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendPrepare,
    Token,
    TransactionEffect,
    TransactionMessage,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Fenced,
    Identity,
    MustAbort,
    New,
    Open,
    Prepared,
    Ready,
    Starting,
    Undecided,
)
from tidelog.client.errors import PeerError
from tidelog.wire.errors import ErrorCode, TidelogError

LATE_NS = 60_000 * NS_PER_MS
PAY, GROUP = Coordinated(name="pay"), Coordinated(name="g", is_group=True)
FIRST, SECOND = Identity(7, 0), Identity(7, 1)


def refusal(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="ask", happened=f"it says {code.name}")


class Talk:
    """One producer, spoken to in single messages."""

    def __init__(self) -> None:
        self.core = TransactionCore("pay", Backoff(initial_ms=5, max_ms=20))
        self.now_ns = 0
        self.call = 0

    def say(self, message: TransactionMessage) -> list[TransactionEffect]:
        return self.core.step(message, self.now_ns)

    def wait(self, milliseconds: int) -> list[TransactionEffect]:
        self.now_ns += milliseconds * NS_PER_MS
        return self.core.tick(self.now_ns)

    def want(self, kind: type, **more: object) -> list[TransactionEffect]:
        self.call += 1
        return self.say(kind(call=self.call, deadline_ns=self.now_ns + LATE_NS, **more))

    def end(self, decision: Decision) -> list[TransactionEffect]:
        return self.want(EndWanted, decision=decision)


def number_of(effects: list[TransactionEffect]) -> int:
    (number,) = [each.number for each in effects if hasattr(each, "number")]
    return int(number)


def answer(
    effects: list[TransactionEffect],
    identity: Identity | None = None,
    error: ErrorCode | None = None,
    *,
    is_doubtful: bool = False,
) -> Answered:
    """The answer to the last request among the effects."""
    number = number_of(effects)
    told = None if error is None else refusal(error)
    return Answered(number=number, identity=identity, error=told, is_doubtful=is_doubtful)


def opened() -> Talk:
    """A producer in a transaction with one record."""
    talk = Talk()
    assert talk.want(InitializeWanted) == [FindCoordinator(of=PAY)]
    asked = talk.say(CoordinatorFound(of=PAY, address="b1"))
    assert asked == [SendInitialize(number=1, address="b1", expected=None)]
    assert talk.say(answer(asked, FIRST)) == [UseIdentity(FIRST), CallDone(call=1)]
    assert talk.want(BeginWanted) == [CallDone(call=2)]
    talk.say(RecordsAdded())
    return talk


def done(effects: list[TransactionEffect]) -> CallDone:
    (found,) = [each for each in effects if isinstance(each, CallDone)]
    return found


def code_of(effects: list[TransactionEffect]) -> ErrorCode:
    error = done(effects).error
    assert error is not None
    assert "pay" in error.tried or error.tried == "ask"
    return error.code


def test_a_commit_flushes_asks_and_brings_the_next_identity() -> None:
    talk = opened()
    assert talk.end(Decision.COMMIT) == [Flush()]
    asked = talk.say(Flushed())
    assert asked == [SendEnd(number=2, address="b1", identity=FIRST, decision=Decision.COMMIT)]
    assert talk.say(answer(asked, SECOND)) == [UseIdentity(SECOND), CallDone(call=3)]
    assert isinstance(talk.core.phase, Ready)


@pytest.mark.parametrize("decision", Decision)
def test_an_end_of_nothing_asks_nobody(decision: Decision) -> None:
    talk = opened()
    talk.say(answer(talk.end(Decision.ABORT), SECOND))
    talk.want(BeginWanted)
    assert talk.end(decision) == [CallDone(call=talk.call)]
    assert talk.core.identity == SECOND


def test_a_record_that_failed_leaves_abort_as_the_only_way() -> None:
    talk = opened()
    talk.say(RecordsFailed(refusal(ErrorCode.BATCH_TOO_LARGE)))
    assert code_of(talk.end(Decision.COMMIT)) is ErrorCode.BATCH_TOO_LARGE
    assert code_of(talk.want(BeginWanted)) is ErrorCode.INVALID_TRANSACTION_STATE
    dropped, asked = talk.end(Decision.ABORT)
    assert isinstance(dropped, DropRecords)
    assert talk.say(answer([asked], SECOND))[-1] == CallDone(call=talk.call)


def test_an_old_epoch_at_a_leader_is_judged_by_the_coordinator() -> None:
    talk = opened()
    talk.say(RecordsFailed(refusal(ErrorCode.FENCED_PRODUCER_EPOCH)))
    asked = talk.say(answer(talk.end(Decision.ABORT), error=ErrorCode.TRANSACTION_ABORTED))
    assert asked == [SendInitialize(number=3, address="b1", expected=FIRST)]
    assert talk.say(answer(asked, SECOND))[-1] == CallDone(call=3)
    assert isinstance(talk.core.phase, Ready)


def test_one_whose_id_was_taken_over_is_fenced_for_good() -> None:
    talk = opened()
    talk.say(RecordsFailed(refusal(ErrorCode.TRANSACTION_ABORTED)))
    asked = talk.end(Decision.ABORT)
    assert asked[1:] == [SendInitialize(number=2, address="b1", expected=FIRST)]
    ended = talk.say(answer(asked, error=ErrorCode.FENCED_PRODUCER_EPOCH))
    assert code_of(ended) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert isinstance(talk.core.phase, Fenced)
    for kind in (InitializeWanted, BeginWanted, PrepareWanted):
        assert code_of(talk.want(kind)) is ErrorCode.FENCED_PRODUCER_EPOCH


def test_a_commit_that_is_not_answered_in_time_is_asked_for_again_before_anything_else() -> None:
    talk = opened()
    talk.end(Decision.COMMIT)
    asked = talk.say(Flushed())
    talk.say(answer(asked, error=ErrorCode.UNAVAILABLE, is_doubtful=True))
    ended = talk.wait(60_001)
    assert code_of(ended) is ErrorCode.DEADLINE_EXCEEDED
    error = done(ended).error
    assert error is not None
    assert "may have been committed" in error.happened
    assert isinstance(talk.core.phase, Undecided)
    assert code_of(talk.want(BeginWanted)) is ErrorCode.INVALID_TRANSACTION_STATE
    talk.end(Decision.COMMIT)
    asked = talk.say(CoordinatorFound(of=PAY, address="b2"))
    assert talk.say(answer(asked, SECOND))[-1] == CallDone(call=talk.call)


def test_a_commit_that_was_never_let_in_may_still_be_aborted() -> None:
    talk = opened()
    talk.end(Decision.COMMIT)
    asked = talk.say(Flushed())
    talk.say(answer(asked, error=ErrorCode.NOT_COORDINATOR))
    talk.say(CoordinatorFailed(of=PAY, error=refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    assert code_of(talk.wait(60_001)) is ErrorCode.DEADLINE_EXCEEDED
    assert isinstance(talk.core.phase, Open)


def test_an_abort_that_comes_after_a_commit_says_so_and_goes_on() -> None:
    talk = opened()
    talk.end(Decision.COMMIT)
    talk.say(answer(talk.say(Flushed()), error=ErrorCode.UNAVAILABLE, is_doubtful=True))
    talk.wait(60_001)
    talk.end(Decision.ABORT)
    asked = talk.say(CoordinatorFound(of=PAY, address="b2"))
    asked = talk.say(answer(asked, error=ErrorCode.INVALID_TRANSACTION_STATE))
    assert asked == [SendEnd(number=4, address="b2", identity=FIRST, decision=Decision.COMMIT)]
    error = done(talk.say(answer(asked, SECOND))).error
    assert error is not None
    assert error.happened == "an earlier call had decided: commit"
    assert isinstance(talk.core.phase, Ready)


def test_nothing_is_committed_that_nobody_has_asked_to_commit() -> None:
    talk = opened()
    asked = talk.say(answer(talk.end(Decision.ABORT), error=ErrorCode.INVALID_TRANSACTION_STATE))
    assert not [each for each in asked if isinstance(each, SendEnd)]
    assert isinstance(talk.core.phase, MustAbort)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.STALE_ASSIGNMENT, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER],
)
def test_offsets_of_a_partition_that_was_lost_are_no_end_of_the_producer(code: ErrorCode) -> None:
    talk = opened()
    found = talk.want(OffsetsWanted, member=Member(group="g"), offsets=OFFSETS)
    assert found == [FindCoordinator(of=GROUP)]
    asked = talk.say(CoordinatorFound(of=GROUP, address="b3"))
    error = done(talk.say(answer(asked, error=code))).error
    assert error is not None
    assert (error.code, error.hint) == (code, "Abort the transaction and begin again.")
    assert isinstance(talk.core.phase, MustAbort)


def test_a_prepared_transaction_is_decided_by_its_token_and_the_producer_goes_on() -> None:
    talk = opened()
    assert talk.want(PrepareWanted) == [Flush()]
    asked = talk.say(Flushed())
    assert asked == [SendPrepare(number=2, address="b1", identity=FIRST)]
    token = Token(transactional_id="pay", identity=FIRST)
    assert talk.say(answer(asked)) == [CallDone(call=3, token=token)]
    assert isinstance(talk.core.phase, Prepared)
    assert code_of(talk.end(Decision.COMMIT)) is ErrorCode.INVALID_TRANSACTION_STATE
    asked = talk.want(DecideWanted, token=token, decision=Decision.COMMIT)
    assert asked == [SendDecide(number=3, address="b1", token=token, decision=Decision.COMMIT)]
    ended = talk.say(answer(asked))
    assert ended[0] == CallDone(call=5)
    assert ended[1:] == [SendInitialize(number=4, address="b1", expected=FIRST)]
    assert talk.want(BeginWanted) == [], "it waits for the identity"
    assert talk.say(answer(ended, SECOND)) == [UseIdentity(SECOND), CallDone(call=6)]


def test_a_token_of_another_producer_is_decided_without_an_identity_of_ones_own() -> None:
    talk = Talk()
    token = Token(transactional_id="other", identity=Identity(9, 3))
    other = Coordinated(name="other")
    sought = talk.want(DecideWanted, token=token, decision=Decision.ABORT)
    assert sought == [FindCoordinator(of=other)]
    asked = talk.say(CoordinatorFound(of=other, address="b4"))
    assert asked == [SendDecide(number=1, address="b4", token=token, decision=Decision.ABORT)]
    assert talk.say(answer(asked)) == [CallDone(call=1)]
    assert isinstance(talk.core.phase, New)


def test_an_abort_of_what_may_be_prepared_decides_it() -> None:
    talk = opened()
    talk.want(PrepareWanted)
    talk.say(answer(talk.say(Flushed()), error=ErrorCode.UNAVAILABLE, is_doubtful=True))
    assert code_of(talk.wait(60_001)) is ErrorCode.DEADLINE_EXCEEDED
    talk.end(Decision.ABORT)
    asked = talk.say(CoordinatorFound(of=PAY, address="b1"))
    asked = talk.say(answer(asked, error=ErrorCode.TRANSACTION_PREPARED))
    token = Token(transactional_id="pay", identity=FIRST)
    assert asked == [SendDecide(number=4, address="b1", token=token, decision=Decision.ABORT)]
    asked = talk.say(answer(asked))
    assert isinstance(talk.core.phase, Starting)
    assert talk.say(answer(asked, SECOND))[-1] == CallDone(call=talk.call)


def test_a_second_call_beside_the_first_is_refused_at_once() -> None:
    talk = opened()
    talk.end(Decision.COMMIT)
    assert code_of(talk.end(Decision.COMMIT)) is ErrorCode.CONCURRENT_USE
    assert talk.say(answer(talk.say(Flushed()), SECOND))[-1] == CallDone(call=3)


def test_every_call_that_does_not_fit_says_what_stands_and_what_helps() -> None:
    talk = Talk()
    for kind in (BeginWanted, PrepareWanted):
        error = done(talk.want(kind)).error
        assert error is not None
        assert (error.happened, error.hint) == (
            "the producer has not taken its transactional id over",
            "Call init_transactions() first, or use `with producer.transaction()`.",
        )
    talk = opened()
    error = done(talk.want(BeginWanted)).error
    assert error is not None
    assert error.hint == "Commit or abort it first."


def step_of(effects: list[TransactionEffect]) -> tuple[bool, bool, bool]:
    error = done(effects).error
    assert error is not None
    assert error.txn_requires_abort == error.abort_required
    return error.retriable, error.abort_required, error.fatal


def test_an_error_says_whether_to_ask_again_to_abort_or_to_stop() -> None:
    again, abort, stop = (True, False, False), (False, True, False), (False, False, True)
    talk = opened()
    assert step_of(talk.want(BeginWanted)) == (False, False, False), "the call is wrong by itself"
    talk.say(RecordsFailed(refusal(ErrorCode.BATCH_TOO_LARGE)))
    assert step_of(talk.end(Decision.COMMIT)) == abort
    _, asked = talk.end(Decision.ABORT)
    assert step_of(talk.wait(60_001)) == abort, "an abort that was not answered is asked for again"
    asked = talk.end(Decision.ABORT)[1]
    assert step_of(talk.say(answer([asked], error=ErrorCode.FENCED_PRODUCER_EPOCH))) == stop
    talk = opened()
    talk.end(Decision.COMMIT)
    talk.say(answer(talk.say(Flushed()), error=ErrorCode.UNAVAILABLE, is_doubtful=True))
    assert step_of(talk.wait(60_001)) == again, "the same call tells what became of it"
    assert step_of(talk.want(BeginWanted)) == abort


def test_a_call_that_is_not_waited_for_any_more_leaves_what_it_left_when_its_time_was_over() -> (
    None
):
    talk = opened()
    talk.end(Decision.COMMIT)
    talk.say(answer(talk.say(Flushed()), error=ErrorCode.UNAVAILABLE, is_doubtful=True))
    assert talk.say(CallWithdrawn(call=1)) == [], "that one has ended long ago"
    assert code_of(talk.say(CallWithdrawn(call=3))) is ErrorCode.CANCELLED
    assert isinstance(talk.core.phase, Undecided)


def test_a_coordinator_says_how_soon_it_is_to_be_asked_again() -> None:
    talk = Talk()
    talk.want(InitializeWanted)
    asked = talk.say(CoordinatorFound(of=PAY, address="b1"))
    busy = PeerError(
        ErrorCode.CONCURRENT_TRANSACTIONS, tried="ask", happened="not yet", retry_after_ms=1
    )
    assert talk.say(Answered(number=number_of(asked), error=busy)) == []
    assert talk.core.next_deadline_ns() == NS_PER_MS
    assert talk.wait(1) == [SendInitialize(number=2, address="b1", expected=None)]
