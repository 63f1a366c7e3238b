"""Checks of what producers sent: whole runs, in the order in which each stream has sent them.

A stream is a producer's run of sends into one partition of which the order is promised: with
sequences, or one request behind the other on one gRPC stream.
"""

from itertools import pairwise

from tidelog.chaos.checkers.history.history import Acks, Outcome, Send
from tidelog.chaos.checkers.history.view import Found, PartitionView


def int_send_skip(view: PartitionView) -> Found:
    """Other records lie between those of one send."""
    for send in view.sends:
        there = [(view.polled[value], value) for value in send.values if value in view.polled]
        for (before, first), (after, second) in pairwise(there):
            if after > before + 1:
                yield f"{first} is at {before} and {second}, sent with it, at {after}"


def int_nonmonotonic_send(view: PartitionView) -> Found:
    """The records of one send lie in another order."""
    for send in view.sends:
        there = [(view.polled[value], value) for value in send.values if value in view.polled]
        for (before, first), (after, second) in pairwise(there):
            if after < before:
                yield f"{second} at {after} was sent behind {first} at {before}"


def ext_nonmonotonic_send(view: PartitionView) -> Found:
    """A later send of a stream was promised a lower offset than an earlier one."""
    for stream, sends in _streams(view).items():
        highest = -1
        for send in sends:
            if not send.is_committed or send.base_offset < 0:
                continue
            if send.base_offset <= highest:
                yield f"{stream}: {send.values[0]} got {send.base_offset} after {highest}"
            highest = max(highest, send.base_offset + len(send.values) - 1)


def reordered(view: PartitionView) -> Found:
    """Sends of one stream lie in the log in another order than they were sent."""
    for sends in _streams(view).values():
        last = -1
        for send in sends:
            if send.acks is not Acks.ALL or not send.is_idempotent:
                continue
            for value in send.values:
                offset = view.polled.get(value)
                if offset is not None and offset < last:
                    yield f"{value} at {offset} was sent behind what is at {last}"
                last = max(last, -1 if offset is None else offset)


def overtaken(view: PartitionView) -> Found:
    """A send was read above one that its stream began only after it was acknowledged.

    Holds for acks=1 as well, as long as both have survived.
    """
    for sends in _streams(view).values():
        ends: list[tuple[int, int]] = []
        for send in sends:
            offset = view.polled.get(send.values[0])
            if offset is None:
                continue
            if any(ended < send.began_ns and other > offset for ended, other in ends[-8:]):
                yield f"{send.values[0]} at {offset} lies before what was acknowledged before it"
            if send.outcome is Outcome.ACKNOWLEDGED and send.acks is not Acks.NONE:
                ends.append((send.ended_ns, offset))


def _streams(view: PartitionView) -> dict[str, list[Send]]:
    """By name, in the order in which they were sent."""
    streams: dict[str, list[Send]] = {}
    for send in view.sends:
        if send.stream:
            streams.setdefault(send.stream, []).append(send)
    for sends in streams.values():
        sends.sort(key=lambda send: send.stream_position)
    return streams
