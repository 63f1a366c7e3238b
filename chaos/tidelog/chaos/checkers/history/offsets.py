"""Checks of what lies at which offset: one value at one, one of each, new ones above the old."""

from tidelog.chaos.checkers.history.view import Found, PartitionView, placed


def inconsistent_offsets(view: PartitionView) -> Found:
    """One offset, two values: two reads differ, or a read differs from what was promised."""
    values: dict[int, str] = {}
    for poll in view.polls:
        for offset, value in poll.records:
            if values.setdefault(offset, value) != value:
                yield f"offset {offset} held {values[offset]}, then {value}"
    for value, offset in view.places.items():
        if values.get(offset, value) != value:
            yield f"offset {offset} was promised to {value} and held {values[offset]}"


def duplicate(view: PartitionView) -> Found:
    """One value at two offsets, though it was sent once or with sequences."""
    repeatable = view.repeatable
    for poll in view.polls:
        for offset, value in poll.records:
            if view.polled[value] != offset and value not in repeatable:
                yield f"{value} is at {view.polled[value]} and at {offset}"


def reused_offset(view: PartitionView) -> Found:
    """One offset was promised to two sends."""
    owners: dict[int, str] = {}
    for send in view.committed_at:
        for offset, value in placed(send):
            if owners.setdefault(offset, value) != value:
                yield f"offset {offset} was given to {owners[offset]} and to {value}"


def misplaced(view: PartitionView) -> Found:
    """A value is read at another offset than its acknowledgement said."""
    for value, offset in view.polled.items():
        said = view.acknowledged_places.get(value, offset)
        if said != offset and value not in view.repeatable:
            yield f"{value} was acknowledged at {said} and read at {offset}"


def fresh_offset(view: PartitionView) -> Found:
    """A new offset exceeds every offset that was promised before its send began."""
    by_end = sorted(view.committed_at, key=lambda send: send.ended_ns)
    highest, at = -1, 0
    for send in sorted(view.committed_at, key=lambda send: send.began_ns):
        while at < len(by_end) and by_end[at].ended_ns < send.began_ns:
            highest = max(highest, by_end[at].base_offset + len(by_end[at].values) - 1)
            at += 1
        if send.base_offset <= highest:
            yield f"{send.values[0]} got {send.base_offset} after {highest} was acknowledged"
