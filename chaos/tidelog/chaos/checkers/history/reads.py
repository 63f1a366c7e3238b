"""Checks of what readers were handed: nothing refused, nothing invented, nothing left out.

A reader is a session without a seek. Offsets may have gaps (a batch that was given up, a marker);
what may not be left out is an offset that is known to hold a record.
"""

from itertools import pairwise

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.view import Found, PartitionView


def aborted_read(view: PartitionView) -> Found:
    """G1a: a send that definitely failed is read."""
    for send in view.sends:
        if send.outcome is Outcome.FAILED:
            for value in send.values:
                if value in view.polled:
                    yield f"{value} was refused and is at {view.polled[value]}"


def from_nowhere(view: PartitionView) -> Found:
    """A record that nobody sent here."""
    sent = {value for send in view.sends for value in send.values}
    for value, offset in view.polled.items():
        if value not in sent:
            yield f"{value} at {offset} was sent by nobody"


def int_poll_skip(view: PartitionView) -> Found:
    """One answer leaves out a record that is known to be there."""
    for poll in view.polls:
        for before, after in _steps([offset for offset, _ in poll.records]):
            if _leaves_out(view, before, after):
                yield f"{poll.reader} was handed {after} behind {before} in one answer"


def ext_poll_skip(view: PartitionView) -> Found:
    """Between two answers a reader misses a record that is known to be there."""
    stands: dict[str, int] = {}
    for poll in view.polls:
        before = stands.get(poll.reader)
        if before is None and poll.position >= 0:
            before = poll.position - 1
        if poll.records:
            first = poll.records[0][0]
            if before is not None and before < first and _leaves_out(view, before, first):
                yield f"{poll.reader} stood behind {before} and was handed {first}"
            before = poll.records[-1][0]
        if before is not None:
            stands[poll.reader] = before


def int_nonmonotonic_poll(view: PartitionView) -> Found:
    """One answer goes back, or stays."""
    for poll in view.polls:
        for before, after in _steps([offset for offset, _ in poll.records]):
            if after <= before:
                yield f"{poll.reader} was handed {after} behind {before} in one answer"


def ext_nonmonotonic_poll(view: PartitionView) -> Found:
    """An answer begins where the reader has been, or before what it asked for."""
    stands: dict[str, int] = {}
    for poll in view.polls:
        if not poll.records:
            continue
        before = max(stands.get(poll.reader, -1), poll.position - 1)
        if poll.records[0][0] <= before:
            yield f"{poll.reader} stood behind {before} and was handed {poll.records[0][0]}"
        stands[poll.reader] = poll.records[-1][0]


def beyond_watermark(view: PartitionView) -> Found:
    """A record at or above the high watermark of the answer that carried it."""
    for poll in view.polls:
        if poll.records and 0 <= poll.high_watermark <= poll.records[-1][0]:
            offset, value = poll.records[-1]
            yield f"{value} at {offset} came with the high watermark {poll.high_watermark}"


def _steps(offsets: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(offsets))


def _leaves_out(view: PartitionView, before: int, after: int) -> bool:
    """Whether a known record lies between the two; the first may be no known one itself."""
    if after - before <= 1 or after not in view.ranks:
        return False
    rank = view.ranks.get(before)
    if rank is None:
        first = max(before + 1, view.trimmed_to)
        return any(offset in view.ranks for offset in range(first, after))
    return view.ranks[after] - rank > 1
