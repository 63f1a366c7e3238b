"""The user's calls of a transactional producer: what each begins, and what it does not fit.

Owns nothing; it changes the state by its steps. It must never let a transaction begin before the
outcome of the one before is known.
"""

from tidelog.client.engine.transaction.messages import (
    BeginWanted,
    Call,
    EndWanted,
    Flush,
    InitializeWanted,
    OffsetsWanted,
    PrepareWanted,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Ending,
    Fenced,
    MustAbort,
    New,
    Open,
    Preparing,
    Ready,
    Starting,
    Undecided,
)
from tidelog.client.engine.transaction.state import TransactionState


def take(state: TransactionState, call: Call) -> None:
    """One at a time; a second one is refused at once."""
    if state.call is not None:
        state.answer(call, state.say.concurrent())
        return
    if isinstance(state.phase, Fenced):
        state.answer(call, state.phase.error)
        return
    state.call = call
    match call:
        case InitializeWanted():
            _initialize(state)
        case BeginWanted():
            _begin(state)
        case OffsetsWanted():
            _send_offsets(state, call)
        case EndWanted():
            _end(state, call)
        case PrepareWanted():
            _prepare(state)
        case _:
            state.forget_tries()


def _initialize(state: TransactionState) -> None:
    if isinstance(state.phase, New):
        state.become(Starting(expected=None))
    elif not isinstance(state.phase, Starting):
        state.end_call(state.say.unfit("initialize", state.phase))


def _begin(state: TransactionState) -> None:
    if isinstance(state.phase, Ready):
        state.begin()
    elif not isinstance(state.phase, Starting):
        state.end_call(state.say.unfit("begin", state.phase))


def _send_offsets(state: TransactionState, call: OffsetsWanted) -> None:
    if not isinstance(state.phase, Open):
        state.end_call(state.say.unfit("send offsets", state.phase))
        return
    state.forget_tries()
    if not call.offsets:
        state.end_call()


def _end(state: TransactionState, call: EndWanted) -> None:
    match state.phase, call.decision:
        case Open(), Decision.COMMIT if state.is_touched:
            state.become(Ending(Decision.COMMIT))
            state.act(Flush())
        case Open(), _ if not state.is_touched:
            state.become(Ready())
            state.end_call()
        case MustAbort(is_over=True), Decision.ABORT:
            state.drop()
            state.become(Starting(expected=state.identity, is_reset=True))
        case Open() | MustAbort() | Undecided(), Decision.ABORT:
            state.drop()
            state.become(Ending(Decision.ABORT, is_flushed=True))
        case Undecided(), Decision.COMMIT:
            state.become(Ending(Decision.COMMIT, is_flushed=True))
        case MustAbort() as phase, Decision.COMMIT:
            state.end_call(state.say.must_abort(phase.error))
        case phase, _:
            state.end_call(state.say.unfit(call.decision.value, phase))


def _prepare(state: TransactionState) -> None:
    if not isinstance(state.phase, Open):
        state.end_call(state.say.unfit("prepare", state.phase))
    elif not state.is_touched:
        state.end_call(state.say.nothing_to_prepare())
    else:
        state.become(Preparing())
        state.act(Flush())
