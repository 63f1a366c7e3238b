"""The arguments of Producer, Consumer and AdminClient: names, defaults, what is refused and why.

Owns the frozen option Structs, built and checked once when a client is made. Names follow
kafka-python, defaults Kafka 4. It must never accept in silence what it cannot honour.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypedDict, TypeVar, get_args, get_type_hints

import msgspec

from tidelog.client.arguments.functions import plain_function
from tidelog.client.arguments.isolation import ISOLATION_LEVELS
from tidelog.client.arguments.kinds import (
    INT32_MAX,
    INT64_MAX,
    TEXT_BYTES_MAX,
    is_a,
    shown,
)
from tidelog.client.errors import with_article
from tidelog.client.tls.security import check_security, security_variables
from tidelog.client.types.transaction_token import TRANSACTIONAL_ID_BYTES_MAX
from tidelog.wire.batch import BATCH_BYTES_MAX, Codec
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.group_names import GROUP_NAME_BYTES_MAX
from tidelog.wire.nearest import nearest_name

DEFAULT_PORT: Final = 9192
BOOTSTRAP_VARIABLE: Final = "TIDELOG_BOOTSTRAP"
BATCH_BYTES_DEFAULT: Final = 256 * 1024
BATCH_BYTES_GROWN: Final = 1024 * 1024

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]
Partitioner = Callable[[bytes | None, list[int], list[int]], int]


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap_servers: str | Sequence[str] | None = None
    """`host:port`, comma-separated or a list; default: TIDELOG_BOOTSTRAP, else localhost:9192."""
    client_id: str = "tidelog-python"
    request_timeout_ms: int = 30_000
    """How long one request may take."""
    bootstrap_timeout_ms: int = 5_000
    """How long a client that never reached the cluster keeps trying before a call fails."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    security_protocol: str = "PLAINTEXT"
    """PLAINTEXT or SSL. This argument and those below: where one is not given, the variable of its
    name counts, such as TIDELOG_SECURITY_PROTOCOL or TIDELOG_SSL_CAFILE."""
    ssl_cafile: str | None = None
    """PEM file of the authorities whose nodes are believed; default: those of the system."""
    ssl_certfile: str | None = None
    """PEM file of the client's certificate, for listeners that ask for one."""
    ssl_keyfile: str | None = None
    """PEM file of its key; default: ssl_certfile holds both."""
    ssl_check_hostname: bool = True
    """Whether a node's certificate must hold the name that the node is reached by."""


class ProducerOptions(_Common, frozen=True, kw_only=True):
    """Arguments of Producer."""

    acks: int | str = "all"
    """`all` (or -1), 1, 0."""
    batch_size: int | None = None
    """Bytes of a full batch; default 256 KiB, growing to 1 MiB while others are on their way."""
    buffer_memory: int = 32 * 1024 * 1024
    compression_type: str | None = None
    """none, gzip, snappy, lz4, zstd."""
    delivery_timeout_ms: int = 120_000
    enable_idempotence: bool | None = None
    """Resends are recognised and stored once; default: with acks `all` and retries above 0."""
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    linger_ms: float = 5
    """A batch with room waits so long for records; behind another of its partition up to 20 ms."""
    max_block_ms: int = 60_000
    """How long send() may wait for metadata or for room in the buffer."""
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1024 * 1024
    partitioner: Partitioner | None = None
    """Called with (key bytes, all partitions, available partitions)."""
    retries: int = 2_147_483_647
    allow_auto_create_topics: bool = True
    transactional_id: str | None = None
    """The name under which it writes transactions; who takes it over last fences the others."""
    transaction_timeout_ms: int = 60_000
    """A transaction that is open for longer is aborted; at most the cluster's
    `transaction.max.timeout.ms`."""


class ConsumerOptions(_Common, frozen=True, kw_only=True):
    """Arguments of Consumer."""

    group_id: str | None = None
    """Whose members share the partitions, and under which offsets are committed."""
    group_instance_id: str | None = None
    """Makes a static member: its partitions wait for it until its session times out."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    auto_offset_reset: str = "latest"
    """earliest, latest, none: where to begin without a position or a committed offset."""
    consumer_timeout_ms: float = float("inf")
    """Iteration ends after so long without a record."""
    max_poll_records: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    """Bytes that one broker may send ahead of the reader."""
    max_partition_fetch_bytes: int = 1024 * 1024
    check_crcs: bool = True
    client_rack: str = ""
    default_api_timeout_ms: int = 60_000
    isolation_level: str = "read_uncommitted"
    """read_uncommitted, read_committed: whether records of open and aborted transactions are
    delivered too. With read_committed a reader waits at the first transaction that is open."""
    allow_auto_create_topics: bool = False
    """Unlike a producer a reader makes no topic, so that a misspelt name is noticed."""
    enable_auto_commit: bool = True
    """What one poll delivered is committed by a later one; without a group nothing is."""
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int | None = None
    """After so long a silence the member is removed; default: the group's setting, 45 s."""
    heartbeat_interval_ms: int = 3_000
    """Accepted for scripts that have it: the coordinator says when a heartbeat is due."""
    max_poll_interval_ms: int = 300_000
    """Longest time between two polls; after it the member leaves until the next one."""
    partition_assignment_strategy: str | None = None
    """uniform or range; default: the group's setting."""


class AdminOptions(_Common, frozen=True, kw_only=True):
    """Arguments of AdminClient."""


class _CommonArguments(TypedDict, total=False):
    bootstrap_servers: str | Sequence[str] | None
    client_id: str
    request_timeout_ms: int
    bootstrap_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    security_protocol: str
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_check_hostname: bool


class ProducerArguments(_CommonArguments, total=False):
    """What a type checker sees of Producer; a test compares it with ProducerOptions."""

    acks: int | str
    batch_size: int | None
    buffer_memory: int
    compression_type: str | None
    delivery_timeout_ms: int
    enable_idempotence: bool | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    linger_ms: float
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    partitioner: Partitioner | None
    retries: int
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerArguments(_CommonArguments, total=False):
    """What a type checker sees of Consumer."""

    group_id: str | None
    group_instance_id: str | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    auto_offset_reset: str
    consumer_timeout_ms: float
    max_poll_records: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    isolation_level: str
    allow_auto_create_topics: bool
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int | None
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    partition_assignment_strategy: str | None


class AdminArguments(_CommonArguments, total=False):
    """What a type checker sees of AdminClient."""


_TRANSACTIONS: Final = "transactions"
_SASL: Final = "SASL (certificates prove who a client is: security_protocol='SSL')"
_TLS_DETAILS: Final = "this detail of TLS (gRPC has no such choice)"

NOT_YET: Final[Mapping[str, str]] = {
    "sasl_mechanism": _SASL,
    "sasl_plain_username": _SASL,
    "sasl_plain_password": _SASL,
    "ssl_context": _TLS_DETAILS,
    "ssl_password": _TLS_DETAILS,
    "ssl_crlfile": _TLS_DETAILS,
    "ssl_ciphers": _TLS_DETAILS,
    "fetch_min_bytes": "a fetch stream that waits for more than one byte",
    "fetch_max_wait_ms": "a fetch stream that waits for more than one byte",
}
"""Known names that this release cannot honour; a value of None is fine."""

_PLAIN: Final[Mapping[type, str]] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    NoneType: "None",
}

Options = TypeVar("Options", bound=_Common)


def build(kind: type[Options], client: str, arguments: Mapping[str, Any]) -> Options:
    """The checked options, or the error that names the argument."""
    known = {field.name for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in known:
            given[name] = value
        elif name in NOT_YET:
            _refuse_early(client, name, value)
        else:
            raise _unknown(client, name, known)
    for name, value in given.items():
        _check_type(client, kind, name, value)
    given = {**security_variables(client, given, os.environ), **given}
    options = kind(**given)
    _check(client, options)
    return options


def _check_type(client: str, kind: type[_Common], name: str, value: Any) -> None:
    if name == "bootstrap_servers":
        _check_servers(client, value)
        return
    hint = get_type_hints(kind)[name]
    allowed = get_args(hint) or (hint,)
    if not all(found in _PLAIN for found in allowed):
        if value is None:
            return
        if callable(value):
            plain_function(value, f"make {with_article(client)}", name)
            return
        raise invalid(client, f"{name} is {shown(value)}, it can be a function")
    is_number = isinstance(value, int) and not isinstance(value, bool) and float in allowed
    if type(value) not in allowed and not is_number:
        names = " or ".join(_PLAIN[found] for found in allowed)
        raise invalid(client, f"{name} is {shown(value)}, it can be {names}")
    if isinstance(value, str):
        _check_text(client, name, value)


def _check_servers(client: str, servers: Any) -> None:
    if servers is None:
        return
    listed = [servers] if is_a(servers, str) else servers
    if not is_a(listed, list, tuple) or not all(is_a(each, str) for each in listed):
        raise invalid(
            client,
            f"bootstrap_servers is {shown(servers)}, it can be a text or a list of texts, each "
            "host:port",
        )
    for each in listed:
        _check_text(client, "bootstrap_servers", each)


def _check_text(client: str, name: str, value: str) -> None:
    """What an address, a name or a path can be, whatever else is asked of it."""
    if not value.isprintable() or len(value) > TEXT_BYTES_MAX:
        raise invalid(
            client,
            f"{name} is {shown(value)}, it can be a text of printable characters, "
            f"{TEXT_BYTES_MAX} at most",
        )


def invalid(client: str, happened: str) -> TidelogError:
    """A setting is wrong; nothing was started."""
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION, tried=f"make {with_article(client)}", happened=happened
    )


def _refuse_early(client: str, name: str, value: Any) -> None:
    if value is None:
        return
    raise not_yet(client, f"{name}={shown(value)}", NOT_YET[name])


def not_yet(client: str, argument: str, what: str) -> TidelogError:
    """The argument will mean something, but not in this release."""
    return TidelogError(
        ErrorCode.NOT_IMPLEMENTED,
        tried=f"make {with_article(client)} with {argument}",
        happened=f"this release does not have {what} yet",
        hint=f"leave {argument.partition('=')[0]} out",
    )


def _unknown(client: str, name: str, known: set[str]) -> TidelogError:
    nearest = nearest_name(name, known)
    hint = f"did you mean {nearest}?" if nearest else "docs/configuration.md lists the arguments"
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"make {with_article(client)}",
        happened=f"it has no argument {name!r}",
        hint=hint,
    )


def _check(client: str, options: _Common) -> None:
    for name in msgspec.structs.fields(options):
        value = getattr(options, name.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not value >= 0 and name.name != "acks":
            raise invalid(client, f"{name.name} is {value}, it cannot be negative")
        if is_number and value > _most(name.name):
            raise invalid(client, f"{name.name} is {value}, it can be at most {_most(name.name)}")
    if not options.client_id.isascii() or not options.client_id.isprintable():
        # It travels as a header of every call, which holds nothing else.
        raise invalid(client, f"client_id is {options.client_id!r}, it can be printable ASCII")
    check_security(client, options)
    if isinstance(options, ProducerOptions):
        _check_producer(client, options)
    if isinstance(options, ConsumerOptions):
        _check_consumer(client, options)


def _most(name: str) -> float:
    """24 days of milliseconds; memory is what a machine has."""
    if name == "consumer_timeout_ms":
        return float("inf")
    return INT64_MAX if name == "buffer_memory" else INT32_MAX


def _check_producer(client: str, options: ProducerOptions) -> None:
    if options.acks not in (0, 1, -1, "0", "1", "-1", "all"):
        raise invalid(client, f"acks is {options.acks!r}, it can be 'all', 1 or 0")
    if options.enable_idempotence and not _can_be_idempotent(options):
        raise invalid(
            client,
            f"enable_idempotence=True with acks={options.acks!r} and retries={options.retries}: "
            "it needs acks='all' and retries above 0",
        )
    _check_transactional(client, options)
    codec_of(client, options.compression_type)
    if options.delivery_timeout_ms < options.request_timeout_ms + options.linger_ms:
        raise invalid(
            client,
            f"delivery_timeout_ms={options.delivery_timeout_ms} is below request_timeout_ms + "
            f"linger_ms = {options.request_timeout_ms + options.linger_ms:g}",
        )
    if not 0 < options.max_request_size <= BATCH_BYTES_MAX:
        raise invalid(
            client,
            f"max_request_size is {options.max_request_size}, it can be 1 to {BATCH_BYTES_MAX}",
        )
    if options.max_in_flight_requests_per_connection < 1:
        raise invalid(client, "max_in_flight_requests_per_connection is below 1")


def _check_transactional(client: str, options: ProducerOptions) -> None:
    """A name within the contract's limits, and everything that a transaction needs."""
    name = options.transactional_id
    if name is None:
        return
    if not 0 < len(name.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
        raise invalid(
            client,
            f"transactional_id is {shown(name)}, it can be 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes",
        )
    if not is_idempotent(options):
        raise invalid(
            client,
            f"transactional_id={name!r} with acks={options.acks!r}, retries={options.retries} and "
            f"enable_idempotence={options.enable_idempotence}: it needs acks='all', retries above "
            "0 and idempotence",
        )
    if options.transaction_timeout_ms < 1:
        raise invalid(client, "transaction_timeout_ms is below 1")


def _check_consumer(client: str, options: ConsumerOptions) -> None:
    _check_group(client, options)
    if options.auto_offset_reset not in ("earliest", "latest", "none"):
        raise invalid(
            client,
            f"auto_offset_reset is {options.auto_offset_reset!r}, "
            "it can be earliest, latest or none",
        )
    if options.isolation_level not in ISOLATION_LEVELS:
        raise invalid(
            client,
            f"isolation_level is {options.isolation_level!r}, "
            f"it can be {' or '.join(ISOLATION_LEVELS)}",
        )
    for name in ("max_poll_records", "fetch_max_bytes", "max_partition_fetch_bytes"):
        if getattr(options, name) < 1:
            raise invalid(client, f"{name} is below 1")


def _check_group(client: str, options: ConsumerOptions) -> None:
    """Names within the contract's limits, and a strategy that there is."""
    for name in ("group_id", "group_instance_id"):
        value = getattr(options, name)
        if value is not None and not 0 < len(value.encode()) <= GROUP_NAME_BYTES_MAX:
            raise invalid(
                client, f"{name} is {value!r}, it can be 1 to {GROUP_NAME_BYTES_MAX} bytes"
            )
    if options.group_instance_id is not None and options.group_id is None:
        raise invalid(client, "group_instance_id is given without a group_id")
    if options.max_poll_interval_ms < 1:
        raise invalid(client, "max_poll_interval_ms is below 1")
    strategy = options.partition_assignment_strategy
    if strategy not in (None, "uniform", "range"):
        raise invalid(
            client,
            f"partition_assignment_strategy is {strategy!r}, it can be 'uniform' or 'range'",
        )


def codec_of(client: str, compression_type: str | None) -> Codec:
    """The codec of a compression_type."""
    name = (compression_type or "none").lower()
    codecs = {codec.name.lower(): codec for codec in Codec}
    if name not in codecs:
        nearest = nearest_name(name, codecs)
        meant = f"; did you mean {nearest}?" if nearest else ""
        raise invalid(
            client,
            f"compression_type is {compression_type!r}, it can be {', '.join(codecs)}{meant}",
        )
    return codecs[name]


def is_idempotent(options: ProducerOptions) -> bool:
    """As it was asked for; by default where it is possible, as Kafka's clients do."""
    if options.enable_idempotence is None:
        return _can_be_idempotent(options)
    return options.enable_idempotence


def _can_be_idempotent(options: ProducerOptions) -> bool:
    return acks_of(options) == -1 and options.retries > 0


def acks_of(options: ProducerOptions) -> int:
    """-1, 0 or 1."""
    return -1 if options.acks == "all" else int(options.acks)


def bootstrap_addresses(client: str, servers: str | Sequence[str] | None) -> tuple[str, ...]:
    """`host:port` each, from the argument, the environment or the default."""
    if servers is None:
        servers = os.environ.get(BOOTSTRAP_VARIABLE) or f"localhost:{DEFAULT_PORT}"
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_address(client, entry.strip()) for entry in listed if entry.strip())
    if not addresses:
        raise invalid(client, f"bootstrap_servers {servers!r} names no address")
    return addresses


_HOST: Final = re.compile(r"[a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+(%[a-zA-Z0-9._-]+)?\]")


def _address(client: str, entry: str) -> str:
    """With its port; the mistakes that people make are called by their names."""
    if "://" in entry:
        scheme, _, rest = entry.partition("://")
        rest = rest.rstrip("/")
        raise _no_address(client, entry, f"it begins with {scheme}://", f"write {rest}")
    host, _, port = entry.rpartition(":")
    if entry.count(":") > 1 and not entry.startswith("["):
        host, port = f"[{entry}]", str(DEFAULT_PORT)
    elif ":" not in entry or entry.endswith("]"):
        host, port = entry, str(DEFAULT_PORT)
    if not _HOST.fullmatch(host):
        raise _no_address(client, entry, f"{host!r} is no host", "write host:port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise _no_address(client, entry, f"{port!r} is no port", "a port is 1 to 65535")
    return f"{host}:{port}"


def _no_address(client: str, entry: str, why: str, hint: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION,
        tried=f"make {with_article(client)}",
        happened=f"bootstrap_servers: bootstrap address {shown(entry)} is not host:port, {why}",
        hint=hint,
    )
