"""How far one member has come, as its leader sees it, and how it is being sent entries.

probe ──success──▶ replicate ──rejection, silence──▶ probe
any ──what it lacks is no longer in the log──▶ snapshot ──its end is matched──▶ replicate
any ──it asks for entries that it had acknowledged──▶ repair ──all is there again──▶ replicate
"""

import enum
from collections import deque

import msgspec

from tidelog.metadata_quorum.raft.types import NO_INDEX, MemberId
from tidelog.wire.ids import LogIndex


class Pace(enum.Enum):
    """How entries are sent."""

    PROBE = "probe"
    """Where the logs part is not known: one request, then wait for its answer."""
    REPLICATE = "replicate"
    """Request after request without waiting, up to a limit."""
    SNAPSHOT = "snapshot"
    """A snapshot is offered with every heartbeat."""
    REPAIR = "repair"
    """Entries are sent again that were acknowledged: one request, then wait; counts for nothing."""


class Progress(msgspec.Struct):
    """match_index < next_index always."""

    id: MemberId
    next_index: LogIndex
    heard_ms: int
    """When it last answered; at first when the leader was elected or the member was added."""
    match_index: LogIndex = NO_INDEX
    pace: Pace = Pace.PROBE
    is_repairing: bool = False
    is_asked: bool = False
    """While probing or repairing: a request is on its way."""
    was_heard: bool = False
    round: int = 0
    """The latest round of heartbeats that it answered."""
    commit_sent: LogIndex = NO_INDEX
    in_flight: deque[LogIndex] = msgspec.field(default_factory=deque)
    """The last index of each unanswered request with entries, in order."""
    snapshot_position: int = 0

    def heard(self, now_ms: int, round_answered: int) -> None:
        """It answered in this term."""
        self.heard_ms = now_ms
        self.was_heard = True
        self.round = max(self.round, round_answered)

    def matched(self, index: LogIndex) -> None:
        """All up to here is flushed there and equal to the leader's."""
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, LogIndex(index + 1))
        while self.in_flight and self.in_flight[0] <= self.match_index:
            self.in_flight.popleft()
        assert self.match_index < self.next_index, "what is matched is not sent again"

    def become_replicate(self) -> None:
        """It has everything before `next_index`."""
        self.pace = Pace.REPLICATE
        self.is_asked = False
        self.in_flight.clear()

    def become_probe(self, next_index: LogIndex) -> None:
        """Find out where the logs part, from here downwards."""
        self.pace = Pace.PROBE
        self.next_index = max(next_index, LogIndex(self.match_index + 1))
        self.is_asked = False
        self.in_flight.clear()

    def become_snapshot(self) -> None:
        """Nothing but a snapshot helps."""
        self.pace = Pace.SNAPSHOT
        self.is_asked = False
        self.in_flight.clear()

    def become_repair(self, from_index: LogIndex) -> None:
        """It lost what it had acknowledged from here on."""
        self.pace = Pace.REPAIR
        self.is_repairing = True
        self.match_index = min(self.match_index, LogIndex(from_index - 1))
        self.next_index = from_index
        self.is_asked = False
        self.in_flight.clear()
