"""Batches and markers of transactions, from their arrival to the log. Pure.

Owns what a leader asks of coordinators, and the second judgement in an append's turn. It must never
append a batch that is not verified for its very transaction, nor answer a marker that is there
already before the log is committed as far as it reaches; followers never judge. Stop 5 of a
record's walk.

Theory of operation. The rules are those of `log.transactions.admission`; here they meet the queue:

    arrives ── open here, or verified ───────────────────────▶ queued ── its turn ──▶ judged again
       │  ▲                                                       ▲
       │  │ the marker is in the log                              │
       ├──┴─ the transaction before it is open ── waits a moment  │
       └── Verify ── waits, later ones behind it ── Verified: yes ┘
                                                 └─ Verified: no ──▶ all of them are refused

A turn sees what is planned in the same write as if it were in the log: a marker in front of a batch
has ended its transaction, although none of it is written. What was verified goes with the first
batch, with the transaction's marker, and with the leadership: an answer that comes later finds
nobody who waits, and verifies nothing.

The answer to an end comes before its markers, so a producer that goes on at once is often early by
a few milliseconds. Its batch is parked until the marker comes, and told to come again only if none
does in time.

A batch of the present epoch that is stored is answered as it was: its sender has missed the answer.
A batch of an older epoch is refused even if it is stored. Its transaction is over: whoever ended it
had all answers, or had given them up.
"""

from typing import Final

from tidelog.broker.directory.core import resends
from tidelog.broker.directory.core.messages import (
    AppendBatch,
    AppendTransactional,
    Verified,
    Verify,
    VerifyTransaction,
)
from tidelog.broker.directory.core.partition import Following, Partition
from tidelog.broker.directory.core.producer_check import is_next
from tidelog.broker.directory.core.role_errors import not_leader
from tidelog.broker.directory.core.rounds import Again, Awaiting, Planned
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.directory.core.stopping import refusal
from tidelog.broker.directory.core.verifying import Early, Waiting
from tidelog.broker.log.producer_state import NO_TRANSACTION, Producer, here_of
from tidelog.broker.log.transactions.admission import FirstBatch, MarkerHere, MarkerVerdict
from tidelog.broker.log.transactions.markers import marker_of
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionKey

NO_SEQUENCE: Final = -1


def on_arrival(
    state: DirectoryState,
    message: AppendTransactional | VerifyTransaction,
    *,
    may_be_early: bool = True,
) -> list[AppendBatch]:
    """Returns the batch if it goes to the queue at once; else it waits, or is refused."""
    if isinstance(message, AppendTransactional):
        append, header = message.append, message.append.header
        waiting, key = Waiting(append.token, append), append.key
        batch = FirstBatch(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    else:
        waiting, key = Waiting(message.token, None), message.key
        batch = FirstBatch(
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            base_sequence=NO_SEQUENCE,
        )
    try:
        partition = _leading(state, key)
        here, verifying = partition.log.producer_here(batch.producer_id), state.verify(partition)
        if may_be_early and here is not None and here.is_open and here.epoch < batch.producer_epoch:
            early = Early(waiting.token, batch.producer_id, state.now_ms, message)
            if verifying.wait_for_end(early):
                state.note_early(partition)
                return []
        ticket = verifying.judge(here, batch, waiting, tried=f"append to {key}")
    except TidelogError as error:
        state.refuse(waiting.token, error)
        return []
    if ticket is None:
        return _let_go(state, [waiting])
    if ticket:
        state.emit(
            Verify(
                key=key,
                transactional_id=message.transactional_id,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                ticket=ticket,
                timeout_ms=message.timeout_ms,
            )
        )
    return []


def _leading(state: DirectoryState, key: PartitionKey) -> Partition:
    """The partition, if a batch for it would be queued: else no coordinator is asked for it."""
    partition = state.partitions.get(key)
    if partition is None or state.is_full or partition.log.failure or partition.cut:
        raise refusal(state, key)
    if isinstance(partition.role, Following):
        raise not_leader(key)
    return partition


def on_verified(state: DirectoryState, message: Verified) -> list[AppendBatch]:
    """Returns the batches that waited for this answer, in the order in which they arrived."""
    partition = state.partitions.get(message.key)
    if partition is None or partition.verifying is None:
        return []
    waiting = partition.verifying.on_answer(message.producer_id, message.ticket, message.error)
    if message.error is None:
        return _let_go(state, waiting)
    state.refuse_all((each.token for each in waiting), message.error)
    return []


def _let_go(state: DirectoryState, waiting: list[Waiting]) -> list[AppendBatch]:
    appends = []
    for each in waiting:
        if each.append is None:
            state.done(each.token, Offset(0))
        else:
            appends.append(each.append)
    return appends


def judge(state: DirectoryState, partition: Partition, append: AppendBatch) -> Again | None:
    """Looks at a batch or marker in its turn. Returns what it repeats, or None where it is to be
    appended; refuses what does not belong behind what is stored and planned by now."""
    header = append.header
    last = resends.last_planned(partition, header.producer_id)
    if last is not None and is_next(last, header) and last.is_transactional and not last.is_control:
        return None
    known = resends.known_in_turn(partition, header.producer_id)
    marker = marker_of(append.batch, header)
    if marker is not None:
        return _judge_marker(state, partition, append, marker, known)
    batch = FirstBatch(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    here = None if known is None else here_of(known)
    state.verify(partition).admission.admit(here, batch, tried=f"append to {append.key}")
    again = resends.first_of(partition, append, known)
    if again is not None and here is not None and not here.is_open:
        # What is stored of this epoch is of no transaction: it is another batch.
        raise TidelogError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"append to {append.key}",
            happened=f"producer {header.producer_id} has sent sequence {header.base_sequence} of "
            f"epoch {header.producer_epoch} before, in a batch of no transaction",
            hint="Abort the transaction, and send nothing under its identity that is not a part "
            "of it.",
        )
    return again


def _judge_marker(
    state: DirectoryState,
    partition: Partition,
    append: AppendBatch,
    marker: Marker,
    known: Producer | None,
) -> Again | None:
    header, plan = append.header, partition.plan
    if append.hangs_from != NO_TRANSACTION:
        _check_hanging(append, known)
    verdict = state.verify(partition).admission.judge_marker(
        None if known is None else here_of(known),
        MarkerHere(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        ),
        tried=f"end the transaction of producer {header.producer_id} in {append.key}",
    )
    if verdict is MarkerVerdict.APPEND:
        return None
    # It is somewhere below the end: once all of that is committed it is as well.
    end_offset = partition.log.log_end_offset if plan is None else plan.end_offset
    return Again(append, Awaiting(append.token, partition, end_offset - 1, end_offset))


def _check_hanging(append: AppendBatch, known: Producer | None) -> None:
    """An operator has looked at one transaction: its marker must end no other one."""
    start = NO_TRANSACTION if known is None else known.transaction_start
    if start != append.hangs_from:
        what = "none is open" if start == NO_TRANSACTION else f"the open one begins at {start}"
        raise TidelogError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"abort the transaction of producer {append.header.producer_id} that begins at "
            f"offset {append.hangs_from} of {append.key}",
            happened=what,
            hint="List the partition's producers again: it may have ended meanwhile.",
        )


def note(state: DirectoryState, planned: Planned) -> list[AppendBatch]:
    """A batch or marker that this replica has admitted is in the log. Returns the batches that go
    to the queue because of it."""
    header, verifying = planned.header, planned.plan.partition.verifying
    if verifying is None:
        return []
    if not header.is_control:
        verifying.admission.on_batch(header.producer_id, header.producer_epoch)
        return []
    verifying.admission.on_marker(header.producer_id, header.producer_epoch)
    return [
        append
        for early in verifying.take_early(header.producer_id)
        for append in on_arrival(state, early.message)
    ]


def on_tick(state: DirectoryState) -> list[AppendBatch]:
    """Those that have waited for long enough are told to come again, or go on."""
    found = []
    for partition in state.take_early():
        verifying = partition.verifying
        if verifying is None:
            continue
        for early in verifying.take_too_early(state.now_ms):
            found += on_arrival(state, early.message, may_be_early=False)
        if verifying.has_early:
            state.note_early(partition)
    return found
