"""What errors of the client say: hints that can be followed, and nothing behind them."""

import gc
import json
import subprocess
import sys
from typing import Any, Final

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_SECONDS
from tidelog.client import AdminClient, Consumer, Producer, Table
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer
from tidelog.client.arguments.records import warn_of_seconds
from tidelog.client.engine.produce.lane import Lane
from tidelog.client.errors import ArgumentTypeError, ErrorCode, TidelogError
from tidelog.client.shared import lifecycle
from tidelog.testing import TestCluster

WRONG: Final[dict[str, Any]] = {
    "Producer": lambda: Producer(bootstrap_servers="x:y"),
    "Consumer": lambda: Consumer(bootstrap_servers="x:y"),
    "Table": lambda: Table("t", bootstrap_servers="x:y"),
    "AdminClient": lambda: AdminClient(bootstrap_servers="x:y"),
    "AsyncProducer": lambda: AsyncProducer(bootstrap_servers="x:y"),
    "AsyncConsumer": lambda: AsyncConsumer(bootstrap_servers="x:y"),
    "AsyncAdminClient": lambda: AsyncAdminClient(bootstrap_servers="x:y"),
    "TestCluster of none": lambda: TestCluster(brokers=0),
    "TestCluster of a text": lambda: TestCluster(brokers="3"),  # type: ignore[arg-type]
    "TestCluster of a fraction": lambda: TestCluster(brokers=2.0),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_a_constructor_that_refused_leaves_nothing_to_close(name: str) -> None:
    gc.collect()
    before = set(lifecycle._process.clients)
    with pytest.raises(TidelogError) as caught:
        WRONG[name]()
    kept = caught.value  # Its traceback holds the object, as one that nobody catches does.
    left = [
        lifecycle._process.clients[each]() for each in lifecycle._process.clients.keys() - before
    ]
    assert left == [], kept


@pytest.mark.slow
def test_an_uncaught_refusal_ends_the_program_with_its_own_traceback_only() -> None:
    program = "from tidelog.client import Producer; Producer(bootstrap_servers='x:y')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert "is not host:port" in done.stderr
    assert "atexit" not in done.stderr


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: AdminClient().create_topics("o3"), "new_topics=[NewTopic('o3')]"),  # type: ignore[arg-type]
        (lambda: Consumer().assign("o3"), "partitions=[TopicPartition('o3', 0)]"),  # type: ignore[arg-type]
    ],
)
def test_a_text_in_a_lists_place_is_told_with_what_can_be_passed(call: Any, hint: str) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        call()
    assert hint in caught.value.hint


def test_an_error_has_the_article_of_its_name() -> None:
    with pytest.raises(TidelogError) as caught:
        AdminClient(bootstrap_servers="x:y")
    assert caught.value.tried == "make an AdminClient"


def test_a_number_without_bounds_shows_none() -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        Table("t", as_of_offset="1")  # type: ignore[arg-type]
    assert "it can be an offset from 0 on" in caught.value.happened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("serializer", "value", "happened", "hint"),
    [
        (json.dumps, {"a": 1}, "value_serializer returned", "json.dumps(value).encode()"),
        (None, {"a": 1}, "of type dict needs a serializer", "json.dumps(value).encode()"),
        (None, "text", "of type str needs a serializer", "str.encode"),
    ],
)
def test_a_value_that_is_no_bytes_is_told_with_a_serializer_that_can_take_it(
    serializer: Any, value: Any, happened: str, hint: str
) -> None:
    with (
        ContractServer() as server,
        Producer(bootstrap_servers=server.address, value_serializer=serializer) as producer,
        pytest.raises(ArgumentTypeError) as caught,
    ):
        producer.send("t", value)
    assert happened in caught.value.happened
    assert hint in caught.value.hint


def test_times_in_seconds_are_told_where_records_are_looked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_seconds([0, -1, 1_795_153_973_000], "look")
    assert not caplog.messages
    warn_of_seconds([1_795_153_973], "look")
    assert "would be one of our days in seconds" in caplog.text


def test_what_refuses_a_batch_is_not_hidden_by_what_is_refused_behind_it() -> None:
    lane, full = Lane(), TidelogError(ErrorCode.STORAGE_FULL, tried="t", happened="no room")
    behind = TidelogError(ErrorCode.OUT_OF_ORDER_SEQUENCE, tried="t", happened="later")
    lane.note_trouble(behind, 1)
    lane.note_trouble(full, 2)
    lane.note_trouble(behind, 3)
    assert (lane.trouble, lane.trouble_since_ns) == (full, 1)
