"""When the watch of a listener looks at its sockets, and when it gives freed memory back.

Pure. Theory of operation: memory that grows is a reason to look at once, since what is unfinished
comes in as fast as the network brings it; a loop that is too late to ask is one as well. A look
costs work for each connection, so the next one waits in proportion: long as a rule, briefly while
memory grows. Work counts, not time: on a machine with other work a look takes long, and costs as
little.
"""

from typing import Final

LOOK_MS: Final = 250
"""Between two looks that the loop asks for."""
LOOK_PART: Final = 200
"""Looks may take one part in so many of a processor; the next one comes later then."""
GROWTH_MS: Final = 20
"""Between two questions whether the process has grown: 20 MiB at 1 GiB/s."""
GROWTH_BYTES: Final = 16 * 1024 * 1024
"""Since the last look."""
GROWTH_PART: Final = 4
"""As `LOOK_PART`, while it grows."""
HIDDEN_MS: Final = 500
"""After a hang-up: what it frees hides what others send meanwhile."""
GIVE_BACK_MS: Final = 50
"""After a hang-up: gRPC has let go of what the connection held."""
GIVE_BACK_AGAIN_MS: Final = (1_000, 5_000, 25_000)
"""After the one before, while nobody is hung up on: of many connections that end together gRPC lets
go over seconds, and what is freed after the last time would be kept (2 GiB, seen)."""
NS_PER_MS: Final = 1_000_000


class LookPace:
    """Of one listener."""

    def __init__(self, now_bytes: int) -> None:
        self._low_bytes = now_bytes
        """The least that the process held since the last look began."""
        self._next_ns = self._next_grown_ns = 0
        """Not before: a look as a rule, and one for the sake of growth."""
        self._hidden_until_ns = 0
        self._give_back_ns = 0
        """0: there is nothing to give back."""
        self._again_ms: tuple[int, ...] = ()
        """What follows on the next time."""

    def may_look(self, now_ns: int) -> bool:
        """Whether a look that the loop asks for is affordable."""
        return now_ns >= self._next_ns

    def must_look(self, now_ns: int, now_bytes: int) -> bool:
        """Whether to look though nobody asks."""
        self._low_bytes = min(self._low_bytes, now_bytes)
        is_loop_late = now_ns >= self._next_ns + 2 * LOOK_MS * NS_PER_MS
        has_grown = now_bytes - self._low_bytes >= GROWTH_BYTES
        may_have_grown = has_grown or now_ns < self._hidden_until_ns
        return is_loop_late or (may_have_grown and now_ns >= self._next_grown_ns)

    def looked(self, begun_ns: int, begun_bytes: int, worked_ns: int) -> None:
        """A look is over that began then, with so much in memory."""
        self._low_bytes = begun_bytes
        self._next_ns = begun_ns + worked_ns * LOOK_PART
        self._next_grown_ns = begun_ns + worked_ns * GROWTH_PART

    def hung_up(self, now_ns: int) -> None:
        """Connections were broken: what they held becomes free."""
        self._hidden_until_ns = now_ns + HIDDEN_MS * NS_PER_MS
        # The first one decides: a row of hang-ups must not put it off.
        soon_ns = now_ns + GIVE_BACK_MS * NS_PER_MS
        self._give_back_ns = min(self._give_back_ns or soon_ns, soon_ns)
        self._again_ms = GIVE_BACK_AGAIN_MS

    def take_give_back(self, now_ns: int) -> bool:
        """Whether it is time to give back what is free; each time is told once."""
        is_time = 0 < self._give_back_ns <= now_ns
        if is_time:
            next_ms, self._again_ms = self._again_ms[:1], self._again_ms[1:]
            self._give_back_ns = now_ns + next_ms[0] * NS_PER_MS if next_ms else 0
        return is_time
