"""Options of kafka-python: honoured, warned about once, or refused with a word that helps."""

import warnings
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tidelog.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from tidelog.kafka.shared.option_table import ADMIN, CONSUMER, PRODUCER, Option, Verdict
from tidelog.kafka.shared.options import KafkaOptionWarning, honoured

TABLES = {"KafkaProducer": PRODUCER, "KafkaConsumer": CONSUMER, "KafkaAdminClient": ADMIN}
EVERY = [(client, name) for client, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("client", "name"), EVERY)
def test_an_option_does_what_its_verdict_says(client: str, name: str) -> None:
    table, option = TABLES[client], TABLES[client][name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        match option.verdict:
            case Verdict.HONOURED:
                assert honoured(client, table, {name: 7}) == {name: 7}
                assert not caught
            case Verdict.WARNED:
                assert honoured(client, table, {name: 7}) == {}
                (only,) = caught
                assert only.category is KafkaOptionWarning
                assert f"{name}=7" in str(only.message)
                assert option.why in str(only.message)
            case Verdict.REFUSED:
                with pytest.raises(errors.KafkaConfigurationError, match=name):
                    honoured(client, table, {name: 7})


def test_the_warning_shows_the_line_of_the_script() -> None:
    with ContractServer() as server, pytest.warns(KafkaOptionWarning) as caught:
        KafkaConsumer(bootstrap_servers=server.address, fetch_min_bytes=100).close()
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize("make", [KafkaProducer, KafkaConsumer, KafkaAdminClient])
def test_an_unknown_option_is_refused_with_the_nearest_name(make: Any) -> None:
    with pytest.raises(errors.KafkaConfigurationError, match=r"did you mean request_timeout_ms\?"):
        make(request_timeout=1)
    with pytest.raises(ValueError, match="Unrecognized configs: 'zzz'"):
        make(zzz=1)


def test_nothing_that_was_asked_for_as_protection_is_dropped() -> None:
    for wanted in (
        {"security_protocol": "SASL_SSL"},
        {"sasl_mechanism": "PLAIN"},
        {"ssl_context": object()},
        {"socks5_proxy": "socks5://proxy"},
    ):
        with pytest.raises(errors.KafkaConfigurationError):
            KafkaProducer(**wanted)


def test_idempotence_goes_off_with_acks_below_all_unless_it_was_demanded() -> None:
    with ContractServer() as server:
        for acks in (0, 1):
            KafkaProducer(bootstrap_servers=server.address, acks=acks).close()
            with pytest.raises(errors.KafkaConfigurationError, match="enable_idempotence"):
                KafkaProducer(bootstrap_servers=server.address, acks=acks, enable_idempotence=True)


def test_values_that_kafka_python_takes_are_taken() -> None:
    with ContractServer() as server:
        KafkaProducer(
            bootstrap_servers=[server.address],
            client_id=None,
            acks="all",
            retries=float("inf"),
            max_block_ms=6e4,
            linger_ms=0.5,
            compression_type=None,
            key_serializer=None,
        ).close()
        KafkaConsumer(
            bootstrap_servers=server.address, auto_offset_reset="smallest", group_id=None
        ).close()


def test_a_table_names_no_reason_where_an_option_is_simply_honoured() -> None:
    for table in TABLES.values():
        for name, option in table.items():
            assert isinstance(option, Option)
            assert option.why or option.verdict is Verdict.HONOURED, name
