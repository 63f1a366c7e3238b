"""Times of day in messages: what a clock showed, as people read it. Pure: it reads no clock."""

from datetime import UTC, datetime


def moment(wall_ms: int) -> str:
    """A time of day in UTC; a clock may show any."""
    try:
        return datetime.fromtimestamp(wall_ms // 1_000, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms since 1970"
