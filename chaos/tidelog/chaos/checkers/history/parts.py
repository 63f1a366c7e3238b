"""What of a partition's history an excused loss leaves to be judged: three parts of it.

An excuse covers the records that may be gone, and no more: what lies below them is there still,
what was over before the loss was in order, and so is what began once all replicas went on from one
log. Each part is a view of its own, for checks that need nothing but what is in it.
"""

import msgspec

from tidelog.chaos.checkers.history.history import Outcome, Poll
from tidelog.chaos.checkers.history.view import PartitionView


def kept_part(view: PartitionView, kept: int) -> PartitionView:
    """What lies below an offset, at any time."""
    sends = [
        send
        for send in view.sends
        if send.outcome is not Outcome.ACKNOWLEDGED
        or 0 <= send.base_offset <= kept - len(send.values)
    ]
    return PartitionView(
        view.partition,
        sends,
        [_cut(poll, kept) for poll in view.polls],
        trimmed_to=view.trimmed_to,
    )


def part_before(view: PartitionView, at_ns: int) -> PartitionView:
    """What was over by then."""
    return PartitionView(
        view.partition,
        [send for send in view.sends if send.ended_ns < at_ns],
        [poll for poll in view.polls if poll.ended_ns < at_ns],
        trimmed_to=view.trimmed_to,
    )


def part_after(view: PartitionView, at_ns: int) -> PartitionView:
    """What began later."""
    return PartitionView(
        view.partition,
        [send for send in view.sends if send.began_ns > at_ns],
        [poll for poll in view.polls if poll.began_ns > at_ns],
        trimmed_to=view.trimmed_to,
    )


def _cut(poll: Poll, kept: int) -> Poll:
    records = tuple((offset, value) for offset, value in poll.records if offset < kept)
    return msgspec.structs.replace(poll, records=records)
