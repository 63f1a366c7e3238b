"""What a run of one seed tells its runner."""

from collections.abc import Callable

import msgspec

from tidelog.chaos.sim.base.trace import Trace

Watch = Callable[[Trace], None]
"""Given the trace before anything has happened; the runner uses it to print events."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One seed."""

    seed: int
    trace_hash: str
    events: int
    steps: int
    virtual_ms: int
    violations: tuple[str, ...]
    missing: tuple[str, ...]
    """Why the seed does not count; empty: it counts."""
    felt: dict[str, int]
    """By fault kind, how often somebody felt it."""
    figures: dict[str, int]
    """What the suite counts besides, such as acknowledgements."""
    transitions: tuple[tuple[str, str], ...]


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A way to run seeds."""

    name: str
    run: Callable[[int, Watch | None], RunResult]
