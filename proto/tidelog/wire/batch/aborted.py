"""Which batches of an answer a reader of committed records leaves out. Pure.

Owns the one filter, used by clients for what they fetch and by brokers for what they serve as plain
records. It looks at headers only, and it must never leave out a batch of a committed transaction.

Theory of operation. An answer comes with the stretches of its aborted transactions: a producer, and
the offset of its first batch. Where a stretch ends nobody says, because the log does: at the next
marker of that producer. A producer has one transaction open at a time, so the first marker behind
the beginning of a stretch is the one that aborted it, and what the same producer wrote behind it is
of another transaction. A stretch may begin before the answer, and may reach beyond its end; the
next answer lists it again, so nothing is carried from one answer to the next.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.wire.batch.header import BatchHeader
from tidelog.wire.ids import Offset, ProducerId

NONE_LEFT_OUT: Final[frozenset[int]] = frozenset()


class AbortedStretch(msgspec.Struct, frozen=True, gc=False):
    """Where the batches of an aborted transaction begin; its producer's next marker ends them."""

    producer_id: ProducerId
    first_offset: Offset


def aborted_batches(
    headers: Iterable[BatchHeader], stretches: Iterable[AbortedStretch]
) -> frozenset[int]:
    """Base offsets of the batches that belong to aborted transactions.

    `headers` are those of one answer, in their order; `stretches` come in any order. Markers are
    not among the found: no reader sees them, whatever its isolation.
    """
    # From the end, so that the earliest is popped at the cost of one step.
    waiting = sorted(stretches, key=_first_offset_of, reverse=True)
    if not waiting:
        return NONE_LEFT_OUT
    within: set[int] = set()
    found: list[int] = []
    for header in headers:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            within.add(waiting.pop().producer_id)
        if not within or header.producer_id not in within:
            continue
        if header.is_control:
            within.discard(header.producer_id)
        elif header.is_transactional:
            found.append(header.base_offset)
    return frozenset(found)


def _first_offset_of(stretch: AbortedStretch) -> int:
    return stretch.first_offset
