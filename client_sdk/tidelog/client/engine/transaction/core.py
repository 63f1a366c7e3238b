"""Runs one producer's transactions, one after the other. See the package for the four rules.

Owns the phase, the one call of the user that is being answered, and the one request that is under
way for it. It must never let a transaction begin before the outcome of the one before is known, nor
ask for a commit after anything of the transaction failed.
"""

from typing import assert_never

import msgspec

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.tries import Reason, saying
from tidelog.client.engine.group.coordinator import CoordinatorDesk, is_elsewhere
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    CallDone,
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
    OffsetsWanted,
    PrepareWanted,
    RecordsAdded,
    RecordsFailed,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
    Token,
    TransactionEffect,
    TransactionMessage,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Ending,
    Fenced,
    Identity,
    MustAbort,
    New,
    Open,
    Phase,
    Prepared,
    Preparing,
    Ready,
    Starting,
    Undecided,
)
from tidelog.client.engine.transaction.refusals import Refusals
from tidelog.wire.errors import ErrorCode, TidelogError

Call = InitializeWanted | BeginWanted | OffsetsWanted | EndWanted | PrepareWanted | DecideWanted


class TransactionCore:
    """Messages in, effects out; one task or thread calls it."""

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self.phase: Phase = New()
        self.identity: Identity | None = None
        """Of the transaction in progress, or of the next one."""
        self._transactional_id = transactional_id
        self._say = Refusals(transactional_id)
        self._backoff = backoff
        self._desks = {Coordinated(name=transactional_id): CoordinatorDesk(backoff)}
        """Its own, and at most one other: of the group or the token that was asked for last."""
        self._call: Call | None = None
        """The user's; None: no call waits."""
        self._is_touched = False
        """Something was added: a broker may know of the transaction."""
        self._may_be_committed = False
        """A commit of this identity was sent, and nobody has said what became of it."""
        self._was_in_doubt = False
        """The same, before the request that is under way."""
        self._number = 0
        self._is_asking = False
        self._failures = 0
        self._retry_at_ns = 0
        self._reason = Reason()
        self._effects: list[TransactionEffect] = []

    def step(self, message: TransactionMessage, now_ns: int) -> list[TransactionEffect]:
        """One message; the effects are to be performed in their order."""
        match message:
            case InitializeWanted():
                self._on_initialize_wanted(message)
            case BeginWanted():
                self._on_begin_wanted(message)
            case OffsetsWanted():
                self._on_offsets_wanted(message)
            case EndWanted():
                self._on_end_wanted(message)
            case PrepareWanted():
                self._on_prepare_wanted(message)
            case DecideWanted():
                if self._take_call(message):
                    self._forget_tries()
            case RecordsAdded():
                self._is_touched = True
            case RecordsFailed():
                self._on_records_failed(message.error)
            case Flushed():
                self._on_flushed()
            case CoordinatorFound():
                if (desk := self._desks.get(message.of)) is not None:
                    desk.on_found(message.address)
            case CoordinatorFailed():
                self._on_coordinator_failed(message, now_ns)
            case Answered():
                self._on_answered(message, now_ns)
            case _:
                assert_never(message)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[TransactionEffect]:
        """Time passed: end a call whose time is over, ask what is to be asked."""
        call = self._call
        if call is not None and now_ns >= call.deadline_ns:
            self._on_deadline(call)
        self._ask(now_ns)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        deadlines = [] if self._call is None else [self._call.deadline_ns]
        if self._wants_to_ask() and not self._is_asking:
            desk = self._desk_of(self._wanted())
            due_ns = desk.next_deadline_ns()
            if desk.address is not None:
                deadlines.append(self._retry_at_ns)
            elif due_ns is not None:
                deadlines.append(max(due_ns, self._retry_at_ns))
        return min(deadlines, default=None)

    # The user's calls.

    def _take_call(self, call: Call) -> bool:
        """One at a time; a second one is refused at once."""
        if self._call is not None:
            self._done(call.call, self._say.concurrent())
            return False
        if isinstance(self.phase, Fenced):
            self._done(call.call, self.phase.error)
            return False
        self._call = call
        return True

    def _on_initialize_wanted(self, call: InitializeWanted) -> None:
        if not self._take_call(call):
            return
        if isinstance(self.phase, New):
            self._become(Starting(expected=None))
        elif not isinstance(self.phase, Starting):
            self._end_call(self._say.unfit("initialize", self.phase))

    def _on_begin_wanted(self, call: BeginWanted) -> None:
        if not self._take_call(call):
            return
        if isinstance(self.phase, Ready):
            self._begin()
        elif not isinstance(self.phase, Starting):
            self._end_call(self._say.unfit("begin", self.phase))

    def _begin(self) -> None:
        self._is_touched = self._may_be_committed = False
        self._become(Open())
        self._end_call()

    def _on_offsets_wanted(self, call: OffsetsWanted) -> None:
        if not self._take_call(call):
            return
        if not isinstance(self.phase, Open):
            self._end_call(self._say.unfit("send offsets", self.phase))
            return
        self._forget_tries()
        if not call.offsets:
            self._end_call()

    def _on_end_wanted(self, call: EndWanted) -> None:
        if not self._take_call(call):
            return
        match self.phase, call.decision:
            case Open(), Decision.COMMIT if self._is_touched:
                self._become(Ending(Decision.COMMIT))
                self._effects.append(Flush())
            case Open(), _ if not self._is_touched:
                self._become(Ready())
                self._end_call()
            case MustAbort(is_over=True), Decision.ABORT:
                self._drop()
                self._become(Starting(expected=self.identity, is_reset=True))
            case Open() | MustAbort() | Undecided(), Decision.ABORT:
                self._drop()
                self._become(Ending(Decision.ABORT, is_flushed=True))
            case Undecided(), Decision.COMMIT:
                self._become(Ending(Decision.COMMIT, is_flushed=True))
            case MustAbort() as phase, Decision.COMMIT:
                self._end_call(self._say.must_abort(phase.error))
            case phase, _:
                self._end_call(self._say.unfit(call.decision.value, phase))

    def _on_prepare_wanted(self, call: PrepareWanted) -> None:
        if not self._take_call(call):
            return
        if not isinstance(self.phase, Open):
            self._end_call(self._say.unfit("prepare", self.phase))
        elif not self._is_touched:
            self._end_call(self._say.nothing_to_prepare())
        else:
            self._become(Preparing())
            self._effects.append(Flush())

    # What becomes of the records.

    def _on_records_failed(self, error: TidelogError) -> None:
        match self.phase:
            case (
                Open() | Ending(decision=Decision.COMMIT, is_sent=False) | Preparing(is_sent=False)
            ):
                self._must_abort(error)
            case _:
                return  # What an abort drops fails as well.
        if self._call is not None:
            self._end_call(self._say.must_abort(error))

    def _on_flushed(self) -> None:
        match self.phase:
            case Ending(decision=Decision.COMMIT, is_flushed=False):
                self._become(Ending(Decision.COMMIT, is_flushed=True))
            case Preparing(is_flushed=False):
                self._become(Preparing(is_flushed=True))
            case _:
                pass  # Of a call that ended meanwhile.

    def _drop(self) -> None:
        self._effects.append(DropRecords(self._say.dropped()))

    # Requests: one at a time, for the phase or for the call.

    def _wants_to_ask(self) -> bool:
        if isinstance(self._call, DecideWanted):
            return True
        match self.phase:
            case Starting():
                return True
            case Open():
                return isinstance(self._call, OffsetsWanted)
            case Ending() | Preparing():
                return self.phase.is_flushed
            case _:
                return False

    def _wanted(self) -> Coordinated:
        match self._call:
            case OffsetsWanted() as call:
                return Coordinated(name=call.member.group, is_group=True)
            case DecideWanted() as call:
                return Coordinated(name=call.token.transactional_id)
            case _:
                return Coordinated(name=self._transactional_id)

    def _desk_of(self, wanted: Coordinated) -> CoordinatorDesk:
        if wanted not in self._desks:
            own = Coordinated(name=self._transactional_id)
            self._desks = {own: self._desks[own], wanted: CoordinatorDesk(self._backoff)}
        return self._desks[wanted]

    def _ask(self, now_ns: int) -> None:
        if self._is_asking or not self._wants_to_ask() or now_ns < self._retry_at_ns:
            return
        wanted = self._wanted()
        desk = self._desk_of(wanted)
        if desk.address is None:
            if desk.tick(now_ns) is not None:
                self._effects.append(FindCoordinator(of=wanted))
            return
        self._is_asking = True
        self._number += 1
        self._effects.append(self._request(desk.address))

    def _request(self, address: str) -> TransactionEffect:
        number, call = self._number, self._call
        if isinstance(call, DecideWanted):
            return SendDecide(
                number=number, address=address, token=call.token, decision=call.decision
            )
        if isinstance(self.phase, Starting):
            return SendInitialize(number=number, address=address, expected=self.phase.expected)
        identity = self.identity
        assert identity is not None, f"{self.phase} without an identity"
        match self.phase:
            case Ending():
                self.phase = msgspec.structs.replace(self.phase, is_sent=True)
                if self.phase.is_prepared:
                    return SendDecide(
                        number=number, address=address, token=self._token(), decision=Decision.ABORT
                    )
                decision = self.phase.asked or self.phase.decision
                self._was_in_doubt = self._may_be_committed
                self._may_be_committed |= decision is Decision.COMMIT
                return SendEnd(number=number, address=address, identity=identity, decision=decision)
            case Preparing():
                self.phase = Preparing(is_flushed=True, is_sent=True)
                return SendPrepare(number=number, address=address, identity=identity)
            case _:
                assert isinstance(call, OffsetsWanted), f"nothing is asked for in {self.phase}"
                self._is_touched = True
                return SendOffsets(
                    number=number,
                    address=address,
                    identity=identity,
                    member=call.member,
                    offsets=call.offsets,
                )

    def _on_coordinator_failed(self, message: CoordinatorFailed, now_ns: int) -> None:
        if (desk := self._desks.get(message.of)) is not None:
            desk.on_failed(message.error, now_ns)
        if not self._wants_to_ask() or message.of != self._wanted():
            return
        self._reason.note(message.error)
        if message.error.retriable:
            return
        self._on_refused(message.error)

    def _on_answered(self, message: Answered, now_ns: int) -> None:
        if not self._is_asking or message.number != self._number:
            return  # Its call has ended; whoever asks again asks anew.
        self._is_asking = False
        desk = self._desk_of(self._wanted())
        error = message.error
        if error is None:
            desk.works()
            self._on_success(message.identity)
            return
        self._reason.note(error)
        if is_elsewhere(error) and desk.address is not None:
            desk.forget(desk.address, error, now_ns)
        if isinstance(self.phase, Ending) and not message.is_doubtful:
            # This try had no effect; an earlier one may have had.
            self._may_be_committed = self._was_in_doubt
        if error.retriable:
            self._failures += 1
            self._retry_at_ns = now_ns + self._backoff.delay_ns(self._failures)
            return
        self._on_refused(error)

    # Outcomes.

    def _on_success(self, identity: Identity | None) -> None:
        call = self._call
        if isinstance(call, DecideWanted):
            self._on_token_decided(call)
            return
        match self.phase:
            case Ending(is_prepared=True):
                self._become(Starting(expected=self.identity, is_reset=True))
            case Starting() | Ending():
                self._on_identity(identity)
            case Preparing():
                self._become(Prepared())
                self._end_call(token=self._token())
            case _:
                self._end_call()

    def _on_identity(self, identity: Identity | None) -> None:
        if identity is None:
            self._on_refused(self._say.no_identity())
            return
        before, self.identity = self.phase, identity
        self._effects.append(UseIdentity(identity))
        self._become(Ready())
        if isinstance(self._call, BeginWanted):
            self._begin()
        elif isinstance(before, Ending) and before.asked is not None:
            self._end_call(self._say.contrary(before.asked))
        else:
            self._end_call()

    def _token(self) -> Token:
        assert self.identity is not None, "a transaction has an identity"
        return Token(transactional_id=self._transactional_id, identity=self.identity)

    def _on_token_decided(self, call: DecideWanted) -> None:
        self._end_call()
        if isinstance(self.phase, Prepared) and call.token == self._token():
            self._become(Starting(expected=self.identity, is_reset=True))

    def _on_refused(self, error: TidelogError) -> None:
        """Asked again it would be refused again."""
        code = error.code
        if isinstance(self._call, DecideWanted):
            self._end_call(error)
            return
        match self.phase:
            case Starting() as phase:
                if code is ErrorCode.FENCED_PRODUCER_EPOCH and phase.expected is not None:
                    self._fence(error)
                elif phase.is_reset:
                    self._become(MustAbort(error, is_over=True))
                else:
                    self._become(New())
                self._end_call(error)
            case Ending():
                self._on_end_refused(self.phase, error)
            case Preparing():
                if code is ErrorCode.FENCED_PRODUCER_EPOCH:
                    self._fence(error)
                else:
                    self._must_abort(error)
                self._end_call(error)
            case _:
                self._must_abort(error)
                self._end_call(self._say.must_abort(error))

    def _on_end_refused(self, phase: Ending, error: TidelogError) -> None:
        code, is_commit = error.code, phase.decision is Decision.COMMIT
        contrary = Decision.ABORT if is_commit else Decision.COMMIT
        if code is ErrorCode.FENCED_PRODUCER_EPOCH:
            self._fence(self._in_doubt(error))
            self._end_call(self._in_doubt(error))
        elif code is ErrorCode.TRANSACTION_ABORTED and not is_commit:
            # It is what was wanted; only the identity to go on with is missing.
            self._become(Starting(expected=self.identity, is_reset=True))
        elif code is ErrorCode.TRANSACTION_ABORTED:
            self._may_be_committed = False
            self._become(MustAbort(error, is_over=True))
            self._end_call(error)
        elif code is ErrorCode.TRANSACTION_PREPARED and not is_commit and not phase.is_prepared:
            self._become(Ending(Decision.ABORT, is_flushed=True, is_prepared=True))
        elif (
            code is ErrorCode.INVALID_TRANSACTION_STATE
            and phase.asked is None
            and (is_commit or self._may_be_committed)
        ):
            # An earlier try decided the contrary: asked for once more it tells the identity. Never
            # a commit that nobody has asked for.
            self._become(Ending(phase.decision, is_flushed=True, asked=contrary))
        elif self._may_be_committed:
            self._become(Undecided(phase.decision, error))
            self._end_call(self._in_doubt(error))
        else:
            self._must_abort(error)
            self._end_call(error)

    def _on_deadline(self, call: Call) -> None:
        """The user waits no longer: what is open stays open, and is said."""
        error = self._say.too_late(call, self._reason.told)
        match self.phase:
            case Starting() as phase if not isinstance(call, DecideWanted):
                # A call that begins only waited for it.
                if phase.is_reset and isinstance(call, EndWanted):
                    self._become(MustAbort(error, is_over=True))
                elif phase.expected is None:
                    self._become(New())
            case Ending() as phase if self._may_be_committed:
                self._become(Undecided(phase.decision, error))
                error = self._in_doubt(error)
            case Ending(decision=Decision.COMMIT):
                self._become(Open())
            case Ending():
                self._must_abort(error)
            case Preparing(is_sent=False):
                self._become(Open())
            case Preparing():
                self._must_abort(error)
            case Open() if isinstance(call, OffsetsWanted) and self._is_asking:
                self._must_abort(error)
            case _:
                pass
        self._is_asking = False
        self._end_call(error)

    def _in_doubt(self, error: TidelogError) -> TidelogError:
        if not self._may_be_committed:
            return error
        happened = f"{error.happened}; the transaction may have been committed"
        return saying(error, tried=error.tried, happened=happened)

    def _must_abort(self, error: TidelogError) -> None:
        is_over = error.code is ErrorCode.TRANSACTION_ABORTED
        self._become(MustAbort(error, is_over=is_over))

    def _fence(self, error: TidelogError) -> None:
        self._drop()
        self._become(Fenced(error))

    def _become(self, phase: Phase) -> None:
        self.phase = phase
        self._forget_tries()

    def _forget_tries(self) -> None:
        """Whatever is asked next is another question; an answer to the one before is not heard."""
        self._is_asking = False
        self._failures, self._retry_at_ns, self._reason = 0, 0, Reason()

    def _end_call(self, error: TidelogError | None = None, *, token: Token | None = None) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._done(call.call, error, token)

    def _done(self, number: int, error: TidelogError | None, token: Token | None = None) -> None:
        self._effects.append(CallDone(call=number, error=error, token=token))
