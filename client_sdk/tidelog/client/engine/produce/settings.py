"""The producer's options as its core sees them.

Owns no behaviour.
"""

import msgspec


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the core needs of the producer's options."""

    in_flight_max: int
    request_bytes_max: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retries_max: int
    is_idempotent: bool = False
    """Batches are numbered, so that they can be sent again."""
    is_transactional: bool = False
    """Who numbers them is told by the coordinator of transactions, one transaction after the
    other."""
