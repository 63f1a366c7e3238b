"""Runs one producer's transactions, one after the other. See the package for the four rules.

Owns the order of a step: the news, then calls whose time is over, then what is to be asked. What
the user's calls begin is in `calls`, what is asked of whom in `requests`, what comes of it in
`outcomes`.
"""

from typing import assert_never

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS
from tidelog.client.engine.transaction import calls, outcomes, requests
from tidelog.client.engine.transaction.messages import (
    Answered,
    BeginWanted,
    Call,
    CallWithdrawn,
    CoordinatorFailed,
    CoordinatorFound,
    DecideWanted,
    EndWanted,
    Flushed,
    InitializeWanted,
    OffsetsWanted,
    PrepareWanted,
    RecordsAdded,
    RecordsFailed,
    TellCallWaits,
    TransactionEffect,
    TransactionMessage,
)
from tidelog.client.engine.transaction.phases import Identity, Phase
from tidelog.client.engine.transaction.refusals import Refusals
from tidelog.client.engine.transaction.state import TransactionState


class TransactionCore:
    """Messages in, effects out; one task or thread calls it."""

    def __init__(self, transactional_id: str, backoff: Backoff) -> None:
        self._state = TransactionState(transactional_id, backoff)

    @property
    def phase(self) -> Phase:
        """What the producer is at."""
        return self._state.phase

    @property
    def identity(self) -> Identity | None:
        """Of the transaction in progress, or of the next one."""
        return self._state.identity

    @property
    def say(self) -> Refusals:
        """The words for what does not fit."""
        return self._state.say

    def step(self, message: TransactionMessage, now_ns: int) -> list[TransactionEffect]:
        """One message; the effects are to be performed in their order."""
        state = self._state
        match message:
            case (
                InitializeWanted()
                | BeginWanted()
                | OffsetsWanted()
                | EndWanted()
                | PrepareWanted()
                | DecideWanted()
            ):
                calls.take(state, message)
                if state.call is message:
                    state.call_began_ns, state.tell_at_ns = now_ns, now_ns + FIRST_NS
            case CallWithdrawn():
                if state.call is not None and state.call.call == message.call:
                    outcomes.too_late(state, state.call, state.say.withdrawn(state.call))
            case RecordsAdded():
                state.is_touched = True
            case RecordsFailed():
                outcomes.records_failed(state, message.error)
            case Flushed():
                outcomes.flushed(state)
            case CoordinatorFound():
                if (desk := state.desks.get(message.of)) is not None:
                    desk.on_found(message.address)
            case CoordinatorFailed():
                outcomes.coordinator_failed(state, message, now_ns)
            case Answered():
                outcomes.answered(state, message, now_ns)
            case _:
                assert_never(message)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[TransactionEffect]:
        """Time passed: end a call whose time is over, ask what is to be asked."""
        state = self._state
        call = state.call
        if call is not None and now_ns >= call.deadline_ns:
            outcomes.too_late(state, call, state.say.too_late(call, state.reason.told))
        elif call is not None and now_ns >= state.tell_at_ns:
            state.tell_at_ns = now_ns + AGAIN_NS
            state.act(TellCallWaits(text=_waiting_text(state, call, now_ns)))
        requests.ask(state, now_ns)
        return state.take_effects()

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        call, asks_ns = self._state.call, requests.next_deadline_ns(self._state)
        deadlines = [] if call is None else [call.deadline_ns, self._state.tell_at_ns]
        if asks_ns is not None:
            deadlines.append(asks_ns)
        return min(deadlines, default=None)


def _waiting_text(state: TransactionState, call: Call, now_ns: int) -> str:
    """What is in the way, since when, and how long it is still tried."""
    reason = state.reason.told
    told = "no answer yet" if reason is None else f"{reason.happened} [{reason.code.name}]"
    waited_s = (now_ns - state.call_began_ns) / 1e9
    tries = f"{state.failures} {'try' if state.failures == 1 else 'tries'}"
    left_s = max(0, call.deadline_ns - now_ns) / 1e9
    return (
        f"waiting: {state.say.called(call)}: {told}, for {waited_s:.0f} s, {tries}; it is tried on "
        f"for {left_s:.0f} s at most"
    )
