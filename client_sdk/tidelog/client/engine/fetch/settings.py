"""What a consumer's core needs of the options."""

import msgspec

from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetSpec


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs of the consumer's options."""

    reset: OffsetSpec | None
    """auto_offset_reset; None: an error instead."""
    window_bytes: int
    grant_bytes: int
    """Credit is granted in steps of at least this."""
    partition_bytes_max: int
    verify: bool
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    replica_lease_ms: int = 300_000
    """How long a nearer replica is read, or refused after a failure, before the leader is asked."""
