"""What is known of a broker's clock, in a column."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.types.admin import BrokerStatus

_WORDS = {"no_majority": "no majority", "unknown": "-"}


def clock_text(broker: "BrokerStatus | None") -> str:
    """For a table: the state, and how far the clock is off where that was compared."""
    if broker is None:
        return "-"
    words = _WORDS.get(broker.clock_state, broker.clock_state)
    if broker.clock_state in ("right", "off", "held"):
        return f"{words} {span(broker.clock_skew_ms)}"
    return words


def span(ms: int) -> str:
    """With a sign, as short as it says enough: `+12ms`, `-1m05s`, `+24h00m`."""
    sign, ms = ("-" if ms < 0 else "+"), abs(ms)
    if ms < 1_000:
        return f"{sign}{ms}ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{sign}{ms / 1_000:.1f}s"
    if seconds < 3_600:
        return f"{sign}{seconds // 60}m{seconds % 60:02}s"
    if seconds < 48 * 3_600:
        return f"{sign}{seconds // 3_600}h{seconds % 3_600 // 60:02}m"
    return f"{sign}{seconds // 86_400}d{seconds % 86_400 // 3_600:02}h"
