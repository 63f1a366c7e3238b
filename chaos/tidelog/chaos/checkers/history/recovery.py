"""Checks that a partition works again soon after everything is whole."""

from typing import Final

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.view import Found, PartitionView

_MS: Final = 1_000_000


def recovery(view: PartitionView, bound_ns: int) -> Found:
    """From the last heal to the first acknowledged send, where somebody has tried."""
    healed_ns = view.healed_ns
    if healed_ns is None:
        return
    after = [send for send in view.sends if send.ended_ns >= healed_ns]
    if not after:
        return
    acknowledged = [send.ended_ns for send in after if send.outcome is Outcome.ACKNOWLEDGED]
    if not acknowledged:
        waited_ns = max(send.ended_ns for send in after) - healed_ns
        if waited_ns > bound_ns:
            yield f"nothing was acknowledged within {waited_ns // _MS} ms after the heal"
    elif min(acknowledged) - healed_ns > bound_ns:
        took_ms = (min(acknowledged) - healed_ns) // _MS
        yield f"the first send was acknowledged {took_ms} ms after the heal"


def recovery_ns(view: PartitionView) -> int | None:
    """How long it took; None: nobody knows."""
    if view.healed_ns is None:
        return None
    ends = [
        send.ended_ns - view.healed_ns
        for send in view.sends
        if send.outcome is Outcome.ACKNOWLEDGED and send.ended_ns >= view.healed_ns
    ]
    return min(ends, default=None)
