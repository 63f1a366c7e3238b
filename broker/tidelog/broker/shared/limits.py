"""What one broker admits, named and bounded; `server.configuration` fills it in."""

from typing import Final

import msgspec

DURATION_MS_MAX: Final = 24 * 60 * 60 * 1000

PARTS_PER_REQUEST_MAX: Final = 10_000
"""Batches of a produce request, questions for offsets: each is answered, and all answers together
fit a message also if each of them is an error. Of what is only looked for, so many cost little."""

RECORDS_ANSWER_BYTES: Final = 3 * 1024 * 1024
"""Plain records in one answer: below the 4 MiB that many gRPC clients accept."""


class BrokerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """See the descriptions in docs/configuration.md."""

    produce_timeout_ms: int = 30_000
    queued_bytes_max: int = 128 * 1024 * 1024
    stream_requests_max: int = 64
    fetch_bytes: int = 3 * 1024 * 1024
    fetch_bytes_max: int = 8 * 1024 * 1024
    partition_fetch_bytes: int = 1024 * 1024
    fetch_wait_ms_max: int = 30_000
    fetch_positions_max: int = 10_000
    records_per_request_max: int = 10_000
    records_bytes_max: int = 1024 * 1024
    records_fetch_default: int = 500
    topics_per_request_max: int = 1_000
    admin_timeout_ms: int = 30_000


DEFAULT_BROKER_LIMITS: Final = BrokerLimits()
