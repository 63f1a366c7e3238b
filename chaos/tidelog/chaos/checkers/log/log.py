"""Checks on the history of a plain log: no transactions, no groups, no compaction.

Each check takes the history of one partition and returns what is wrong with it, at most a few
anomalies of a kind. docs/simulation.md lists what each one means.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidelog.chaos.checkers.history.history import Anomaly, History, Outcome, PartitionKey, Send

_ANOMALIES_MAX: Final = 5

Found = Iterator[str]
Check = Callable[[History], Found]


def inconsistent_offsets(history: History) -> Found:
    """One offset, two values; reads after a recovery equal reads before."""
    values: dict[int, str] = {}
    for poll in history.polls:
        for offset, value in poll.records:
            if values.setdefault(offset, value) != value:
                yield f"offset {offset} held {values[offset]}, then {value}"


def duplicate(history: History) -> Found:
    """One value at two offsets, though every batch is sent at most once."""
    offsets: dict[str, int] = {}
    for poll in history.polls:
        for offset, value in poll.records:
            if offsets.setdefault(value, offset) != offset:
                yield f"{value} is at {offsets[value]} and at {offset}"


def reused_offset(history: History) -> Found:
    """Two acknowledged sends were given one offset."""
    owners: dict[int, str] = {}
    for send in _acknowledged(history):
        for offset, value in _placed(send):
            if owners.setdefault(offset, value) != value:
                yield f"offset {offset} was given to {owners[offset]} and to {value}"


def misplaced(history: History) -> Found:
    """An acknowledged value is read at another offset than its acknowledgement said."""
    places = _places(history)
    for poll in history.polls:
        for offset, value in poll.records:
            if places.get(value, offset) != offset:
                yield f"{value} was acknowledged at {places[value]} and read at {offset}"


def lost_write(history: History) -> Found:
    """Acknowledged, below the highest offset polled, and read by nobody."""
    polled = _polled(history)
    highest = max((offset for poll in history.polls for offset, _ in poll.records), default=-1)
    for value, offset in _places(history).items():
        if offset < highest and value not in polled:
            yield f"{value}, acknowledged at {offset}, was read by nobody up to {highest}"


def unseen(history: History) -> Found:
    """Acknowledged, and not in the final drain."""
    final = [poll for poll in history.polls if poll.is_final]
    if not final:
        return
    drained = {value for poll in final for _, value in poll.records}
    for value, offset in _places(history).items():
        if value not in drained:
            yield f"{value}, acknowledged at {offset}, is not in the final drain"


def vanished(history: History) -> Found:
    """Read once, and not in the final drain."""
    final = [poll for poll in history.polls if poll.is_final]
    if not final:
        return
    drained = {value for poll in final for _, value in poll.records}
    for poll in history.polls:
        for offset, value in poll.records:
            if value not in drained:
                yield f"{value} was read at {offset} by {poll.reader} and is not there any more"


def failed_read(history: History) -> Found:
    """A send that definitely failed is read."""
    polled = _polled(history)
    for send in history.sends:
        if send.outcome is Outcome.FAILED:
            for value in send.values:
                if value in polled:
                    yield f"{value} was refused and is at {polled[value]}"


def from_nowhere(history: History) -> Found:
    """A record that nobody sent."""
    sent = {value for send in history.sends for value in send.values}
    for poll in history.polls:
        for offset, value in poll.records:
            if value not in sent:
                yield f"{value} at {offset} was sent by nobody"


def torn_batch(history: History) -> Found:
    """A part of a send is in the final drain, and another part is not."""
    final = [poll for poll in history.polls if poll.is_final]
    if not final:
        return
    drained = {value for poll in final for _, value in poll.records}
    for send in history.sends:
        there = [value for value in send.values if value in drained]
        if there and len(there) < len(send.values):
            yield f"of {len(send.values)} records sent together only {there} are there"


def poll_skip(history: History) -> Found:
    """A reader's answers leave a gap or go back, within one answer or between two."""
    expected: dict[str, int] = {}
    for poll in history.polls:
        begin = expected.get(poll.reader, poll.position)
        if begin != poll.position:
            yield f"{poll.reader} stood at {begin} and asked at {poll.position}"
        for offset, _ in poll.records:
            if offset != begin:
                yield f"{poll.reader} expected {begin} and got {offset}"
            begin = offset + 1
        expected[poll.reader] = begin


def fresh_offset(history: History) -> Found:
    """A new offset exceeds every offset acknowledged before its send began."""
    acknowledged = sorted(_acknowledged(history), key=lambda send: send.ended_ns)
    began = sorted(acknowledged, key=lambda send: send.began_ns)
    highest, at = -1, 0
    for send in began:
        while at < len(acknowledged) and acknowledged[at].ended_ns < send.began_ns:
            before = acknowledged[at]
            highest = max(highest, before.base_offset + len(before.values) - 1)
            at += 1
        if send.base_offset <= highest:
            yield f"{send.values[0]} got {send.base_offset} after {highest} was acknowledged"


def reordered(history: History) -> Found:
    """Sends of one stream lie in the log in another order than they were sent."""
    polled = _polled(history)
    last: dict[str, tuple[int, int, str]] = {}
    for send in sorted(history.sends, key=lambda send: (send.stream, send.stream_position)):
        if not send.stream:
            continue
        for value in send.values:
            if value not in polled:
                continue
            before = last.get(send.stream)
            if before is not None and polled[value] < before[1]:
                yield f"{value} at {polled[value]} was sent after {before[2]} at {before[1]}"
            last[send.stream] = (send.stream_position, polled[value], value)


def beyond_watermark(history: History) -> Found:
    """A record at or above the high watermark of the answer that carried it."""
    for poll in history.polls:
        for offset, value in poll.records:
            if offset >= poll.high_watermark:
                yield f"{value} at {offset} came with the high watermark {poll.high_watermark}"


def falling_watermark(history: History) -> Found:
    """The high watermark fell between two answers that did not overlap."""
    ended = sorted(history.polls, key=lambda poll: poll.ended_ns)
    began = sorted(history.polls, key=lambda poll: poll.began_ns)
    highest, at = -1, 0
    for poll in began:
        while at < len(ended) and ended[at].ended_ns < poll.began_ns:
            highest = max(highest, ended[at].high_watermark)
            at += 1
        if poll.high_watermark < highest:
            yield f"{highest} was seen before {poll.high_watermark}"


LOG_CHECKS: Final[tuple[Check, ...]] = (
    inconsistent_offsets,
    duplicate,
    reused_offset,
    misplaced,
    lost_write,
    unseen,
    vanished,
    failed_read,
    from_nowhere,
    torn_batch,
    poll_skip,
    fresh_offset,
    reordered,
    beyond_watermark,
    falling_watermark,
)


def check_log(history: History, *, without: frozenset[PartitionKey] = frozenset()) -> list[Anomaly]:
    """Run every check on every partition but those in `without`."""
    anomalies: list[Anomaly] = []
    for partition in history.partitions():
        if partition in without:
            continue
        part = history.of(partition)
        for check in LOG_CHECKS:
            for number, detail in enumerate(check(part)):
                if number == _ANOMALIES_MAX:
                    break
                anomalies.append(Anomaly(check.__name__, partition, detail))
    return anomalies


def _acknowledged(history: History) -> list[Send]:
    return [send for send in history.sends if send.outcome is Outcome.ACKNOWLEDGED]


def _placed(send: Send) -> list[tuple[int, str]]:
    return [(send.base_offset + index, value) for index, value in enumerate(send.values)]


def _places(history: History) -> dict[str, int]:
    """Where the acknowledgements said that each value is."""
    return {value: offset for send in _acknowledged(history) for offset, value in _placed(send)}


def _polled(history: History) -> dict[str, int]:
    """Where each value was last read."""
    return {value: offset for poll in history.polls for offset, value in poll.records}
