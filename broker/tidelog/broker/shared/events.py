"""What housekeeping tells of itself: counts for metrics, events for the node's log.

Owns the names. The node's way of logging is handed in: nothing here writes a line by itself.
"""

from typing import Protocol

import msgspec


class EventLog(Protocol):
    """An event with values; the names of events stay."""

    def info(self, event: str, **values: object) -> None:
        """Something that an operator may want to know."""

    def warning(self, event: str, **values: object) -> None:
        """Something that an operator should look at."""

    def error(self, event: str, **values: object) -> None:
        """Something that an operator must act on."""


class Counts(msgspec.Struct, kw_only=True):
    """Since the start of the process; none of them ever falls."""

    checks: int = 0
    trims: int = 0
    trimmed_bytes: int = 0
    trims_failed: int = 0
    rolls: int = 0
    seals: int = 0
    sidecars_made_again: int = 0
    compactions: int = 0
    compaction_bytes_read: int = 0
    compaction_bytes_written: int = 0
    compactions_given_up: int = 0
    """The log changed meanwhile: what was made is thrown away."""
    scrubs: int = 0
    scrubbed_bytes: int = 0
    jobs_failed: int = 0
    """Tried again later."""
    partitions_failed: int = 0
    times_full: int = 0


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands, for metrics and for a person who asks."""

    counts: dict[str, int]
    is_full: bool
    free_bytes: int
    """-1: not known yet."""
    seals_waiting: int
    compactions_waiting: int
    compactions_postponed: int
    """For want of room."""
    pauses: int
    """Logs with a job that failed and waits to be tried again."""
    scrub_share_seen: float
    """Of the present round."""
    job: str
    """What runs now, a seal beside another job; empty: nothing."""
