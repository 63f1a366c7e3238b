"""What one client of a measurement is told, and what it tells when it is done: values only."""

from typing import Any

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one client."""

    kind: str
    """`produce`, `consume` or `end-to-end`."""
    topic: str
    partitions: list[int]
    """Which it writes or reads."""
    producer: dict[str, Any] = {}
    """Arguments of its Producer."""
    consumer: dict[str, Any] = {}
    """Arguments of its Consumer."""
    records: int | None
    """None: until the time is over."""
    seconds: float
    record_bytes: int
    rate_per_second: float | None = None
    """None: as fast as it can."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What one client did."""

    records: int
    seconds: float
    """From the word to begin until the last record was acknowledged or read."""
    samples_ms: list[float]
    failure: tuple[str, str, str] | None = None
    """What went wrong, why, and what to do."""
