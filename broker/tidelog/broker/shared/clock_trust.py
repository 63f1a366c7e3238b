"""Whether this node may delete by its clock, and what time it is meanwhile. Pure.

Owns the line of time that the node believes: a wall time, and the machine's uptime at that moment.
What is deleted by a wrong clock does not come back when the clock is put right; so whatever time
deletes for good asks `may_expire` first, and nothing else may decide it.

    Theory of operation. Of three sources of time the uptime never jumps, the wall clock may show
    anything, and the controller knows how far this node's wall clock is off the cluster's
    (`controller.cluster_clock`). Each verdict lays the line anew: the wall time at the heartbeat
    less the skew that it was answered. From then on the wall clock is held against the line at
    every look, so that a jump between two verdicts is seen at once, and so is its end.

        verdict ─▶ line ─┬─ wall clock within the tolerance ─▶ believed as it is; may_expire
                         ├─ off the line ─▶ the line is the time; nothing is deleted
                         └─ no verdict for VERDICT_MS ─▶ nothing is deleted

    A node without any other to ask has the line from the time that it stored last. While the
    machine was up since, its uptime says how long that is ago, however long the node was stopped.
    After a restart of the machine nothing says so: a clock that is ahead of the stored time by more
    than the tolerance may be right after a week's holiday, or a day wrong. It is held until an
    operator confirms it, or it comes back. A clock that is set back while the node runs is
    followed: the earlier time deletes less. One that is behind at the start is held, since time
    does not go back: it is a clock without a battery that nobody has set yet.
"""

from typing import Final

import msgspec

from tidelog.metadata.broker_reports import ClockState, ClockVerdict, Reading

VERDICT_MS: Final = 15_000
"""A verdict counts for so long: longer than the controller keeps a silent broker's session, and far
shorter than anything that is deleted by time should be kept."""


class StoredTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a node keeps of a moment of which it knew the time."""

    wall_ms: int
    uptime_ms: int
    boot_id: str


class ClockTrust:
    """Fed with readings and verdicts; it never looks at a clock itself."""

    def __init__(
        self, *, stored: StoredTime | None = None, boot_id: str = "", is_own_judge: bool = False
    ) -> None:
        self._stored = stored
        self._boot_id = boot_id
        self._is_own_judge = is_own_judge
        """An operator has said that this node's clock is to be believed while it is alone."""
        self._line: Reading | None = None
        self._verdict = ClockVerdict()
        self._heard_ms: int | None = None
        """The uptime at the heartbeat that the last verdict answered."""
        self._was_on_line = False
        """Whether the wall clock was believed in this life of the process."""

    # -- asked -------------------------------------------------------------------------------------

    def may_expire(self, now: Reading) -> bool:
        """Whether what is older than something may be deleted for good."""
        return self.state(now) in (ClockState.RIGHT, ClockState.ALONE)

    def state(self, now: Reading) -> ClockState:
        """What is known of this node's clock in this moment."""
        told = self._verdict.state
        if self._heard_ms is None or now.uptime_ms - self._heard_ms > VERDICT_MS:
            return ClockState.UNKNOWN
        if told in (ClockState.UNKNOWN, ClockState.NO_MAJORITY):
            return told
        is_on_line = self._is_on_line(now)
        if told is ClockState.ALONE:
            return ClockState.ALONE if is_on_line else ClockState.HELD
        return ClockState.RIGHT if is_on_line else ClockState.OFF

    def skew_ms(self, now: Reading) -> int:
        """How far the wall clock is ahead of the line; 0 without one."""
        return 0 if self._line is None else now.wall_ms - self._line_ms(now)

    def now_ms(self, now: Reading) -> int:
        """The time to stamp things with: the wall clock's, unless it is known to be off.

        Before the first line the time goes on from what was stored, if the machine was up since; if
        not, a clock that shows less than that is behind for certain.
        """
        if self._line is not None:
            return now.wall_ms if self._is_on_line(now) else self._line_ms(now)
        if self._stored is None:
            return now.wall_ms
        if self._was_up(now):
            return self._stored.wall_ms + now.uptime_ms - self._stored.uptime_ms
        return max(now.wall_ms, self._stored.wall_ms)

    def to_store(self, now: Reading) -> StoredTime | None:
        """What to keep for the next start; None: the time is not known now.

        Where the cluster says that the wall clock is off, the line is the time: a node that keeps
        nothing then would believe the same wrong clock at its next start, if nobody can be asked.
        """
        if self.state(now) not in (ClockState.RIGHT, ClockState.ALONE, ClockState.OFF):
            return None
        time_ms = self.now_ms(now)
        return StoredTime(wall_ms=time_ms, uptime_ms=now.uptime_ms, boot_id=self._boot_id)

    # -- told --------------------------------------------------------------------------------------

    def hear(self, verdict: ClockVerdict, told: Reading, *, confirmed_ms: int = 0) -> None:
        """The controller has judged the clock as it was told. `confirmed_ms`: the wall time that an
        operator has said to be right, for a node that is alone."""
        self._verdict, self._heard_ms = verdict, told.uptime_ms
        match verdict.state:
            case ClockState.RIGHT | ClockState.OFF:
                self._line = Reading(told.wall_ms - verdict.skew_ms, told.uptime_ms)
            case ClockState.ALONE:
                self._keep_own_line(told, confirmed_ms)
            case _:
                return
        self._was_on_line = self._was_on_line or self._is_on_line(told)

    def _keep_own_line(self, told: Reading, confirmed_ms: int) -> None:
        """Without a reference: on from the line, as far as the wall clock keeps to it."""
        if self._line is None:
            self._line = self._first_line(told)
        # Once it is used up: a moment later the wall clock is beyond it, and on the line.
        is_confirmed = (
            confirmed_ms > 0 and abs(told.wall_ms - confirmed_ms) <= self._verdict.skew_max_ms
        )
        is_set_back = self._was_on_line and told.wall_ms < self._line_ms(told)
        if self._is_on_line(told) or is_confirmed or is_set_back or self._is_own_judge:
            # Laid anew each time: quartz and wall clock drift apart over the months.
            self._line = told

    def _first_line(self, told: Reading) -> Reading:
        stored = self._stored
        if stored is None:
            return told
        return Reading(stored.wall_ms, stored.uptime_ms if self._was_up(told) else told.uptime_ms)

    def _was_up(self, now: Reading) -> bool:
        """Whether the machine has been up since the stored moment."""
        stored = self._stored
        is_same = stored is not None and stored.boot_id == self._boot_id
        return is_same and stored is not None and stored.uptime_ms <= now.uptime_ms

    def _line_ms(self, now: Reading) -> int:
        assert self._line is not None, "there is a line to be read"
        return self._line.wall_ms + now.uptime_ms - self._line.uptime_ms

    def _is_on_line(self, now: Reading) -> bool:
        return (
            self._line is not None
            and abs(now.wall_ms - self._line_ms(now)) <= self._verdict.skew_max_ms
        )
