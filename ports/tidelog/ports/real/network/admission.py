"""Which calls of a listener may begin: all together have a bound, and nobody takes all of it.

Owns the count of calls in progress, and who gives way. Two rules keep the table open to others:

 - A connection takes no more than is left to all others: as it fills, each gets less, and the last
   places are for those who have few. Some calls each connection may always have while there is
   room.
 - A call of which no message has come gives way to one more when the table is full, the one that
   has been silent for longest first. Who opens streams and says nothing keeps nobody out.

gRPC's own bound lies above this one: it refuses without a reason.
"""

from collections.abc import Callable
from typing import Final

from tidelog.ports.network import ListenerLimits
from tidelog.wire.errors import ErrorCode, TidelogError

NAME: Final = "calls_max"
SHARE_MIN: Final = 16
"""Calls that one connection may have however few are left."""
SILENT_NS_MIN: Final = 1_000_000_000
"""A call that has only begun is not silent yet."""


class SilentCall:
    """A call of which the first message is waited for."""

    def __init__(self, end: Callable[[], None], begun_ns: int) -> None:
        self.begun_ns: Final = begun_ns
        self.is_displaced = False
        self._end = end

    def displace(self) -> None:
        """Its wait ends now."""
        self.is_displaced = True
        self._end()


class CallAdmission:
    """Of one listener."""

    def __init__(
        self,
        listener: str,
        limits: ListenerLimits,
        now_ns: Callable[[], int],
        note_refused: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._calls_max = limits.calls_max
        self._now_ns = now_ns
        self._note_refused = note_refused
        self._calls: dict[str, int] = {}
        self._silent: dict[SilentCall, None] = {}
        """In the order in which they began to wait."""
        self.calls = 0
        """In progress; one that gave way until it has ended."""

    def begin(self, connection: str, method: str) -> None:
        """Count a call that begins; RESOURCE_EXHAUSTED, and not counted: there is no place."""
        own = self._calls.get(connection, 0)
        free = self._calls_max - self.calls
        if free <= 0 and not self._displace():
            raise self._refusal(method, "is used up")
        if own >= max(SHARE_MIN, free):
            happened = f"leaves {max(free, 0)}, and this connection has {own} calls"
            raise self._refusal(method, happened)
        self._calls[connection] = own + 1
        self.calls += 1

    def end(self, connection: str) -> None:
        """A call that was counted is over."""
        own = self._calls.get(connection, 0) - 1
        assert own >= 0, "a call ends once"
        self.calls -= 1
        if own:
            self._calls[connection] = own
        else:
            del self._calls[connection]

    def wait_message(self, end: Callable[[], None]) -> SilentCall:
        """The first message of a call is waited for from now on; `end` ends that."""
        silent = SilentCall(end, self._now_ns())
        self._silent[silent] = None
        return silent

    def came(self, silent: SilentCall) -> None:
        """It came, or nobody waits for it any more."""
        self._silent.pop(silent, None)

    def displaced(self, method: str) -> TidelogError:
        """What a call is told that gave way."""
        return self._refusal(method, "is used up, and no message of this call has come")

    def _displace(self) -> bool:
        """Whether somebody gave way; its place is free at once."""
        longest = next(iter(self._silent), None)
        if longest is None or self._now_ns() - longest.begun_ns < SILENT_NS_MIN:
            return False
        del self._silent[longest]
        longest.displace()
        return True

    def _refusal(self, method: str, happened: str) -> TidelogError:
        self._note_refused(NAME)
        return TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=f"call {method}",
            happened=f"listeners.{self._listener}.limits.{NAME} = {self._calls_max} {happened}",
            hint="End calls that are not needed, or try again later.",
        )
