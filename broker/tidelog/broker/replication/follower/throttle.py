"""How fast a broker copies what it is far behind with. Pure.

Owns the token bucket of the catch-up lanes: all of a broker's lanes draw from one, so that it holds
what `reassignment.throttle.bytes.per.second` says, from however many leaders it copies. A follower
that has spent it holds back its confirmations, and the leader sends no further.
"""

from typing import Final

NO_THROTTLE: Final = 0
_NS_PER_S: Final = 1_000_000_000
_BURST_NS: Final = _NS_PER_S // 10
"""So much may be saved up while nothing is copied."""


class Throttle:
    """`spend` what has come, then wait as long as it says."""

    def __init__(self) -> None:
        self._rate = NO_THROTTLE
        self._free_at_ns = 0
        """When all that was spent is paid for."""

    def set_rate(self, bytes_per_second: int) -> None:
        """From now on; 0: no limit."""
        assert bytes_per_second >= 0, f"a rate of {bytes_per_second} bytes a second"
        if bytes_per_second == NO_THROTTLE:
            self._free_at_ns = 0
        self._rate = bytes_per_second

    def spend(self, size_bytes: int, now_ns: int) -> None:
        """So much was copied."""
        if self._rate != NO_THROTTLE:
            start_ns = max(self._free_at_ns, now_ns - _BURST_NS)
            self._free_at_ns = start_ns + size_bytes * _NS_PER_S // self._rate

    def wait_ns(self, now_ns: int) -> int:
        """How long nothing more may come; 0: it may."""
        return max(0, self._free_at_ns - now_ns)

    def answer_bytes(self, most: int) -> int:
        """How much an answer should hold, so that one alone does not outrun the rate by far."""
        if self._rate == NO_THROTTLE:
            return most
        return max(1, min(most, self._rate // 10))
