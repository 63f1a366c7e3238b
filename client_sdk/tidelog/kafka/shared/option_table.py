"""What becomes of each option of kafka-python: one table, read by the code and by its page.

Owns the verdicts. An option is HONOURED, or it is WARNED about once where it only tunes, or it is
REFUSED where going on without it would change what a script may rely on: who sees its traffic, or
what is stored. An option that is not here is unknown. Values only.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec


class Verdict(Enum):
    """What a value that is not kafka-python's default leads to."""

    HONOURED = "honoured"
    WARNED = "accepted, one warning"
    REFUSED = "refused"


class Option(msgspec.Struct, frozen=True):
    """One option: kafka-python's default, what happens here, and why."""

    verdict: Verdict
    why: str = ""
    default: Any = None
    """An option that is given its default asks for nothing."""


_HONOURED: Final = Option(Verdict.HONOURED)


def _honoured(why: str) -> Option:
    return Option(Verdict.HONOURED, why)


def _warned(default: Any, why: str) -> Option:
    return Option(Verdict.WARNED, why, default)


def _refused(why: str, default: Any = None) -> Option:
    return Option(Verdict.REFUSED, why, default)


_SOCKETS: Final = "gRPC owns the sockets"
_METRICS: Final = "counters are totals; there are no windows and no reporters"
_SASL: Final = "clients prove who they are by certificates: security_protocol='SSL'"
_TLS: Final = "gRPC has no such choice"
_PROXY: Final = "connections would go past the proxy"

COMMON: Final[Mapping[str, Option]] = {
    "bootstrap_servers": _honoured("none: TIDELOG_BOOTSTRAP, else localhost:9192"),
    "client_id": _HONOURED,
    "request_timeout_ms": _HONOURED,
    "bootstrap_timeout_ms": _honoured("5 s if not given"),
    "retry_backoff_ms": _HONOURED,
    "metadata_max_age_ms": _HONOURED,
    "security_protocol": _honoured("PLAINTEXT or SSL; SASL_* is refused"),
    "ssl_check_hostname": _HONOURED,
    "ssl_cafile": _HONOURED,
    "ssl_certfile": _HONOURED,
    "ssl_keyfile": _HONOURED,
    "ssl_context": _refused(_TLS),
    "ssl_password": _refused(_TLS),
    "ssl_crlfile": _refused(_TLS),
    "ssl_ciphers": _refused(_TLS),
    "sasl_mechanism": _refused(_SASL),
    "sasl_plain_username": _refused(_SASL),
    "sasl_plain_password": _refused(_SASL),
    "sasl_kerberos_name": _refused(_SASL),
    "sasl_kerberos_service_name": _refused(_SASL, "kafka"),
    "sasl_kerberos_domain_name": _refused(_SASL),
    "sasl_oauth_token_provider": _refused(_SASL),
    "proxy_url": _refused(_PROXY),
    "socks5_proxy": _refused(_PROXY),
    "metrics_enabled": _honoured("False: metrics() is None"),
    "metric_reporters": _warned([], _METRICS),
    "metrics_num_samples": _warned(2, _METRICS),
    "metrics_sample_window_ms": _warned(30_000, _METRICS),
    "connections_max_idle_ms": _warned(540_000, _SOCKETS),
    "client_dns_lookup": _warned("use_all_dns_ips", "gRPC resolves names, to all addresses"),
    "reconnect_backoff_ms": _warned(50, "retry_backoff_ms says how soon a broker is tried again"),
    "reconnect_backoff_max_ms": _warned(30_000, "a broker is tried again within a second"),
    "receive_message_max_bytes": _warned(100_000_000, "answers have a limit of their own"),
    "receive_buffer_bytes": _warned(None, _SOCKETS),
    "send_buffer_bytes": _warned(None, _SOCKETS),
    "socket_options": _warned([(6, 1, 1)], _SOCKETS),
    "selector": _warned(None, _SOCKETS),
    "kafka_client": _warned(None, "there is one client"),
    "api_version": _warned(
        None, "there is one protocol; as in kafka-python, the constructor does not connect then"
    ),
    "api_version_auto_timeout_ms": _warned(2_000, "there is one protocol"),
    "max_in_flight_requests_per_connection": _warned(5, "one stream a broker, with credits"),
}
"""Of all three clients."""

PRODUCER: Final[Mapping[str, Option]] = {
    **COMMON,
    "key_serializer": _HONOURED,
    "value_serializer": _HONOURED,
    "acks": _honoured("0 and 1 turn idempotence off; both explicit and in conflict: an error"),
    "enable_idempotence": _HONOURED,
    "compression_type": _HONOURED,
    "retries": _HONOURED,
    "batch_size": _honoured("256 KiB if not given"),
    "linger_ms": _honoured(
        "5 ms if not given, as in Kafka 4; behind another batch of its partition up to 20 ms"
    ),
    "partitioner": _honoured("an object with partition(), or a function as in kafka-python 2"),
    "buffer_memory": _honoured("32 MiB if not given"),
    "max_block_ms": _HONOURED,
    "max_request_size": _HONOURED,
    "delivery_timeout_ms": _HONOURED,
    "allow_auto_create_topics": _HONOURED,
    "max_in_flight_requests_per_connection": _HONOURED,
    "transactional_id": _HONOURED,
    "transaction_timeout_ms": _HONOURED,
}

CONSUMER: Final[Mapping[str, Option]] = {
    **COMMON,
    "key_deserializer": _HONOURED,
    "value_deserializer": _HONOURED,
    "client_rack": _HONOURED,
    "fetch_max_bytes": _HONOURED,
    "max_partition_fetch_bytes": _HONOURED,
    "auto_offset_reset": _HONOURED,
    "check_crcs": _HONOURED,
    "allow_auto_create_topics": _honoured("reading makes no topic"),
    "max_poll_records": _HONOURED,
    "consumer_timeout_ms": _HONOURED,
    "metric_group_prefix": _HONOURED,
    "isolation_level": _HONOURED,
    "group_id": _HONOURED,
    "group_instance_id": _HONOURED,
    "enable_auto_commit": _HONOURED,
    "auto_commit_interval_ms": _HONOURED,
    "default_offset_commit_callback": _honoured("of commit_async() without a callback"),
    "max_poll_interval_ms": _HONOURED,
    "session_timeout_ms": _HONOURED,
    "heartbeat_interval_ms": _warned(3_000, "the coordinator says when a heartbeat is due"),
    "partition_assignment_strategy": _honoured(
        "the first that is known: RangePartitionAssignor is the coordinator's `range`, the others "
        "its `uniform`; a class of the script's own is refused"
    ),
    "enable_incremental_fetch_sessions": _warned(True, "a fetch stream sends only what is new"),
    "fetch_min_bytes": _warned(1, "a fetch stream sends what there is"),
    "fetch_max_wait_ms": _warned(500, "an idle fetch stream costs nothing"),
    "exclude_internal_topics": _warned(True, "internal topics are never shown"),
}

ADMIN: Final[Mapping[str, Option]] = dict(COMMON)
