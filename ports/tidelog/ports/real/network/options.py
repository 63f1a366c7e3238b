"""The gRPC settings of both ends, each with the failure that it prevents.

Client and server settings depend on each other (a server hangs up on clients that ping more often
than it allows), so they stand side by side here and nowhere else.
"""

from typing import Final

from tidelog.ports.network import MESSAGE_BYTES_MAX, ListenerLimits

CLIENT_ID_KEY: Final = "tidelog-client-id"
"""The metadata entry in which a caller says what it calls itself."""

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

CONNECT_TIMEOUT_MS: Final = 3_000
RECONNECT_FIRST_MS: Final = 100
RECONNECT_MAX_MS: Final = 1_000
"""A failure is repeated to callers for this long without a new attempt."""

UNREAD_BYTES_MAX: Final = 64 * 1024
"""What gRPC takes in of a stream before its next message is asked for."""

UNCOMPRESSED_ONLY: Final = 1
"""A bit set of gRPC's own compression algorithms: batches are compressed already, and a small
message that unfolds to gigabytes is unfolded before its size is looked at."""

Options = list[tuple[str, int]]

_MESSAGES: Final[Options] = [
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    # Between the two it would depend on chance.
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.compression_enabled_algorithms_bitset", UNCOMPRESSED_ONLY),
]


def server_options(limits: ListenerLimits) -> Options:
    """For a listener."""
    return [
        *_MESSAGES,
        ("grpc.max_receive_message_length", limits.request_bytes_max),
        ("grpc.max_allowed_incoming_connections", limits.connections_max),
        # Without it two nodes on one port share its connections, and neither reports a mistake.
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", limits.connection_calls_max),
        # A call that nobody reads from holds so much at most. With windows that follow the speed
        # of the connection, one that was held back took in whole messages (14 MiB each, seen).
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", UNREAD_BYTES_MAX),
        # gRPC's own limit of 1,000 calls that wait to be taken up cancels the consumers that come
        # back together after a restart, and gives no cause.
        ("grpc.server.max_pending_requests", limits.calls_max),
        ("grpc.server.max_pending_requests_hard_limit", 2 * limits.calls_max),
        ("grpc.keepalive_time_ms", SERVER_PING_MS),
        ("grpc.keepalive_timeout_ms", SERVER_PING_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", SERVER_PING_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PING_MIN_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_connection_idle_ms", limits.connection_idle_ms),
        # Without a grace: breaking open streams would make the outcome of what they carry unknown.
        ("grpc.max_connection_age_ms", limits.connection_age_ms),
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
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
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
