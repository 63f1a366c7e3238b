"""What the refusal of a wrong argument says, and what is said of one that is only odd."""

import logging
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_SECONDS
from tidelog.client import AdminClient, Consumer, NewTopic, Producer, errors
from tidelog.client.errors import ArgumentTypeError, ErrorCode, TidelogError
from tidelog.client.shared.checked import TABLE, check_of


def refusal(call: Any, *positional: Any, **named: Any) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        call(*positional, **named)
    return caught.value


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("http://localhost:9192", "write localhost:9192"),
        ("https://broker/", "write broker"),
        ("localhost:http", "a port is 1 to 65535"),
        ("localhost:²", "a port is 1 to 65535"),
        ("local host:1", "write host:port"),
    ],
)
def test_an_address_that_is_none_is_told_how_to_write_one(given: str, hint: str) -> None:
    error = refusal(Producer, bootstrap_servers=given)
    assert error.code is ErrorCode.INVALID_CONFIGURATION
    assert "bootstrap_servers" in error.happened
    assert error.hint == hint


def test_a_list_of_topics_in_a_constructor_is_told_to_be_unpacked() -> None:
    error = refusal(Consumer, ["m1"])
    assert isinstance(error, TypeError)
    assert "Consumer(*topics)" in error.hint


def test_a_text_instead_of_a_list_is_never_taken_letter_by_letter() -> None:
    with AdminClient() as admin:
        error = refusal(admin.delete_topics, "xyz")
    assert isinstance(error, ArgumentTypeError)
    assert error.hint == "put it into a list: topics=['xyz']"


def test_a_setting_that_is_no_text_is_named_by_its_topic_and_key() -> None:
    with AdminClient() as admin:
        wanted = NewTopic("t", topic_configs={"retention.ms": 1000})  # type: ignore[dict-item]
        error = refusal(admin.create_topics, [wanted])
    assert "new_topics[0].topic_configs['retention.ms'] is 1000" in error.happened


def test_a_topic_s_name_is_refused_with_the_rule() -> None:
    error = refusal(check_of("describe_topics", "topics"), ["a b"], "call it", "topics")
    assert error.code is ErrorCode.INVALID_TOPIC_NAME
    assert "1–249 of the characters" in error.hint
    assert "1–249 of the characters" in errors.CATALOGUE[error.code].remedy


def test_a_group_s_name_has_one_line() -> None:
    assert "group_id" in refusal(Consumer, group_id="a\nb").happened


def test_every_entry_of_the_table_can_be_called_with_anything() -> None:
    for name, check in TABLE.items():
        for value in (None, object(), float("nan"), "\ud800", 10**30):
            try:
                check(value, "call it", name)
            except TidelogError as error:
                told = str(error)
            else:
                told = name
            assert name.rpartition(".")[2] in told


@pytest.mark.parametrize("clients", BOTH, ids=str)
@pytest.mark.parametrize("time_ms", [-1, -(10**30), 1 << 62])
def test_a_time_before_1970_or_beyond_what_a_record_holds_is_refused(
    clients: Clients, time_ms: int
) -> None:
    with ContractServer() as server, clients.Producer(bootstrap_servers=server.address) as producer:
        error = refusal(producer.send, "t", b"v", timestamp_ms=time_ms)
        assert "timestamp_ms" in error.happened
        assert producer.send("t", b"v").get(HANG_SECONDS).offset == 0


@pytest.mark.parametrize("clients", BOTH, ids=str)
def test_seconds_in_place_of_milliseconds_are_told_once(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ContractServer() as server,
        clients.Producer(bootstrap_servers=server.address) as producer,
        caplog.at_level(logging.WARNING, "tidelog.client"),
    ):
        producer.send("t", b"v", timestamp_ms=1_763_600_000).get(HANG_SECONDS)
        producer.send_batch("t", [b"v"], timestamp_ms=[1_763_600_001]).get(HANG_SECONDS)
        producer.send("t", b"v", timestamp_ms=1_763_600_000_000).get(HANG_SECONDS)
    told = [each for each in caplog.messages if "seconds" in each]
    assert len(told) == 1
    assert "int(time.time() * 1000)" in told[0]
