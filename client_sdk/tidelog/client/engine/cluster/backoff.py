"""How long to wait before trying again.

Owns the delay's growth. Randomness comes in as a salt, so that a thousand clients of one broker
do not return at once and a seed still replays.
"""

import msgspec

JITTER_PERCENT = 20
NS_PER_MS = 1_000_000


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Doubles from `initial_ms` to `max_ms`, each delay moved by up to 20 % either way."""

    initial_ms: int
    max_ms: int
    salt: int = 0

    def delay_ms(self, attempt: int) -> int:
        """Before try number `attempt` + 1; the first failure is attempt 1."""
        assert attempt >= 1, f"a delay follows a failed attempt, not attempt {attempt}"
        plain = min(self.max_ms, self.initial_ms << min(attempt - 1, 20))
        # A multiplicative hash: spreads neighbouring salts and attempts over the whole range.
        spread = (self.salt * 2654435761 + attempt * 40503) & 0xFFFFFFFF
        percent = 100 - JITTER_PERCENT + spread % (2 * JITTER_PERCENT + 1)
        return max(1, plain * percent // 100)

    def delay_ns(self, attempt: int) -> int:
        """The same in nanoseconds."""
        return self.delay_ms(attempt) * NS_PER_MS
