"""The history of one partition, indexed once for all of its checks.

Owns what several checks need alike: where values were acknowledged, where they were read, which
offsets are known to hold a record. It must never judge.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from tidelog.chaos.checkers.history.history import (
    Excuse,
    History,
    Inquiry,
    Loss,
    Outcome,
    PartitionKey,
    Poll,
    Send,
)

Found = Iterator[str]
"""What a check found, one text each."""


class PartitionView:
    """Of one partition; whatever is asked for is computed once."""

    def __init__(
        self,
        partition: PartitionKey,
        sends: list[Send],
        polls: list[Poll],
        *,
        inquiries: Sequence[Inquiry] = (),
        excuse: Excuse | None = None,
        trimmed_to: int = 0,
        healed_ns: int | None = None,
        loss: Loss | None = None,
    ) -> None:
        self.partition = partition
        self.sends = sends
        self.polls = polls
        self.inquiries = inquiries
        self.excuse = excuse
        self.trimmed_to = trimmed_to
        self.healed_ns = healed_ns
        self.loss = loss

    @cached_property
    def committed(self) -> list[Send]:
        """Sends that were promised to survive, in the order in which they ended."""
        return [send for send in self.sends if send.is_committed]

    @cached_property
    def committed_at(self) -> list[Send]:
        """Those of them of which it is known where they are. A leader that no longer knows where a
        batch went that is sent again says only that it is stored."""
        return [send for send in self.committed if send.base_offset >= 0]

    @cached_property
    def places(self) -> dict[str, int]:
        """Where a promise said that each value is."""
        return {value: offset for send in self.committed_at for offset, value in placed(send)}

    @cached_property
    def acknowledged_places(self) -> dict[str, int]:
        """The same, with what only the leader has acknowledged."""
        return {
            value: offset
            for send in self.sends
            if send.outcome is Outcome.ACKNOWLEDGED and send.base_offset >= 0
            for offset, value in placed(send)
        }

    @cached_property
    def repeatable(self) -> set[str]:
        """Values that may be there more than once: sent again, and without sequences."""
        return {value for send in self.sends if not send.is_idempotent for value in send.values}

    @cached_property
    def polled(self) -> dict[str, int]:
        """Where each value was first read."""
        found: dict[str, int] = {}
        for poll in self.polls:
            for offset, value in poll.records:
                found.setdefault(value, offset)
        return found

    @cached_property
    def highest_polled(self) -> int:
        """The highest offset that anybody has read; -1: none."""
        return max((poll.records[-1][0] for poll in self.polls if poll.records), default=-1)

    @cached_property
    def drained(self) -> set[str] | None:
        """What the final drain has read; None: there was none."""
        final = [poll for poll in self.polls if poll.is_final]
        if not final:
            return None
        return {value for poll in final for _, value in poll.records}

    @cached_property
    def ranks(self) -> dict[int, int]:
        """Offsets that are known to hold a record and are not trimmed, and their places in order.

        Known is what somebody has read, and what was promised and is below something that was read.
        """
        known = {offset for poll in self.polls for offset, _ in poll.records}
        known.update(at for at in self.places.values() if at < self.highest_polled)
        kept = sorted(offset for offset in known if offset >= self.trimmed_to)
        return {offset: rank for rank, offset in enumerate(kept)}


def views_of(history: History) -> Iterator[PartitionView]:
    """Every partition that was touched, in order of first touch."""
    sends: dict[PartitionKey, list[Send]] = {}
    polls: dict[PartitionKey, list[Poll]] = {}
    inquiries: dict[PartitionKey, list[Inquiry]] = {}
    for send in history.sends:
        sends.setdefault(send.partition, []).append(send)
    for poll in history.polls:
        polls.setdefault(poll.partition, []).append(poll)
    for inquiry in history.inquiries:
        inquiries.setdefault(inquiry.partition, []).append(inquiry)
    for partition in dict.fromkeys([*sends, *polls]):
        yield PartitionView(
            partition,
            sends.get(partition, []),
            polls.get(partition, []),
            inquiries=inquiries.get(partition, []),
            excuse=history.excuses.get(partition),
            trimmed_to=history.trims.get(partition, 0),
            healed_ns=history.heals_ns[-1] if history.heals_ns else None,
            loss=history.losses.get(partition),
        )


def placed(send: Send) -> list[tuple[int, str]]:
    """Offset and value of an acknowledged send."""
    return [(send.base_offset + index, value) for index, value in enumerate(send.values)]
