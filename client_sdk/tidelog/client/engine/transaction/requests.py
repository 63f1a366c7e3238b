"""What a transactional producer asks coordinators for: one request at a time, for the phase or for
the user's call.

Owns whom it asks and when. It must never ask twice at once, nor for a commit after anything of the
transaction failed.
"""

import msgspec

from tidelog.client.engine.group.coordinator import CoordinatorDesk
from tidelog.client.engine.transaction.messages import (
    Coordinated,
    DecideWanted,
    FindCoordinator,
    OffsetsWanted,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
    TransactionEffect,
)
from tidelog.client.engine.transaction.phases import (
    Decision,
    Ending,
    Open,
    Preparing,
    Starting,
)
from tidelog.client.engine.transaction.state import TransactionState


def are_wanted(state: TransactionState) -> bool:
    """Whether something is to be asked for."""
    if isinstance(state.call, DecideWanted):
        return True
    match state.phase:
        case Starting():
            return True
        case Open():
            return isinstance(state.call, OffsetsWanted)
        case Ending() | Preparing():
            return state.phase.is_flushed
        case _:
            return False


def wanted(state: TransactionState) -> Coordinated:
    """Whose coordinator is to be asked."""
    match state.call:
        case OffsetsWanted() as call:
            return Coordinated(name=call.member.group, is_group=True)
        case DecideWanted() as call:
            return Coordinated(name=call.token.transactional_id)
        case _:
            return state.own


def desk(state: TransactionState) -> CoordinatorDesk:
    """Where that coordinator is."""
    name = wanted(state)
    if name not in state.desks:
        state.desks = {state.own: state.desks[state.own], name: CoordinatorDesk(state.backoff)}
    return state.desks[name]


def next_deadline_ns(state: TransactionState) -> int | None:
    """When `ask` has something to do; None: nothing is wanted, or an answer is waited for."""
    if not are_wanted(state) or state.is_asking:
        return None
    found = desk(state)
    if found.address is not None:
        return state.retry_at_ns
    due_ns = found.next_deadline_ns()
    return None if due_ns is None else max(due_ns, state.retry_at_ns)


def ask(state: TransactionState, now_ns: int) -> None:
    """Look the coordinator up, or ask it, if it is time."""
    if state.is_asking or not are_wanted(state) or now_ns < state.retry_at_ns:
        return
    found = desk(state)
    if found.address is None:
        if found.tick(now_ns) is not None:
            state.act(FindCoordinator(of=wanted(state)))
        return
    state.is_asking = True
    state.number += 1
    state.act(_request(state, found.address))


def _request(state: TransactionState, address: str) -> TransactionEffect:
    number, call = state.number, state.call
    if isinstance(call, DecideWanted):
        return SendDecide(number=number, address=address, token=call.token, decision=call.decision)
    if isinstance(state.phase, Starting):
        return SendInitialize(number=number, address=address, expected=state.phase.expected)
    identity = state.identity
    assert identity is not None, f"{state.phase} without an identity"
    match state.phase:
        case Ending() as phase:
            return _end(state, phase, address)
        case Preparing():
            state.phase = Preparing(is_flushed=True, is_sent=True)
            return SendPrepare(number=number, address=address, identity=identity)
        case _:
            assert isinstance(call, OffsetsWanted), f"nothing is asked for in {state.phase}"
            state.is_touched = True
            return SendOffsets(
                number=number,
                address=address,
                identity=identity,
                member=call.member,
                offsets=call.offsets,
            )


def _end(state: TransactionState, phase: Ending, address: str) -> TransactionEffect:
    assert state.identity is not None, f"{phase} without an identity"
    number = state.number
    state.phase = msgspec.structs.replace(phase, is_sent=True)
    if phase.is_prepared:
        return SendDecide(
            number=number, address=address, token=state.token(), decision=Decision.ABORT
        )
    decision = phase.asked or phase.decision
    state.was_in_doubt = state.may_be_committed
    state.may_be_committed |= decision is Decision.COMMIT
    return SendEnd(number=number, address=address, identity=state.identity, decision=decision)
