"""Checks that what committed stays: all of a transaction can be read, once and for ever.

A record counts as lost only where somebody passed its place or where the final drain ended: one
that nobody came to is not missed.
"""

from collections.abc import Iterator

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    SendOperation,
    Transaction,
)
from tidelog.chaos.checkers.transactions.reads import skips
from tidelog.chaos.checkers.transactions.view import (
    Findings,
    TransactionFinding,
    TransactionView,
)

Missed = tuple[Transaction, SendOperation, str]
"""A committed record that was never read, and how that is known."""


def torn_transaction(view: TransactionView) -> Findings:
    """Part of a transaction is read, and part of it is missed for ever."""
    by_transaction: dict[int, list[Missed]] = {}
    for missed in _missed(view):
        by_transaction.setdefault(missed[0].number, []).append(missed)
    for parts in by_transaction.values():
        transaction = parts[0][0]
        read = [each for each in transaction.sends() if each.value in view.places]
        if not read:
            continue
        shown = read[0]
        partition, offset = next(iter(view.places[shown.value]))
        _, lost, how = parts[0]
        yield TransactionFinding(
            partition=lost.partition,
            detail=(
                f"of {transaction.name} {shown.value} was read in {partition} at {offset}, but "
                f"{len(parts)} of its {_count(transaction)} records never were: "
                f"{lost.value} in {lost.partition}, {how}"
            ),
            values=tuple(each.value for _, each, _ in parts),
        )


def lost_write(view: TransactionView) -> Findings:
    """A committed record lies below what was read, and was never read itself."""
    ends = _drained(view)
    for each in view.polls:
        for partition, records in each.poll.records:
            ends[partition] = max(ends.get(partition, 0), *(offset for offset, _ in records))
    for transaction, sent, how in _missed(view):
        if 0 <= sent.offset < ends.get(sent.partition, 0):
            yield _finding(transaction, sent, how)


def unseen(view: TransactionView) -> Findings:
    """A committed record was not read by the end of the final drain."""
    for transaction, sent, how in _missed(view):
        yield _finding(transaction, sent, how)


def vanished(view: TransactionView) -> Findings:
    """A committed record was read once, and the final drain does not find it."""
    drained = _drained(view)
    kept = {
        value
        for each in view.polls
        if each.poll.is_final
        for _, records in each.poll.records
        for _, value in records
    }
    for transaction, sent in view.committed_sends():
        is_kept = sent.value in kept or sent.value not in view.places
        if is_kept or not _may_miss(view, sent, drained):
            continue
        (partition, offset), reader = next(iter(view.places[sent.value].items()))
        yield TransactionFinding(
            partition=partition,
            detail=(
                f"{sent.value} of {transaction.name} was read at {offset} by {reader.name}; the "
                f"final drain read up to {drained[partition]} and does not have it"
            ),
            values=(sent.value,),
        )


def _finding(transaction: Transaction, sent: SendOperation, how: str) -> TransactionFinding:
    place = "" if sent.offset == OFFSET_UNKNOWN else f", acknowledged at {sent.offset},"
    return TransactionFinding(
        partition=sent.partition,
        detail=f"{sent.value} of {transaction.name}{place} was never read: {how}",
        values=(sent.value,),
    )


def _missed(view: TransactionView) -> Iterator[Missed]:
    passed = {
        value: passage.told
        for passage, records in skips(view)
        for _, value in records
        if value not in view.places
    }
    drained = _drained(view)
    for transaction, sent in view.committed_sends():
        if sent.value in view.places:
            continue
        if sent.value in passed:
            yield transaction, sent, passed[sent.value]
        elif _may_miss(view, sent, drained):
            end = drained[sent.partition]
            yield transaction, sent, f"the final drain read up to {end} without it"


def _may_miss(view: TransactionView, sent: SendOperation, drained: dict[PartitionKey, int]) -> bool:
    """Whether the final drain has to have read it."""
    if sent.partition not in drained or sent.partition in view.history.compacted:
        return False
    log_start = view.history.log_starts.get(sent.partition, 0)
    # Where a trim took records, one of unknown place may be among them.
    return log_start == 0 or view.place_of(sent) >= log_start


def _drained(view: TransactionView) -> dict[PartitionKey, int]:
    """Partitions that were drained at the end, and how far."""
    ends: dict[PartitionKey, int] = {}
    for each in view.polls:
        if each.poll.is_final:
            for partition, end in each.poll.ends:
                ends[partition] = max(ends.get(partition, 0), end)
    return ends


def _count(transaction: Transaction) -> int:
    return sum(1 for _ in transaction.sends())
