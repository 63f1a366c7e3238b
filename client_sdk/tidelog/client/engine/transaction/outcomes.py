"""What becomes of a transactional producer's records, requests and calls: what each news means.

Owns nothing; it changes the state by its steps. It must never let a commit be asked for after
anything of the transaction failed, nor take an answer for what was not asked.
"""

from tidelog.client.engine.cluster.backoff import NS_PER_MS
from tidelog.client.engine.group.coordinator import is_elsewhere
from tidelog.client.engine.transaction import requests
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    Call,
    CoordinatorFailed,
    DecideWanted,
    EndWanted,
    OffsetsWanted,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Ending,
    Identity,
    MustAbort,
    New,
    Open,
    Prepared,
    Preparing,
    Ready,
    Starting,
    Undecided,
)
from tidelog.client.engine.transaction.state import TransactionState
from tidelog.client.errors import PeerError
from tidelog.wire.errors import ErrorCode, TidelogError

# The records.


def records_failed(state: TransactionState, error: TidelogError) -> None:
    """Some of the open transaction were refused for good."""
    match state.phase:
        case Open() | Ending(decision=Decision.COMMIT, is_sent=False) | Preparing(is_sent=False):
            state.must_abort(error)
        case _:
            return  # What an abort drops fails as well.
    if state.call is not None and not isinstance(state.call, DecideWanted):
        state.end_call(state.say.must_abort(error))


def flushed(state: TransactionState) -> None:
    """Every record has its outcome."""
    match state.phase:
        case Ending(decision=Decision.COMMIT, is_flushed=False):
            state.become(Ending(Decision.COMMIT, is_flushed=True))
        case Preparing(is_flushed=False):
            state.become(Preparing(is_flushed=True))
        case _:
            pass  # Of a call that ended meanwhile.


# Requests.


def coordinator_failed(state: TransactionState, message: CoordinatorFailed, now_ns: int) -> None:
    """There is none at the moment, or nobody could be asked."""
    if (desk := state.desks.get(message.of)) is not None:
        desk.on_failed(message.error, now_ns)
    if not requests.are_wanted(state) or message.of != requests.wanted(state):
        return
    state.reason.note(message.error)
    if message.error.retriable:
        return
    _refused(state, message.error)


def answered(state: TransactionState, message: Answered, now_ns: int) -> None:
    """The coordinator answered, or could not be asked."""
    if not state.is_asking or message.number != state.number:
        return  # Its call has ended; whoever asks again asks anew.
    state.is_asking = False
    desk = requests.desk(state)
    error = message.error
    if error is None:
        desk.works()
        _succeeded(state, message.identity)
        return
    state.reason.note(error)
    if is_elsewhere(error) and desk.address is not None:
        desk.forget(desk.address, error, now_ns)
    if isinstance(state.phase, Ending) and not message.is_doubtful:
        # This try had no effect; an earlier one may have had.
        state.may_be_committed = state.was_in_doubt
    if error.retriable:
        state.failures += 1
        state.retry_at_ns = now_ns + _delay_ns(state, error)
        return
    _refused(state, error)


def _delay_ns(state: TransactionState, error: TidelogError) -> int:
    """The broker knows best how long what is in the way takes."""
    if isinstance(error, PeerError) and error.retry_after_ms:
        return min(error.retry_after_ms, state.backoff.max_ms) * NS_PER_MS
    return state.backoff.delay_ns(state.failures)


def _succeeded(state: TransactionState, identity: Identity | None) -> None:
    call = state.call
    if isinstance(call, DecideWanted):
        _token_decided(state, call)
        return
    match state.phase:
        case Ending(is_prepared=True):
            state.become(Starting(expected=state.identity, is_reset=True))
        case Starting() | Ending():
            _take_identity(state, identity)
        case Preparing():
            state.become(Prepared())
            state.end_call(token=state.token())
        case _:
            state.end_call()


def _take_identity(state: TransactionState, identity: Identity | None) -> None:
    if identity is None:
        _refused(state, state.say.no_identity())
        return
    before = state.phase
    state.use(identity)
    state.become(Ready())
    if isinstance(state.call, BeginWanted):
        state.begin()
    elif isinstance(before, Ending) and before.asked is not None:
        state.end_call(state.say.contrary(before.asked))
    else:
        state.end_call()


def _token_decided(state: TransactionState, call: DecideWanted) -> None:
    state.end_call()
    if isinstance(state.phase, Prepared) and call.token == state.token():
        state.become(Starting(expected=state.identity, is_reset=True))


# Refusals for good.


def _refused(state: TransactionState, error: TidelogError) -> None:
    """Asked again it would be refused again."""
    code = error.code
    if isinstance(state.call, DecideWanted):
        state.end_call(error)
        return
    match state.phase:
        case Starting() as phase:
            if code is ErrorCode.FENCED_PRODUCER_EPOCH and phase.expected is not None:
                state.fence(error)
            elif phase.is_reset:
                state.become(MustAbort(error, is_over=True))
            else:
                state.become(New())
            state.end_call(error)
        case Ending() as phase:
            _end_refused(state, phase, error)
        case Preparing():
            if code is ErrorCode.FENCED_PRODUCER_EPOCH:
                state.fence(error)
            else:
                state.must_abort(error)
            state.end_call(error)
        case _:
            state.must_abort(error)
            state.end_call(state.say.must_abort(error))


def _end_refused(state: TransactionState, phase: Ending, error: TidelogError) -> None:
    code, is_commit = error.code, phase.decision is Decision.COMMIT
    contrary = Decision.ABORT if is_commit else Decision.COMMIT
    if code is ErrorCode.FENCED_PRODUCER_EPOCH:
        told = state.in_doubt(error)
        state.fence(told)
        state.end_call(told)
    elif code is ErrorCode.TRANSACTION_ABORTED and not is_commit:
        # It is what was wanted; only the identity to go on with is missing.
        state.become(Starting(expected=state.identity, is_reset=True))
    elif code is ErrorCode.TRANSACTION_ABORTED:
        state.may_be_committed = False
        state.become(MustAbort(error, is_over=True))
        state.end_call(error)
    elif code is ErrorCode.TRANSACTION_PREPARED and not is_commit and not phase.is_prepared:
        state.become(Ending(Decision.ABORT, is_flushed=True, is_prepared=True))
    elif (
        code is ErrorCode.INVALID_TRANSACTION_STATE
        and phase.asked is None
        and (is_commit or state.may_be_committed)
    ):
        # An earlier try decided the contrary: asked for once more it tells the identity. Never a
        # commit that nobody has asked for.
        state.become(Ending(phase.decision, is_flushed=True, asked=contrary))
    elif state.may_be_committed:
        state.become(Undecided(phase.decision, error))
        state.end_call(state.in_doubt(error))
    else:
        state.must_abort(error)
        state.end_call(error)


# The user's patience.


def too_late(state: TransactionState, call: Call, why: TidelogError) -> None:
    """The user waits no longer: what is open stays open, and is said."""
    error = why
    match state.phase:
        case Starting() as phase if not isinstance(call, DecideWanted):
            # A call that begins only waited for it.
            if phase.is_reset and isinstance(call, EndWanted):
                state.become(MustAbort(error, is_over=True))
            elif phase.expected is None:
                state.become(New())
        case Ending() as phase if state.may_be_committed:
            state.become(Undecided(phase.decision, error))
            error = state.in_doubt(error)
        case Ending(decision=Decision.COMMIT):
            state.become(Open())
        case Ending():
            state.must_abort(error)
        case Preparing(is_sent=False):
            state.become(Open())
        case Preparing():
            state.must_abort(error)
        case Open() if isinstance(call, OffsetsWanted) and state.is_asking:
            state.must_abort(error)
        case _:
            pass
    state.is_asking = False
    state.end_call(error)
