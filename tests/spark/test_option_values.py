"""Every option × values that are not of its form: refused by the option's name, or told in a line.

The list of options is the source's own: an option that is added without a row here fails the test.
"""

import json
import logging
from collections.abc import Mapping
from typing import Final

import pytest

from tidelog.spark.kafka_options import TAKEN
from tidelog.spark.options import KNOWN, LATER, MEANINGLESS, parse_options
from tidelog.wire.errors import ErrorCode, TidelogError

NO_NUMBERS: Final = (
    *("1.5", "1.0", "true", "null", "1e3", "0x10", "1_000", "+1", "-1", "--1", "ten", "1 2", '"7"'),
    *("[]", "{}", "NaN", "Infinity", "9" * 19, "9" * 40, "١٢", "1;", "1\n2"),
)
NO_COUNTS: Final = (*NO_NUMBERS, "0")
NO_BOOLS: Final = ("1", "0", "yes", "no", "t", "tru", "truefalse", "null", "1.5", "[]")
NO_OFFSETS: Final = (
    *("first", "1", "true", "null", "[]", "{", '"earliest"', '{"a":1}', '{"a":{"0":"1"}}'),
    *('{"a":{"0":1.5}}', '{"a":{"0":true}}', '{"a":{"x":1}}', '{"a":{"0":-3}}', '{"a":{"-1":0}}'),
    *('{"a":{"0":null}}', '{"a":{"0":99999999999999999999}}', '{"a":{"00":1}}', '{"a":{" 0":1}}'),
)
EMPTY: Final = ("", " ", "\t\n")

WRONG: Final[Mapping[str, tuple[str, ...]]] = {
    "assign": (
        *("a", "1", "true", "[]", "{}", '{"a":0}', '{"a":[]}', '{"a":[0],"b":[]}', '{"a":["0"]}'),
        *('{"a":[1.5]}', '{"a":[-1]}', '{"a":[true]}', '{"a":{"0":1}}', "{"),
    ),
    "bootstrap.servers": (),
    "endingOffsets": (*NO_OFFSETS, "earliest", '{"a":{"0":-2}}'),
    "endingTimestamp": NO_NUMBERS,
    "failOnDataLoss": NO_BOOLS,
    "fetchTimeoutMs": NO_COUNTS,
    "includeHeaders": NO_BOOLS,
    "kafka.bootstrap.servers": (),
    "kafka.check.crcs": NO_BOOLS,
    "kafka.client.id": (),
    "kafka.client.rack": (),
    "kafka.default.api.timeout.ms": NO_COUNTS,
    "kafka.fetch.max.bytes": NO_COUNTS,
    "kafka.isolation.level": ("read", "true", "1", "serializable"),
    "kafka.max.partition.fetch.bytes": NO_COUNTS,
    "kafka.metadata.max.age.ms": NO_COUNTS,
    "kafka.request.timeout.ms": NO_COUNTS,
    "kafka.retry.backoff.max.ms": NO_COUNTS,
    "kafka.retry.backoff.ms": NO_COUNTS,
    "kafka.security.protocol": ("TLS", "ssl3", "true"),
    "kafkaConsumer.pollTimeoutMs": NO_COUNTS,
    "maxOffsetsPerTrigger": NO_COUNTS,
    "minPartitions": (*NO_COUNTS, "1.7"),
    "startingOffsets": NO_OFFSETS,
    "startingTimestamp": NO_NUMBERS,
    "subscribe": (",", "a,", ",a", "a,,b"),
    "subscribePattern": ("(", "[", "*", "a{2,1}", "(?P<"),
}
TOPICS: Final = ("subscribe", "subscribePattern", "assign")


def given(option: str, value: str) -> dict[str, str]:
    """The option, and a topic if it names none itself."""
    return {option: value} if option in TOPICS else {"subscribe": "a", option: value}


def cells() -> list[tuple[str, str, bool]]:
    return [
        (option, value, is_streaming)
        for option, values in WRONG.items()
        for value in (*values, *EMPTY)
        for is_streaming in (False, True)
    ]


def test_every_option_has_its_wrong_values() -> None:
    assert sorted(WRONG) == sorted({*KNOWN, *TAKEN})


def test_a_value_that_is_not_of_its_form_is_refused_by_the_name_of_its_option() -> None:
    tried = 0
    for option, value, is_streaming in cells():
        with pytest.raises(TidelogError) as caught:
            parse_options(given(option, value), is_streaming=is_streaming)
        assert caught.value.code is ErrorCode.INVALID_CONFIGURATION, (option, value)
        assert option.lower() in str(caught.value).lower(), (option, value, str(caught.value))
        tried += 1
    assert tried > 400, f"only {tried} cells"


@pytest.mark.parametrize("option", LATER)
@pytest.mark.parametrize("value", ["1", "true", "x", "{}"])
def test_what_this_release_cannot_do_is_refused_whatever_its_value(option: str, value: str) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_options(given(option, value), is_streaming=True)
    assert caught.value.code is ErrorCode.NOT_IMPLEMENTED


@pytest.mark.parametrize(
    "option",
    ["kafka.ssl.truststore.location", "kafka.sasl.mechanism", "kafka.SSL.key.password"],
)
def test_whoever_wants_a_secured_connection_is_not_given_an_open_one(option: str) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_options(given(option, "x"), is_streaming=False)
    assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
    for protocol in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"):
        with pytest.raises(TidelogError) as caught:
            parse_options(given("kafka.security.protocol", protocol), is_streaming=False)
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED


@pytest.mark.parametrize("option", ["kafka.auto.offset.reset", "kafka.enable.auto.commit"])
def test_what_the_source_sets_itself_is_refused_as_the_kafka_connector_refuses_it(
    option: str,
) -> None:
    with pytest.raises(TidelogError) as caught:
        parse_options(given(option, "latest"), is_streaming=True)
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION


def test_options_of_kafkas_consumer_are_taken_where_they_mean_something() -> None:
    options = parse_options(
        {
            "subscribe": "a",
            "kafka.fetch.max.bytes": "1000",
            "kafka.client.rack": "b",
            "kafka.check.crcs": "False",
            "kafka.request.timeout.ms": "9000",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.security.protocol": "PLAINTEXT",
            "kafkaConsumer.pollTimeoutMs": "4000",
        },
        is_streaming=True,
    )
    taken = {"check_crcs": False, "client_rack": "b", "request_timeout_ms": 9000}
    assert options.client.for_consumer() == {**taken, "fetch_max_bytes": 1000}
    assert options.client.for_admin() == {"request_timeout_ms": 9000}
    assert options.fetch_timeout_ms == 4000


def test_what_means_nothing_here_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    asked = {
        "subscribe": "a",
        "kafka.session.timeout.ms": "1",
        "kafka.group.id": "g",
        "kafka.fetch.max.byte": "1",
        "fetchOffset.numRetries": "3",
        "path": "orders",
        "maxOffsetsPerTrigger": "5",
    }
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        options = parse_options(asked, is_streaming=False)
    assert options.max_offsets_per_trigger is None
    [line] = caplog.messages
    for name in asked.keys() - {"subscribe"}:
        assert name in line
    assert "did you mean kafka.fetch.max.bytes" in line
    caplog.clear()
    parse_options({"subscribe": "a", **dict.fromkeys(MEANINGLESS, "1")}, is_streaming=True)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "turned",
    [
        {"startingTimestamp": "20", "endingTimestamp": "10"},
        {
            "startingOffsets": json.dumps({"a": {"0": 20}}),
            "endingOffsets": json.dumps({"a": {"0": 10}}),
        },
    ],
)
def test_an_end_before_the_start_is_a_mistake(turned: dict[str, str]) -> None:
    with pytest.raises(TidelogError, match="not before the start"):
        parse_options({"subscribe": "a", **turned}, is_streaming=False)
