"""What clients accept, refuse and default to."""

from typing import Any, get_type_hints

import msgspec
import pytest

from tidelog.client import AdminClient, Consumer, Producer
from tidelog.client.arguments.options import (
    NOT_YET,
    AdminArguments,
    AdminOptions,
    ConsumerArguments,
    ConsumerOptions,
    ProducerArguments,
    ProducerOptions,
    bootstrap_addresses,
    build,
    is_idempotent,
)
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.client.tls.security import security_variables


def refused(make: object) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        make()  # type: ignore[operator]
    return caught.value


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (ProducerArguments, ProducerOptions),
        (ConsumerArguments, ConsumerOptions),
        (AdminArguments, AdminOptions),
    ],
)
def test_what_a_type_checker_sees_is_what_there_is(
    arguments: type, options: type[msgspec.Struct]
) -> None:
    seen = {name: hint for name, hint in get_type_hints(arguments).items() if name not in NOT_YET}
    assert seen == get_type_hints(options)


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    error = refused(lambda: Producer(linger=5))  # type: ignore[call-arg]
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert error.hint == "did you mean linger_ms?"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Consumer(fetch_min_bytes=2), "fetch_min_bytes"),  # type: ignore[call-arg]
        (lambda: Producer(sasl_mechanism="PLAIN"), "sasl_mechanism"),  # type: ignore[call-arg]
    ],
)
def test_what_cannot_be_honoured_yet_is_refused_by_name(make: object, name: str) -> None:
    error = refused(make)
    assert error.code is ErrorCode.NOT_IMPLEMENTED
    assert name in error.tried


@pytest.mark.parametrize("level", ["serializable", "READ_COMMITTED", "", "read committed"])
def test_an_isolation_level_that_does_not_exist_is_refused(level: str) -> None:
    error = refused(lambda: Consumer(isolation_level=level))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "it can be read_uncommitted or read_committed" in error.happened


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, True),
        ({"acks": -1}, True),
        ({"acks": "1"}, False),
        ({"acks": 0}, False),
        ({"retries": 0}, False),
        ({"enable_idempotence": False}, False),
        ({"enable_idempotence": True}, True),
        ({"acks": 1, "enable_idempotence": False}, False),
        ({"max_in_flight_requests_per_connection": 100}, True),
    ],
)
def test_a_producer_is_idempotent_where_it_can_be_unless_told_otherwise(
    arguments: dict[str, Any], expected: bool
) -> None:
    options = build(ProducerOptions, "Producer", arguments)
    assert is_idempotent(options) is expected


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"acks": 2}, "acks is 2"),
        ({"acks": 1, "enable_idempotence": True}, "it needs acks='all' and retries above 0"),
        ({"retries": 0, "enable_idempotence": True}, "it needs acks='all' and retries above 0"),
        ({"compression_type": "zstandard"}, "none, gzip, snappy, lz4, zstd"),
        ({"linger_ms": "5"}, "linger_ms is '5', it can be a number"),
        ({"max_request_size": 1 << 30}, "max_request_size"),
        ({"retries": -1}, "retries is -1"),
        ({"client_id": "caf\u00e9"}, "printable ASCII"),
        ({"delivery_timeout_ms": 5}, "delivery_timeout_ms=5 is below"),
        ({"bootstrap_servers": "host:port"}, "'host:port' is not host:port"),
        ({"bootstrap_servers": ""}, "names no address"),
        ({"key_serializer": "utf-8"}, "key_serializer is 'utf-8'"),
    ],
)
def test_a_wrong_value_is_named(arguments: dict[str, object], part: str) -> None:
    error = refused(lambda: Producer(**arguments))  # type: ignore[arg-type]
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert part in error.happened


def test_without_bootstrap_servers_the_environment_and_then_localhost_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)
    assert bootstrap_addresses("Producer", None) == ("localhost:9192",)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "a:1, b")
    assert bootstrap_addresses("Producer", None) == ("a:1", "b:9192")
    assert bootstrap_addresses("Producer", ["[::1]:7", "::1"]) == ("[::1]:7", "[::1]:9192")


def test_security_that_is_not_given_comes_from_the_environment() -> None:
    environment = {
        "TIDELOG_SECURITY_PROTOCOL": "SSL",
        "TIDELOG_SSL_CAFILE": "ca.pem",
        "TIDELOG_SSL_CERTFILE": "",
        "TIDELOG_SSL_CHECK_HOSTNAME": "false",
    }
    assert security_variables("Producer", {"ssl_cafile": "mine.pem"}, environment) == {
        "security_protocol": "SSL",
        "ssl_check_hostname": False,
    }
    plaintext = {"security_protocol": "PLAINTEXT"}
    assert security_variables("Producer", plaintext, environment) == {}
    assert security_variables("Producer", {}, {}) == {}
    for variable in ("TIDELOG_SECURITY_PROTOCOL", "TIDELOG_SSL_CHECK_HOSTNAME"):
        error = refused(lambda name=variable: security_variables("Producer", {}, {name: "ssl"}))
        assert variable in error.happened
        assert variable in error.hint


def test_a_client_takes_its_security_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv("TIDELOG_SSL_CAFILE", "nowhere.pem")
    error = refused(AdminClient)
    assert "nowhere.pem" in error.tried


def test_making_and_closing_a_client_needs_no_cluster() -> None:
    for client in (Producer(), Consumer("t"), AdminClient()):
        client.close()
        client.close()
        assert client.is_closed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"transactional_id": ""}, "transactional_id is ''"),
        ({"transactional_id": "é" * 125}, "1 to 249 bytes"),
        ({"transactional_id": "t", "acks": 1}, "it needs acks='all'"),
        ({"transactional_id": "t", "enable_idempotence": False}, "and idempotence"),
        ({"transactional_id": "t", "retries": 0}, "retries above 0"),
        ({"transactional_id": "t", "transaction_timeout_ms": 0}, "below 1"),
        ({"transactional_id": "t", "transaction_timeout_ms": 2**31}, "at most"),
    ],
)
def test_what_a_transaction_cannot_do_without_is_named(
    arguments: dict[str, Any], named: str
) -> None:
    error = refused(lambda: Producer(**arguments))
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert named in error.happened
