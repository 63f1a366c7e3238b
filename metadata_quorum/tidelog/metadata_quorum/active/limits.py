"""How much the active controller takes on at a time."""

import msgspec


class ActiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Named limits; beyond one a caller is refused RESOURCE_EXHAUSTED or waits."""

    queued_writes_max: int = 1_000
    """Waiting for a decision; beyond it a caller is refused."""
    combined_writes_max: int = 64
    """Decided in one turn of the loop."""
    combined_records_max: int = 1_000
    """Of several small writes in one entry; a larger write stands alone."""
    applied_records_max: int = 2_000
    """Of one write, applied to the image ahead without letting anything else run."""
    entry_bytes_max: int = 512 * 1024
    """Larger writes are split into a group of entries; half of what the quorum takes."""
    in_flight_bytes_max: int = 8 * 1024 * 1024
    """Proposed and not committed; half of what the quorum takes, so that it refuses none."""
    in_flight_entries_max: int = 2
    """Proposed and not committed. What comes meanwhile waits to be decided and shares the next
    entry: with room for all of them each write became an entry of its own, and half as many were
    committed in a second."""
    confirmation_timeout_ms: int = 5_000
    """For the round that shows that this node still leads."""
