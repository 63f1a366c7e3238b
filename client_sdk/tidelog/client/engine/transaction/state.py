"""What a transactional producer knows, and the few steps in which it changes.

Owns the phase, the user's one call and its answer, and the one request that is under way. `calls`,
`requests` and `outcomes` change nothing but by these steps. It must never decide what an answer
means.
"""

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.tries import Reason, saying
from tidelog.client.engine.group.coordinator import CoordinatorDesk
from tidelog.client.engine.transaction.messages import (
    Call,
    CallDone,
    Coordinated,
    DropRecords,
    EndWanted,
    Token,
    TransactionEffect,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import (
    Fenced,
    Identity,
    MustAbort,
    New,
    Open,
    Phase,
    Undecided,
)
from tidelog.client.engine.transaction.refusals import Refusals
from tidelog.client.errors import NextStep, TransactionError
from tidelog.wire.errors import ErrorCode, TidelogError


class TransactionState:
    """One per transactional producer."""

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self.phase: Phase = New()
        self.identity: Identity | None = None
        """Of the transaction in progress, or of the next one."""
        self.transactional_id = transactional_id
        self.say = Refusals(transactional_id)
        self.backoff = backoff
        self.own = Coordinated(name=transactional_id)
        self.desks = {self.own: CoordinatorDesk(backoff)}
        """Its own, and at most one other: of the group or the token that was asked for last."""
        self.call: Call | None = None
        """The user's; None: no call waits."""
        self.call_began_ns = 0
        self.tell_at_ns = 0
        """When the log is told that the call waits; of a call only."""
        self.is_touched = False
        """Something was added: a broker may know of the transaction."""
        self.may_be_committed = False
        """A commit of this identity was sent, and nobody has said what became of it."""
        self.was_in_doubt = False
        """The same, before the request that is under way."""
        self.number = 0
        self.is_asking = False
        self.failures = 0
        self.retry_at_ns = 0
        self.reason = Reason()
        self._effects: list[TransactionEffect] = []

    # Phases.

    def become(self, phase: Phase) -> None:
        """Enter the phase; an answer to what was asked before counts no more."""
        self.phase = phase
        self.forget_tries()

    def forget_tries(self) -> None:
        """Whatever is asked next is another question; an answer to the one before is not heard."""
        self.is_asking = False
        self.failures, self.retry_at_ns, self.reason = 0, 0, Reason()

    def begin(self) -> None:
        """A transaction is open, and nothing is in it."""
        self.is_touched = self.may_be_committed = False
        self.become(Open())
        self.end_call()

    def use(self, identity: Identity) -> None:
        """The next transaction's."""
        self.identity = identity
        self.act(UseIdentity(identity))

    def must_abort(self, error: TidelogError) -> None:
        """Nothing of the transaction may be committed any more."""
        is_over = error.code is ErrorCode.TRANSACTION_ABORTED
        self.become(MustAbort(error, is_over=is_over))

    def fence(self, error: TidelogError) -> None:
        """This producer is done for good."""
        self.drop()
        self.become(Fenced(error))

    def drop(self) -> None:
        """What was not acknowledged by now is not waited for."""
        self.act(DropRecords(self.say.dropped()))

    # What goes out.

    def act(self, effect: TransactionEffect) -> None:
        """Performed once the step is over, in the order of these calls."""
        self._effects.append(effect)

    def take_effects(self) -> list[TransactionEffect]:
        """Everything since the last time."""
        effects, self._effects = self._effects, []
        return effects

    def end_call(self, error: TidelogError | None = None, *, token: Token | None = None) -> None:
        """Answer the user's call, if one waits."""
        call, self.call = self.call, None
        if call is not None:
            self.answer(call, error, token)

    def answer(self, call: Call, error: TidelogError | None, token: Token | None = None) -> None:
        """A call returns or raises; an error says what to do next."""
        told = None if error is None else TransactionError.of(error, self._next_step(call, error))
        self.act(CallDone(call=call.call, error=told, token=token))

    def _next_step(self, call: Call, error: TidelogError) -> NextStep:
        match self.phase:
            case Fenced():
                return NextStep.STOP
            case MustAbort():
                return NextStep.ABORT
            case Undecided():
                return NextStep.AGAIN if isinstance(call, EndWanted) else NextStep.ABORT
            case _:
                return NextStep.AGAIN if error.retriable else NextStep.CORRECT

    # Words.

    def token(self) -> Token:
        """Of the transaction in progress."""
        assert self.identity is not None, "a transaction has an identity"
        return Token(transactional_id=self.transactional_id, identity=self.identity)

    def in_doubt(self, error: TidelogError) -> TidelogError:
        """The same, saying so where a commit may have taken effect."""
        if not self.may_be_committed:
            return error
        happened = f"{error.happened}; the transaction may have been committed"
        return saying(error, tried=error.tried, happened=happened)
