"""What time it is for this node, and whether it may delete by it: `clock_trust` over a clock.

Owns the node's only answer to both questions; everything that stamps or expires asks here, never
the wall clock. One a node, shared by all of its data directories and coordinators.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.broker.shared.clock_trust import ClockTrust, StoredTime
from tidelog.metadata.broker_reports import ClockState, ClockVerdict, Reading
from tidelog.ports import Clock

_NS_PER_MS: Final = 1_000_000


class WallTime(Protocol):
    """What those need of it that stamp records."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may be set back when a clock is put right."""
        ...


class HouseTime(WallTime, Protocol):
    """What those need of it that keep records."""

    @property
    def may_expire(self) -> bool:
        """Whether what is older than something may be deleted for good."""
        ...


class NodeTime(HouseTime):
    """The broker's session tells it verdicts. `confirmed_ms`: what an operator has set last."""

    def __init__(self, clock: Clock, trust: ClockTrust, *, confirmed_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._trust = trust
        self._confirmed_ms = confirmed_ms

    def read(self) -> Reading:
        """What the machine's clocks show now."""
        return Reading(self._clock.wall_ms(), self._clock.uptime_ns() // _NS_PER_MS)

    def wall_ms(self) -> int:
        """Milliseconds since 1970: the wall clock's, corrected if that is known to be off."""
        return self._trust.now_ms(self.read())

    @property
    def may_expire(self) -> bool:
        """Whether what is older than something may be deleted for good."""
        return self._trust.may_expire(self.read())

    @property
    def state(self) -> ClockState:
        """What is known of the clock now."""
        return self._trust.state(self.read())

    @property
    def skew_ms(self) -> int:
        """How far the wall clock is ahead of the time that the node believes."""
        return self._trust.skew_ms(self.read())

    def off_own_ms(self, now: Reading) -> int | None:
        """How far a node without others holds its clock to be off; None: it holds nothing."""
        return self._trust.skew_ms(now) if self._trust.state(now) is ClockState.HELD else None

    def hear(self, verdict: ClockVerdict, told: Reading) -> None:
        """The controller has judged the clock as it was told then."""
        self._trust.hear(verdict, told, confirmed_ms=self._confirmed_ms())

    def to_store(self) -> StoredTime | None:
        """What to keep for the next start; None: the time is not known now."""
        return self._trust.to_store(self.read())
