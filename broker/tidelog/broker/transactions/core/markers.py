"""Markers on their way: to whom they are still to go, and when again. Pure.

Owns what is waited for. A partition counts as done when its leader says that the marker is
committed there, or when the topic is gone from the coordinator's own metadata, which knew it when
it was added. It must never count one as done by anybody's word that it does not exist: a broker
whose metadata are behind says so of a topic that is there, and its part of the transaction would
hang.
"""

from collections.abc import Iterable

from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.messages import SendMarkers
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.transaction import (
    NEVER_MS,
    MarkerProgress,
    Transaction,
)
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def begin(transaction: Transaction) -> None:
    """Every partition that the decision is about waits for a marker; the decision is committed."""
    assert transaction.value.is_ending, f"`{transaction.transactional_id}` is not decided"
    assert transaction.markers is None, f"`{transaction.transactional_id}` has begun to send"
    transaction.markers = MarkerProgress(waiting=dict(transaction.keys), sent={})


def forget_deleted(world: TransactionWorld, progress: MarkerProgress) -> bool:
    """Returns whether nothing is waited for any more, now that deleted topics are left out."""
    for key in [each for each in progress.waiting if world.is_gone(each)]:
        del progress.waiting[key]
        _no_longer_sent(world, progress, key)
    return not progress.waiting


def _no_longer_sent(world: TransactionWorld, progress: MarkerProgress, key: PartitionKey) -> None:
    """Forgets the sending too when it was the last partition of it: its answer would find nothing
    that it is about."""
    send_id = progress.sent.pop(key, None)
    if send_id is None:
        return
    progress.unanswered[send_id] -= 1
    if not progress.unanswered[send_id]:
        del progress.unanswered[send_id], world.sends[send_id]


def send(world: TransactionWorld, transaction: Transaction) -> list[SendMarkers]:
    """Sends the marker to all that wait and to whom none is on its way: one effect, or none."""
    progress, value = transaction.markers, transaction.value
    assert progress is not None, f"`{transaction.transactional_id}` has no markers"
    keys = tuple(sorted(key for key in progress.waiting if key not in progress.sent))
    if not keys:
        return []
    progress.attempt += 1
    if progress.attempt == limits.MARKER_ATTEMPTS_NOTED:
        world.notes.add(transaction.transactional_id, NoteKind.MARKERS_STUCK)
    world.last_send_id += 1
    world.sends[world.last_send_id] = transaction.transactional_id
    progress.sent |= dict.fromkeys(keys, world.last_send_id)
    progress.unanswered[world.last_send_id] = len(keys)
    return [
        SendMarkers(
            send_id=world.last_send_id,
            transactional_id=transaction.transactional_id,
            # As it was decided, however often it is sent: a leader that has this marker knows it
            # by its epoch, and a new epoch would fence the marker that is there already.
            identity=value.current,
            decision=value.decision,
            keys=keys,
            coordinator_epoch=world.coordinator_epoch,
            attempt=progress.attempt,
            transaction_version=value.transaction_version,
        )
    ]


def take_answers(
    world: TransactionWorld,
    transaction: Transaction,
    send_id: int,
    results: Iterable[tuple[PartitionKey, TidelogError | None]],
) -> bool:
    """Returns whether nothing is waited for any more; what was refused is sent again later."""
    progress = transaction.markers
    assert progress is not None, f"`{transaction.transactional_id}` has no markers"
    is_refused = False
    for key, error in results:
        if progress.sent.get(key) != send_id:
            continue
        _no_longer_sent(world, progress, key)
        if error is None:
            del progress.waiting[key]
        else:
            is_refused = True
    if is_refused and transaction.due_ms == NEVER_MS:
        world.timers.set(transaction, world.now_ms + _backoff_ms(progress.attempt))
    return forget_deleted(world, progress)


def _backoff_ms(attempt: int) -> int:
    doublings = min(attempt - 1, 16)
    return min(limits.MARKER_BACKOFF_MS_MIN << doublings, limits.MARKER_BACKOFF_MS_MAX)


def is_deposed(error: TidelogError | None) -> bool:
    """Returns whether a leader has heard of a newer coordinator of the same partition."""
    return error is not None and error.code is ErrorCode.NOT_COORDINATOR
