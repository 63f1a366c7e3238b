"""The gRPC settings of both ends, each with the failure that it prevents.

Client and server settings depend on each other (a server hangs up on clients that ping more often
than it allows), so they stand side by side here and nowhere else.
"""

from typing import Final

from tidelog.ports.network import MESSAGE_BYTES_MAX

CLIENT_ID_KEY: Final = "tidelog-client-id"
"""The metadata entry in which a caller says what it calls itself."""

CONCURRENT_RPCS_MAX: Final = 16_384
"""Of one listener, parked streams included; beyond it calls end as RESOURCE_EXHAUSTED."""

PENDING_RPCS_MAX: Final = CONCURRENT_RPCS_MAX
"""Calls that wait to be taken up. gRPC's own limit of 1,000 cancels the consumers that come back
together after a restart, and gives no cause."""

STREAMS_PER_CONNECTION_MAX: Final = 1_024
METADATA_BYTES_MAX: Final = 16 * 1024

CLIENT_PING_MS: Final = 5_000
"""Shorter is not affordable: 5,000 parked consumers cost 5 % of a core (ADR 0005)."""
PING_TIMEOUT_MS: Final = 4_000
"""A silent peer is given up after CLIENT_PING_MS + PING_TIMEOUT_MS while a call is open."""
CLIENT_PING_MIN_MS: Final = 2_000
"""What the server tolerates: below CLIENT_PING_MS, or clients earn `too_many_pings`."""

SERVER_PING_MS: Final = 30_000
SERVER_PING_TIMEOUT_MS: Final = 10_000
"""A client whose machine vanished holds its streams no longer than the sum of the two."""

CONNECTION_IDLE_MS: Final = 10 * 60_000
CONNECTION_AGE_MS: Final = 60 * 60_000
"""Older connections get no new calls, so that clients spread anew over addresses. Open streams
live on: breaking them would make the outcome of what they carry unknown."""

CONNECT_TIMEOUT_MS: Final = 3_000
RECONNECT_FIRST_MS: Final = 100
RECONNECT_MAX_MS: Final = 1_000
"""A failure is repeated to callers for this long without a new attempt."""

UNCOMPRESSED_ONLY: Final = 1
"""A bit set of gRPC's own compression algorithms: batches are compressed already, and a small
message that unfolds to gigabytes is unfolded before its size is looked at."""

Options = list[tuple[str, int]]

_MESSAGES: Final[Options] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.compression_enabled_algorithms_bitset", UNCOMPRESSED_ONLY),
]


def server_options() -> Options:
    """For every listener."""
    return [
        *_MESSAGES,
        # Without it two nodes on one port share its connections, and neither reports a mistake.
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
        ("grpc.server.max_pending_requests", PENDING_RPCS_MAX),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_RPCS_MAX),
        ("grpc.keepalive_time_ms", SERVER_PING_MS),
        ("grpc.keepalive_timeout_ms", SERVER_PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", SERVER_PING_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PING_MIN_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS),
        ("grpc.max_connection_age_ms", CONNECTION_AGE_MS),
    ]


def ping_options() -> Options:
    """Of whoever calls a listener, the SDK included."""
    return [
        ("grpc.keepalive_time_ms", CLIENT_PING_MS),
        ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
        # Keepalive alone leaves calls to a stopped process hanging until their deadline.
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
        # Parked streams carry no data, and still must notice a silent peer.
        ("grpc.http2.max_pings_without_data", 0),
    ]


def channel_options() -> Options:
    """For every connection made from here."""
    return [
        *_MESSAGES,
        # Otherwise two networks of one process share connections, and close() closes none.
        ("grpc.use_local_subchannel_pool", 1),
        *ping_options(),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
        # Retries belong to callers who know whether a second try is safe.
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
