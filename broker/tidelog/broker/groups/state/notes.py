"""What a coordinator noticed and nobody asked for: who is a member no more, and why. Pure.

Owns the reasons. Notes are for metrics and a node's log; nothing is decided by them, and those that
nobody takes are forgotten.
"""

import enum
from collections import deque
from typing import Final

import msgspec

NOTES_MAX: Final = 1_000
"""Departures that are kept until somebody takes them: the oldest go first."""


class DepartureReason(enum.Enum):
    """Why a member is none any more."""

    LEFT = "left"
    """It said so."""
    SILENT = "silent"
    """Nothing was heard of it for its session timeout."""
    KEPT_PARTITIONS = "kept_partitions"
    """It did not give up, within its rebalance timeout, what it should have."""
    BROKER_GONE = "broker_gone"
    """The broker that was the member, for a client, is fenced or has begun anew."""
    REMOVED = "removed"
    """An operator removed it."""
    REPLACED = "replaced"
    """A static member came back under another member id."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A member is none any more."""

    group: str
    member_id: str
    reason: DepartureReason


class Notes:
    """Since somebody looked last."""

    def __init__(self) -> None:
        self.rebalances = 0
        """Assignments that were computed, since the core was made."""
        self._departures: deque[Departure] = deque(maxlen=NOTES_MAX)

    def depart(self, group: str, member_id: str, reason: DepartureReason) -> None:
        """One more."""
        self._departures.append(Departure(group=group, member_id=member_id, reason=reason))

    def take_departures(self) -> tuple[Departure, ...]:
        """Those since the last time."""
        if not self._departures:
            return ()
        found = tuple(self._departures)
        self._departures.clear()
        return found
