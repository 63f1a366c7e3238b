"""The limits of the quorum's runner and transport, each with a name; owns no behaviour."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class QuorumLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue, batch, retry and wait of the quorum outside the core (whose are `Options`)."""

    tick_ms: int = 25
    """How often the core is told the time when nothing else happens."""

    requests_waiting_max: int = 4_096
    """Own requests that are not answered yet; beyond it: RESOURCE_EXHAUSTED."""
    messages_waiting_max: int = 1_024
    message_bytes_waiting_max: int = 64 * MIB
    """Of members' messages that the core has not seen yet; beyond it they are lost."""
    propose_timeout_ms: int = 30_000
    """A proposal that is not committed within it is answered DEADLINE_EXCEEDED."""
    apply_entries_max: int = 512
    apply_bytes_max: int = 1 * MIB
    """Applied without letting anything else run."""

    peer_queue_max: int = 256
    peer_queue_bytes_max: int = 16 * MIB
    """Messages to one member that are not sent yet; beyond it the oldest heartbeats are lost, then
    the oldest."""
    append_bytes_max: int = 2 * MIB
    """Queued appends that follow each other are joined up to this."""
    calls_per_peer_max: int = 32
    """Unary calls under way to one member; further ones are lost."""
    answers_waiting_max: int = 256
    """Calls of one kind from members that wait for the core; further ones are refused."""
    call_timeout_ms: int = 1_000
    learned_addresses_max: int = 64
    """Of nodes that are not known as members yet."""
    reconnect_first_ms: int = 50
    reconnect_max_ms: int = 500
    stream_idle_ms: int = 5_000
    """A stream that carried nothing for so long is ended; heartbeats keep a leader's alive."""
    probe_timeout_ms: int = 500
    probes_max: int = 3
    probe_wait_ms: int = 30
    """After a leader's stream ended: is its process gone, or only the connection?"""

    snapshot_after_entries: int = 20_000
    snapshot_after_bytes: int = 16 * MIB
    """A snapshot is taken when this much was applied since the last one."""
    snapshot_retry_ms: int = 10_000
    """After one that failed for want of space."""
    snapshot_piece_bytes: int = 1 * MIB
    snapshot_piece_timeout_ms: int = 5_000
    snapshot_piece_attempts_max: int = 5
    """In a row, for one piece; then the fetch is given up until the leader's next offer."""

    batches_before_job_max: int = 16
    """Flushed one after the other while a snapshot or a trim waits for its turn."""
    settle_after_ms: int = 50
    """Without anything to persist, before storage is told so."""
    full_disk_retry_ms: int = 500
    """Between attempts to store what a full disk refused."""
    join_timeout_ms: int = 3_000
    join_first_ms: int = 100
    join_max_ms: int = 2_000
    """Between attempts to become a learner."""
    handover_timeout_ms: int = 1_000
    """How long a leader that stops tries to hand over."""
