"""How a transaction ends: decided once, then completed. Pure.

Owns `decide` and `complete`, by which every end goes: its holder's, the timeout's, an operator's, a
takeover's, a token's. The decision and the identity that follows it are one record: nobody can know
the one without the other, whenever a coordinator dies.
"""

from msgspec.structs import replace

from tidelog.broker.transactions.core.identities import (
    Standing,
    known,
    refuse_former,
    standing,
    was_decided,
)
from tidelog.broker.transactions.state.answers import EndAnswer, Identity
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import EndTransaction
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.records import DecidedToken, TransactionValue
from tidelog.broker.transactions.state.refusals import (
    check_id,
    check_identity,
    concurrent,
    prepared,
    wrong_state,
)
from tidelog.broker.transactions.state.states import (
    COMPLETE_OF,
    EPOCH_MAX,
    PREPARE_OF,
    SUCCESSION_OF,
    Decision,
    Succession,
    TransactionState,
)
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.ids import ProducerEpoch


def on_end(world: TransactionWorld, draft: TransactionDraft, request: EndTransaction) -> EndAnswer:
    """Decides for the holder of the current identity; tells the holder of the last one what was."""
    tried = f"{request.decision.name.lower()} transaction `{request.transactional_id}`"
    check_id(tried, request.transactional_id)
    check_identity(tried, request.identity)
    value = known(draft.transaction, tried).value
    match standing(value, request.identity):
        case Standing.CURRENT:
            if value.state is TransactionState.PREPARED:
                # A producer that fails after its prepare aborts by habit; the other half may have
                # stored the token, and counts on this one.
                raise prepared(tried, value.current)
            decide(world, draft, request.decision, SUCCESSION_OF[request.decision])
            return EndAnswer(identity=known(draft.transaction, tried).value.successor)
        case Standing.COMING:
            raise concurrent(tried, "the transaction before it is still being completed")
        case Standing.LAST:
            return _repeated(value, request, tried)
        case Standing.OTHER:
            raise refuse_former(value, request.identity, tried)


def _repeated(value: TransactionValue, request: EndTransaction, tried: str) -> EndAnswer:
    """Answers an end whose answer was lost, or one that was delayed: it decides nothing."""
    decision = was_decided(value)
    if decision is None:
        raise refuse_former(value, request.identity, tried)
    if decision is not request.decision:
        raise wrong_state(tried, f"{decision.name.lower()} was decided before")
    return EndAnswer(identity=value.successor)


def needs_producer_id(value: TransactionValue) -> bool:
    """Returns whether the next epoch is one that no producer is given."""
    return value.current.producer_epoch >= EPOCH_MAX


def decide(
    world: TransactionWorld, draft: TransactionDraft, decision: Decision, succession: Succession
) -> None:
    """Writes the decision about what is in progress, and the identity that comes after it.

    Raises COORDINATOR_NOT_AVAILABLE, with nothing written, if a producer id is needed and none is
    at hand.
    """
    transaction = draft.transaction
    assert transaction is not None, f"`{draft.transactional_id}` is not known"
    value = transaction.value
    assert not value.is_ending, f"`{draft.transactional_id}` is decided already"
    # One epoch, never two: a takeover fences and aborts by the same step, or at 32,766 it would
    # pass the last epoch that a marker can carry.
    marker_epoch = ProducerEpoch(value.current.producer_epoch + 1)
    next_producer_id = None
    if needs_producer_id(value):
        next_producer_id = world.producer_ids.take()
        world.notes.add(draft.transactional_id, NoteKind.ROTATED)
    decided = value.decided
    if value.state is TransactionState.PREPARED:
        is_by_operator = succession is Succession.OPERATOR
        decided = DecidedToken(value.current, decision, is_by_operator)
    draft.put(
        replace(
            value,
            state=PREPARE_OF[decision],
            current=Identity(value.current.producer_id, marker_epoch),
            last=value.current,
            succession=succession,
            next_producer_id=next_producer_id,
            started_ms=world.wall_ms if value.is_idle else value.started_ms,
            updated_ms=world.stamp_ms,
            principal="",
            decided=decided,
        )
    )
    if decision is Decision.COMMIT:
        world.notes.committed += 1
    else:
        world.notes.aborted += 1
    if not value.topics:
        # Nothing was added, so there is no marker to wait for.
        complete(world, draft)


def complete(world: TransactionWorld, draft: TransactionDraft) -> None:
    """Writes that the markers are there: the next transaction may begin."""
    transaction = draft.transaction
    assert transaction is not None, f"`{draft.transactional_id}` is not known"
    value = transaction.value
    if transaction.markers is not None:
        assert not transaction.markers.waiting, f"{transaction.markers.waiting} have no marker"
        assert not transaction.markers.sent, f"{transaction.markers.sent} are on their way"
    draft.put(
        replace(
            value,
            state=COMPLETE_OF[value.state],
            current=value.successor,
            next_producer_id=None,
            started_ms=-1,
            updated_ms=world.stamp_ms,
            topics=(),
        )
    )
