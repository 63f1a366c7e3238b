"""Checks of what consumers were handed one after the other: forward, and leaving nothing out.

Offsets have gaps: markers and aborted records take offsets too. What may not be left out is an
offset that is known to hold a committed record.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import OFFSET_UNKNOWN
from tidelog.chaos.checkers.transactions.sessions import Passage, passages
from tidelog.chaos.checkers.transactions.view import (
    Findings,
    TransactionFinding,
    TransactionView,
    spell_ms,
)

NAMED_MAX: Final = 3
"""Of the records that a reader left out, evidence names so many."""

Skip = tuple[Passage, list[tuple[int, str]]]


def int_nonmonotonic_poll(view: TransactionView) -> Findings:
    """One answer goes back, or stays."""
    return _backward(view, is_internal=True)


def ext_nonmonotonic_poll(view: TransactionView) -> Findings:
    """An answer begins where its consumer has been."""
    return _backward(view, is_internal=False)


def _backward(view: TransactionView, *, is_internal: bool) -> Findings:
    for passage in passages(view):
        if passage.is_internal is is_internal and passage.after <= passage.before:
            key = (passage.reader.number, passage.partition)
            if key not in view.blame.polls:
                yield TransactionFinding(
                    partition=passage.partition, detail=passage.told, polls=(key,)
                )


def dirty_order(view: TransactionView) -> Findings:
    """A record is read although below it lies one whose transaction commits only later.

    Whoever reads on from there never sees the lower record, or sees it after the higher one.
    """
    open_until = _open_until(view)
    for each in view.polls:
        highest: dict[PartitionKey, int] = {}
        for partition, records in each.poll.records:
            highest[partition] = max(offset for offset, _ in records)
        for partition, end in each.poll.ends:
            highest[partition] = max(highest.get(partition, OFFSET_UNKNOWN), end)
        for partition, offset in highest.items():
            key = (each.number, partition)
            offsets, latest = open_until.get(partition, ([], []))
            below = bisect_left(offsets, offset)
            if below == 0 or key in view.blame.polls:
                continue
            deciding_ns, at, value = latest[below - 1]
            if each.poll.ended_ns < deciding_ns:
                yield TransactionFinding(
                    partition=partition,
                    detail=(
                        f"{each.name} read up to {offset}; {value} of "
                        f"{view.writers[value][0].name} lies below, at {at}, and its commit was "
                        f"called at {spell_ms(deciding_ns)}, after that"
                    ),
                    polls=(key,),
                )


def _open_until(
    view: TransactionView,
) -> dict[PartitionKey, tuple[list[int], list[tuple[int, int, str]]]]:
    """For each offset the latest call of a commit by any record at or below it."""
    found: dict[PartitionKey, list[tuple[int, int, str]]] = {}
    for transaction, sent in view.committed_sends():
        offset = view.place_of(sent)
        if transaction.is_transactional and offset != OFFSET_UNKNOWN:
            found.setdefault(sent.partition, []).append(
                (offset, transaction.deciding_ns, sent.value)
            )
    prefixes: dict[PartitionKey, tuple[list[int], list[tuple[int, int, str]]]] = {}
    for partition, records in found.items():
        records.sort()
        latest = accumulate(((deciding, at, value) for at, deciding, value in records), max)
        prefixes[partition] = ([at for at, _, _ in records], list(latest))
    return prefixes


def skips(view: TransactionView) -> list[Skip]:
    """Every passage that leaves out known records, with those that it leaves out."""
    return view.remembered("skips", lambda: list(_skips(view)))


def _skips(view: TransactionView) -> Iterator[Skip]:
    known = view.known()
    for passage in passages(view):
        if passage.after <= passage.before:
            continue
        records = known.get(passage.partition)
        if records is None or passage.partition in view.history.compacted:
            continue
        if (passage.reader.number, passage.partition) in view.blame.polls:
            continue
        first = bisect_right(records, (passage.before, "\U0010ffff"))
        last = bisect_left(records, (passage.after, ""))
        if first < last:
            yield passage, records[first:last]


def intermediate_read(view: TransactionView) -> Findings:
    """G1b: a consumer reads one record of a transaction and passes over another of it."""
    touched = _touched(view) if skips(view) else set()

    def is_of_known(passage: Passage, value: str) -> bool:
        writer = view.writers[value][0].number
        return (passage.reader.transaction.process, writer) in touched

    return _skipped(view, is_of_known, lambda _: True)


def int_poll_skip(view: TransactionView) -> Findings:
    """One answer leaves out a record that is known to be there."""
    return _skipped(view, lambda _, __: True, lambda passage: passage.is_internal)


def ext_poll_skip(view: TransactionView) -> Findings:
    """Between two answers a consumer misses a record that is known to be there."""
    return _skipped(view, lambda _, __: True, lambda passage: not passage.is_internal)


def _skipped(
    view: TransactionView,
    is_meant: Callable[[Passage, str], bool],
    is_of_kind: Callable[[Passage], bool],
) -> Findings:
    for passage, records in skips(view):
        meant = [(at, value) for at, value in records if is_meant(passage, value)]
        if not meant or not is_of_kind(passage):
            continue
        named = ", ".join(
            f"{value} of {view.writers[value][0].name} at {at}" for at, value in meant[:NAMED_MAX]
        )
        more = f" and {len(meant) - NAMED_MAX} more" if len(meant) > NAMED_MAX else ""
        yield TransactionFinding(
            partition=passage.partition,
            detail=f"{passage.told}, leaving out {named}{more}",
            polls=((passage.reader.number, passage.partition),),
        )


def _touched(view: TransactionView) -> set[tuple[str, int]]:
    """Each consumer with the transactions of which it has read anything."""
    return {
        (each.transaction.process, view.writers[value][0].number)
        for each in view.polls
        for _, records in each.poll.records
        for _, value in records
        if value in view.writers
    }
