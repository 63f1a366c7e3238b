"""Tables of both drivers, and what a record does to one."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_SECONDS
from tidelog.client import ConsumerRecord, Producer
from tidelog.client.engine.fetch.table_state import TableState
from tidelog.client.errors import ErrorCode, TidelogError

KEYS = st.none() | st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.none() | st.binary(max_size=2)
LOG = st.lists(st.tuples(KEYS, VALUES), max_size=40)


def record(offset: int, key: Any, value: Any, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, 1, offset, offset * 10, 0, key, value, ())


def latest(log: list[Any], end: int) -> dict[Any, Any]:
    """The model: what the records below `end` come to."""
    found: dict[Any, Any] = {}
    for key, value in log[:end]:
        if key is not None:
            found[key] = value
    return {key: value for key, value in found.items() if value is not None}


@given(log=LOG, polls=st.lists(st.integers(0, 40)), limit=st.none() | st.integers(0, 40))
def test_a_table_is_the_latest_value_of_each_key(
    log: list[Any], polls: list[int], limit: int | None
) -> None:
    limits = {} if limit is None else {0: min(limit, len(log))}
    state = TableState({0: 0}, {0: len(log)}, limits, None, None)
    goal = limits.get(0, len(log))
    records = [record(offset, *entry) for offset, entry in enumerate(log)]
    bounds = sorted({0, len(log), *(each for each in polls if each < len(log))})
    for start, end in itertools.pairwise(bounds):
        state.apply(0, records[start:end])
        state.pass_to(0, end)
        assert state.entries == latest(log, min(end, goal))
        assert state.positions == {0: min(end, goal)}
        assert state.progress() == (min(end, goal), goal)
        assert state.is_loaded == (end >= goal)
        assert state.has({0: end - 1}) == (end <= goal)
    assert state.is_loaded


@given(log=LOG, keep=st.sets(st.integers(0, 40)))
def test_a_compacted_topic_comes_to_the_same_table(log: list[Any], keep: set[int]) -> None:
    """What was overwritten may be gone, the last record of each key is there."""
    last = {key: offset for offset, (key, _) in enumerate(log)}
    kept = [
        record(offset, *entry)
        for offset, entry in enumerate(log)
        if offset in keep or last[entry[0]] == offset
    ]
    state = TableState({0: 0}, {0: len(log)}, {}, None, None)
    state.apply(0, kept)
    state.pass_to(0, len(log))
    assert state.entries == latest(log, len(log))
    assert state.is_loaded


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        yield running


@pytest.fixture
def producer(server: ContractServer) -> Iterator[Producer]:
    with Producer(bootstrap_servers=server.address) as running:
        yield running


def put(producer: Producer, *entries: tuple[Any, Any], at: int = 0) -> Any:
    """The place of the last of them."""
    future = None
    for key, value in entries:
        future = producer.send("t", value, key=key, partition=0, timestamp_ms=at)
    assert future is not None
    return future.get(HANG_SECONDS)


@pytest.mark.slow
def test_a_table_is_loaded_and_then_follows(
    clients: Clients, server: ContractServer, producer: Producer
) -> None:
    put(producer, (b"tea", b"1"), (b"milk", b"2"), (b"tea", b"3"), (None, b"x"), (b"milk", None))
    told: list[tuple[int, int]] = []
    with clients.Table(
        "t",
        bootstrap_servers=server.address,
        key_deserializer=bytes.decode,
        value_deserializer=int,
        on_progress=lambda done, total: told.append((done, total)),
    ) as table:
        assert dict(table.items()) == {"tea": 3}
        assert told[-1] == (5, 5)
        assert table.offsets == {0: 5}
        before = table.snapshot()
        table.wait_for(put(producer, (b"sugar", b"4"), (b"tea", None)))
        assert list(table.keys()) == ["sugar"]
        assert table.get("tea", "none") == "none"
        with pytest.raises(KeyError):
            table["tea"]
        assert len(table) == 1
        assert dict(before.entries) == {"tea": 3}
        assert dict(before.offsets) == {0: 5}
        table.wait_for(6)
        table.wait_for({0: 6})
        with pytest.raises(TidelogError) as caught:
            table.wait_for(7, timeout_ms=20)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    with pytest.raises(TidelogError) as caught:
        table.get("tea")
    assert caught.value.code is ErrorCode.CLOSED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ({"as_of_offset": 0}, {}),
        ({"as_of_offset": {0: 2}}, {b"a": b"1", b"b": b"2"}),
        ({"as_of_time_ms": 99}, {}),
        ({"as_of_time_ms": 200}, {b"a": b"1", b"b": b"2"}),
        ({"as_of_time_ms": 300}, {b"b": b"3"}),
        ({"as_of_time_ms": 900}, {b"b": b"3"}),
    ],
)
def test_a_table_shows_a_moment_of_the_past_and_stays_there(
    clients: Clients, server: ContractServer, producer: Producer, moment: Any, expected: Any
) -> None:
    for number, entry in enumerate([(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"b", b"3")]):
        put(producer, entry, at=100 * min(number + 1, 3) if number else 100)
    with clients.Table("t", bootstrap_servers=server.address, **moment) as table:
        assert dict(table.items()) == expected
        later = put(producer, (b"c", b"4"))
        with pytest.raises(TidelogError) as caught:
            table.wait_for({0: later.offset})
        assert "shows the past" in caught.value.happened
        assert dict(table.items()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"as_of_offset": 9}, ErrorCode.INVALID_ARGUMENT),
        ({"as_of_offset": {1: 0}}, ErrorCode.INVALID_ARGUMENT),
        ({"as_of_offset": 1, "as_of_time_ms": 1}, ErrorCode.INVALID_ARGUMENT),
        ({"group_id": "g"}, ErrorCode.INVALID_CONFIGURATION),
        ({"auto_offset_reset": "latest"}, ErrorCode.INVALID_CONFIGURATION),
        ({"load_timeout_ms": 0}, ErrorCode.DEADLINE_EXCEEDED),
    ],
)
def test_what_cannot_be_shown_is_refused(
    clients: Clients, server: ContractServer, producer: Producer, arguments: Any, code: ErrorCode
) -> None:
    put(producer, (b"a", b"1"))
    with pytest.raises(TidelogError) as caught:
        clients.Table("t", bootstrap_servers=server.address, **arguments).__enter__()
    assert caught.value.code is code


@pytest.mark.slow
def test_a_table_of_no_topic_is_refused(clients: Clients, server: ContractServer) -> None:
    server.auto_create = False
    with pytest.raises(TidelogError) as caught:
        clients.Table("none", bootstrap_servers=server.address).__enter__()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


@pytest.mark.slow
def test_an_entry_that_cannot_be_read_stops_the_table_instead_of_being_passed_over(
    clients: Clients, server: ContractServer, producer: Producer
) -> None:
    put(producer, (b"a", b"1"))
    with clients.Table("t", bootstrap_servers=server.address, value_deserializer=int) as table:
        assert table[b"a"] == 1
        bad = put(producer, (b"b", b"not a number"))
        with pytest.raises(TidelogError) as caught:
            table.wait_for(bad)
        assert "ValueError" in caught.value.happened
        with pytest.raises(TidelogError):
            table.get(b"a")


@pytest.mark.slow
def test_a_table_is_not_readable_before_it_is_loaded(
    clients: Clients, server: ContractServer
) -> None:
    table = clients.Table("t", bootstrap_servers=server.address)
    with pytest.raises(TidelogError) as caught:
        table.get(b"a")
    assert "not loaded" in caught.value.happened
    table.close()
