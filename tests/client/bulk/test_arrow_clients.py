"""send_arrow() and poll_arrow() of both drivers: the same records as send() and poll()."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import Producer, TopicPartition
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.wire.batch import decode_records
from tidelog.wire.partitioner import partition_for_key

pytestmark = pytest.mark.slow

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=2) as running:
        yield running


def fill(server: ContractServer) -> None:
    """Long runs, short batches, nulls and headers, in two partitions."""
    with Producer(bootstrap_servers=server.address, batch_size=2_000) as producer:
        producer.send_batch("t", [b"%08d" % n for n in range(500)], timestamp_ms=range(500))
        for number in range(60):
            producer.send(
                "t",
                None if number % 7 == 0 else b"v" * (number % 5),
                key=b"k%d" % number if number % 3 else None,
                headers=[("h", b"1"), ("none", None)] if number % 4 == 0 else None,
                partition=number % 2,
                timestamp_ms=1_000_000 + number,
            )


def plain(table: Any) -> dict[TopicPartition, list[Any]]:
    """Of each partition: offset, timestamp, key, value, headers."""
    found: dict[TopicPartition, list[Any]] = {}
    for row in table.to_pylist():
        at = round(row["timestamp"].timestamp() * 1000)
        headers = tuple((each["key"], each["value"]) for each in row["headers"])
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(
            (row["offset"], at, row["key"], row["value"], headers)
        )
    return found


def polled(records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
    return {
        name: [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in of_partition]
        for name, of_partition in records.items()
    }


def merged(parts: list[dict[TopicPartition, list[Any]]]) -> dict[TopicPartition, list[Any]]:
    found: dict[TopicPartition, list[Any]] = {}
    for part in parts:
        for name, records in part.items():
            found.setdefault(name, []).extend(records)
    return found


def read_all(consumer: Any, read: Any, count: int) -> dict[TopicPartition, list[Any]]:
    parts: list[dict[TopicPartition, list[Any]]] = []
    while sum(len(each) for part in parts for each in part.values()) < count:
        part = read()
        assert part, "nothing came in time"
        parts.append(part)
    return merged(parts)


def test_a_table_holds_what_poll_gives(clients: Clients, server: ContractServer) -> None:
    fill(server)
    found = []
    for is_arrow in (True, False):
        with clients.Consumer(
            "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer:

            def read(consumer: Any = consumer, is_arrow: bool = is_arrow) -> Any:
                if is_arrow:
                    return plain(consumer.poll_arrow(HANG_MS, 4_000, include_headers=True))
                return polled(consumer.poll(HANG_MS))

            found.append(read_all(consumer, read, 560))
            found.append({name: consumer.position(name) for name in (T0, T1)})
    assert found[0] == found[2]
    assert found[1] == found[3]


def test_the_tables_columns_are_named_and_typed(clients: Clients, server: ContractServer) -> None:
    fill(server)
    with clients.Consumer("t", bootstrap_servers=server.address) as consumer:
        table = consumer.poll_arrow(100)
    assert table.num_rows == 0
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
    }


def test_tables_go_on_where_single_records_were_left(
    clients: Clients, server: ContractServer
) -> None:
    fill(server)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 3)
        assert next(consumer).offset == 3
        end = consumer.end_offsets([T0])[T0]
        first = consumer.poll_arrow(HANG_MS, max_bytes=1)
        assert first.column("offset")[0].as_py() == 4
        assert consumer.position(T0) == first.column("offset")[-1].as_py() + 1
        rest = [first]
        while consumer.position(T0) < end:
            rest.append(consumer.poll_arrow(HANG_MS))
        offsets = pa.concat_tables(rest).column("offset").to_pylist()
        assert offsets == list(range(4, end))
        consumer.seek(T0, 7)
        assert next(consumer).offset == 7


def test_records_before_a_damaged_batch_are_given_and_then_the_error(
    clients: Clients, server: ContractServer
) -> None:
    with Producer(bootstrap_servers=server.address) as producer:
        for number in range(4):
            producer.send_batch("t", [b"%d" % number] * 30, partition=0).get(HANG_SECONDS)
    base, end, data = server.log("t", 0).batches[2]
    server.log("t", 0).batches[2] = (base, end, data[:-1] + bytes([data[-1] ^ 1]))
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0])
        table = consumer.poll_arrow(HANG_MS)
        assert table.column("offset").to_pylist() == list(range(60))
        for _ in range(2):
            with pytest.raises(TidelogError) as caught:
                consumer.poll_arrow(HANG_MS)
            assert caught.value.code is ErrorCode.CORRUPT_BATCH
        assert consumer.position(T0) == 60
        consumer.seek(T0, 90)
        assert consumer.poll_arrow(HANG_MS).num_rows == 30


def stored(server: ContractServer, partition: int) -> list[Any]:
    return [
        (key, value, at)
        for _, _, data in server.log("t", partition).batches
        for _, at, _, key, value, _ in decode_records(data)
    ]


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_rows_of_a_table_are_sent_by_their_keys(
    clients: Clients, server: ContractServer, is_batch: bool
) -> None:
    keys = [None if n % 10 == 9 else f"key-{n % 17}" for n in range(3_000)]
    values = [None if n % 100 == 3 else f"value {n}" for n in range(3_000)]
    columns = {
        "id": pa.array(keys).dictionary_encode(),
        "body": pa.array(values, pa.large_string()),
        "at": pa.array([datetime.fromtimestamp(n, UTC) for n in range(3_000)]),
    }
    table = pa.record_batch(columns) if is_batch else pa.table(columns)
    with clients.Producer(bootstrap_servers=server.address, batch_size=4_000) as producer:
        sent = producer.send_arrow("t", table, value="body", key="id", timestamp="at").get(
            HANG_SECONDS
        )
    assert len(sent) == 3_000
    found: list[Any] = [None] * 3_000
    for part in sent.parts:
        of_partition = stored(server, part.partition)
        for offset, position in enumerate(part.positions, part.offset):
            found[position] = of_partition[offset]
            key = keys[position]
            assert key is None or part.partition == partition_for_key(key.encode(), 2)
    assert found == [
        (key and key.encode(), value and value.encode(), 1_000 * number)
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def test_what_was_read_as_a_table_can_be_sent_as_it_is(
    clients: Clients, server: ContractServer
) -> None:
    fill(server)
    with (
        clients.Consumer(
            bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer,
        clients.Producer(bootstrap_servers=server.address) as producer,
    ):
        consumer.assign([T1])
        table = consumer.poll_arrow(HANG_MS)
        producer.send_arrow("copy", table, timestamp="timestamp", partition=0).get(HANG_SECONDS)
        consumer.assign([TopicPartition("copy", 0)])
        copy = consumer.poll_arrow(HANG_MS)
    for name in ("key", "value", "timestamp"):
        assert copy.column(name).to_pylist() == table.column(name).to_pylist()


@pytest.mark.parametrize(
    ("columns", "named", "happened"),
    [
        ({"value": [b"v"]}, {"value": "body"}, "no one column 'body'"),
        ({"value": [b"v"]}, {"key": "id"}, "no one column 'id'"),
        ({"value": [1]}, {}, "of type int64"),
        ({"value": [b"v"], "at": ["noon"]}, {"timestamp": "at"}, "of type string"),
        ({"value": [b"v", b"v"], "at": [1, None]}, {"timestamp": "at"}, "1 nulls"),
    ],
)
def test_a_table_that_cannot_be_sent_says_which_column(
    server: ContractServer, columns: Any, named: Any, happened: str
) -> None:
    with Producer(bootstrap_servers=server.address) as producer:
        with pytest.raises(TidelogError) as caught:
            producer.send_arrow("t", pa.table(columns), **named)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert happened in caught.value.happened
        with pytest.raises(TidelogError) as caught:
            producer.send_arrow("t", columns)
        assert "not an Arrow table" in caught.value.happened


def test_without_pyarrow_the_error_names_the_extra(
    clients: Clients, server: ContractServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        clients.Producer(bootstrap_servers=server.address) as producer,
        clients.Consumer("t", bootstrap_servers=server.address) as consumer,
    ):
        calls: list[Any] = [
            lambda: producer.send_arrow("t", None),
            lambda: consumer.poll_arrow(0),
        ]
        for call in calls:
            with pytest.raises(TidelogError) as caught:
                call()
            assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
            assert "tidelog[arrow]" in caught.value.hint
