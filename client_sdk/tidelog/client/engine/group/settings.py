"""What a group member's core needs of the consumer's options, and its named limits."""

from typing import Final

import msgspec

OFFSETS_PER_REQUEST_MAX: Final = 10_000
"""The contract's limit."""
COMMITS_WAITING_MAX: Final = 1_000
"""Commits whose caller was not answered yet."""
LOOKUPS_WAITING_MAX: Final = 1_000
SESSION_TIMEOUT_MS: Final = 45_000
"""Assumed until the coordinator has told."""
HEARTBEAT_INTERVAL_MS: Final = 3_000
"""Kept where a coordinator tells none."""
HEARTBEAT_TIMEOUT_MS_MIN: Final = 1_000


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of one consumer."""

    group: str
    member_id: str
    is_static: bool = False
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    """For so long a member that begins waits for a transaction, before it says for which."""
