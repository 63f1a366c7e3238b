"""How a producer takes a transactional id over. Pure.

Owns the answer to InitTransactionalProducer. Two rules keep it safe to repeat and safe to delay:
with an expected identity only the holder of that identity gets through, and a repetition changes
nothing; without one every call brings a new epoch, so that two processes never share one.
"""

from msgspec.structs import replace

from tidelog.broker.transactions.core.ending import decide, needs_producer_id
from tidelog.broker.transactions.core.identities import Standing, standing
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import Identity, InitAnswer
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import InitTransactionalProducer
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.refusals import (
    check_id,
    check_identity,
    concurrent,
    exhausted,
    fenced,
    invalid,
    prepared,
)
from tidelog.broker.transactions.state.states import Decision, Succession, TransactionState
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import ProducerEpoch


def on_init(
    world: TransactionWorld, draft: TransactionDraft, request: InitTransactionalProducer
) -> InitAnswer | TidelogError:
    """Returns the identity to work with, or an error that tells of an abort that it began."""
    tried = f"take transactional id `{request.transactional_id}` over"
    timeout_ms = _checked_timeout(world, request, tried)
    transaction = draft.transaction
    if transaction is None:
        return _begin(world, draft, timeout_ms, tried)
    value = transaction.value
    succession = Succession.TAKEN_OVER
    if request.expected is not None:
        if _is_successor(value, request.expected):
            return _repeated(world, draft, value, timeout_ms, tried)
        if standing(value, request.expected) not in (Standing.CURRENT, Standing.COMING):
            raise fenced(tried, f"another producer took over from identity {request.expected}")
        succession = Succession.RENEWED
    if value.is_ending:
        raise _unfinished(tried)
    match value.state:
        case TransactionState.PREPARED:
            # It stands until somebody with the token decides: the other half counts on it.
            raise prepared(tried, value.current)
        case TransactionState.ONGOING:
            decide(world, draft, Decision.ABORT, succession)
            world.notes.add(draft.transactional_id, NoteKind.TAKEN_OVER)
            return _unfinished(tried)
        case _:
            return _renew(world, draft, value, succession, timeout_ms)


def _checked_timeout(
    world: TransactionWorld, request: InitTransactionalProducer, tried: str
) -> int:
    check_id(tried, request.transactional_id)
    if request.expected is not None:
        check_identity(tried, request.expected)
    wished, highest = request.transaction_timeout_ms, world.settings.timeout_ms_max
    if not 0 <= wished <= highest:
        raise invalid(tried, f"a timeout of {wished:,} ms is not within 1 to {highest:,}")
    return wished or min(world.settings.timeout_ms_default, highest)


def _unfinished(tried: str) -> TidelogError:
    return concurrent(tried, "its transaction in progress is still being ended")


def _begin(
    world: TransactionWorld, draft: TransactionDraft, timeout_ms: int, tried: str
) -> InitAnswer:
    """Makes an id of which nothing is known, or not any more."""
    if len(world.transactions.by_id) >= limits.TRANSACTIONAL_IDS_MAX:
        raise exhausted(
            tried,
            "its coordinator has too many",
            "TRANSACTIONAL_IDS_MAX",
            limits.TRANSACTIONAL_IDS_MAX,
            "Use transactional ids again instead of making new ones, or wait until some expire.",
        )
    identity = Identity(world.producer_ids.take(), ProducerEpoch(0))
    draft.put(
        TransactionValue(
            state=TransactionState.EMPTY,
            current=identity,
            last=None,
            succession=Succession.NONE,
            next_producer_id=None,
            timeout_ms=timeout_ms,
            started_ms=-1,
            updated_ms=world.stamp_ms,
            topics=(),
            principal="",
            decided=None,
        )
    )
    return InitAnswer(identity=identity)


def _is_successor(value: TransactionValue, expected: Identity) -> bool:
    """Returns whether the current identity is this holder's by right, though it may not know.

    The holder of the last one ended the transaction, or asked to take over, and the answer was
    lost; or the coordinator aborted. Nobody else was given the current one. That is otherwise only
    where another process took over.
    """
    is_last = value.last is not None and expected == value.last
    return is_last and value.succession is not Succession.TAKEN_OVER


def _repeated(
    world: TransactionWorld,
    draft: TransactionDraft,
    value: TransactionValue,
    timeout_ms: int,
    tried: str,
) -> InitAnswer:
    """Tells the identity that is there already: as often as it is asked, with no effect."""
    if value.is_ending:
        raise _unfinished(tried)
    if not value.is_idle:
        # Whoever works with the current identity has been given it, so this call was delayed. It
        # must not abort what began since.
        raise fenced(tried, f"a transaction has begun since under the identity after {value.last}")
    if value.timeout_ms != timeout_ms:
        draft.put(
            replace(
                value,
                state=TransactionState.EMPTY,
                timeout_ms=timeout_ms,
                updated_ms=world.stamp_ms,
            )
        )
    return InitAnswer(identity=value.current)


def _renew(
    world: TransactionWorld,
    draft: TransactionDraft,
    value: TransactionValue,
    succession: Succession,
    timeout_ms: int,
) -> InitAnswer:
    """Gives the next epoch, or a new producer id after the last one."""
    former = value.current
    if needs_producer_id(value):
        identity = Identity(world.producer_ids.take(), ProducerEpoch(0))
        world.notes.add(draft.transactional_id, NoteKind.ROTATED)
    else:
        identity = Identity(former.producer_id, ProducerEpoch(former.producer_epoch + 1))
    draft.put(
        replace(
            value,
            state=TransactionState.EMPTY,
            current=identity,
            last=former,
            succession=succession,
            timeout_ms=timeout_ms,
            updated_ms=world.stamp_ms,
        )
    )
    return InitAnswer(identity=identity)
