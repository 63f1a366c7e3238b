"""Checks that what was promised is there, whole, and that what was once read stays."""

from tidelog.chaos.checkers.history.view import Found, PartitionView


def lost_write(view: PartitionView) -> Found:
    """Promised, below the highest offset polled, and read by nobody."""
    for value, offset in view.places.items():
        if view.trimmed_to <= offset < view.highest_polled and value not in view.polled:
            yield (
                f"{value}, acknowledged at {offset}, was read by nobody up to {view.highest_polled}"
            )


def unseen(view: PartitionView) -> Found:
    """Promised, and not in the final drain."""
    if view.drained is None:
        return
    for value, offset in view.places.items():
        if offset >= view.trimmed_to and value not in view.drained:
            yield f"{value}, acknowledged at {offset}, is not in the final drain"
    if view.trimmed_to:
        return
    for send in view.committed:
        for value in send.values:
            if value not in view.places and value not in view.drained:
                yield f"{value}, acknowledged somewhere, is not in the final drain"


def vanished(view: PartitionView) -> Found:
    """Read once, and not in the final drain: it was shown before it was committed, or lost."""
    if view.drained is None:
        return
    for value, offset in view.polled.items():
        if offset >= view.trimmed_to and value not in view.drained:
            yield f"{value} was read at {offset} and is not there any more"


def torn_batch(view: PartitionView) -> Found:
    """A part of a send is in the final drain, and another part is not."""
    if view.drained is None or view.trimmed_to:
        return
    for send in view.sends:
        there = [value for value in send.values if value in view.drained]
        if there and len(there) < len(send.values):
            yield f"of {len(send.values)} records sent together only {there} are there"
