"""send_batch() of both drivers against a server in memory that misbehaves on request."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_SECONDS, with_more_time
from tidelog.client import PartlySentError
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.wire.batch import decode_records, read_header
from tidelog.wire.partitioner import partition_for_key

pytestmark = pytest.mark.slow


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer(default_partitions=3) as running:
        yield running


def stored(server: ContractServer, topic: str, partition: int) -> list[Any]:
    """Offset, timestamp, key, value, headers of every record."""
    return [
        (offset, at, key, value, tuple(headers))
        for base, _, data in server.log(topic, partition).batches
        for offset, at, _, key, value, headers in decode_records(data)
        if offset >= base
    ]


def test_the_answer_tells_the_offset_of_every_record(
    clients: Clients, server: ContractServer
) -> None:
    values = [b"%d" % number for number in range(5_000)]
    with clients.Producer(bootstrap_servers=server.address, batch_size=4_096) as producer:
        sent = producer.send_batch("t", values).get(HANG_SECONDS)
        assert len(sent) == 5_000
        again = producer.send_batch("t", values, partition=1, timestamp_ms=7).get(HANG_SECONDS)
    offsets, found = sent.offsets(), {}
    for part in sent.parts:
        for position in part.positions:
            found[part.partition, offsets[position]] = values[position]
    assert {part.partition for part in sent.parts} == {0, 1, 2}
    for partition in range(3):
        log = {(partition, record[0]): record[3] for record in stored(server, "t", partition)}
        assert {key: log[key] for key in found if key[0] == partition}.items() <= log.items()
        assert all(found[key] == log[key] for key in found if key[0] == partition)
    assert len(found) == 5_000
    assert {part.partition for part in again.parts} == {1}
    assert again.offsets() == list(range(again.parts[0].offset, again.parts[0].offset + 5_000))


def test_keys_headers_and_times_travel_with_their_values(
    clients: Clients, server: ContractServer
) -> None:
    keys = [b"k%d" % (number % 5) for number in range(500)]
    headers = [[("n", b"%d" % number)] if number % 3 == 0 else None for number in range(500)]
    with clients.Producer(
        bootstrap_servers=server.address, value_serializer=lambda number: b"%d" % number
    ) as producer:
        future = producer.send_batch("t", range(500), keys, headers, timestamp_ms=range(500))
        producer.flush(HANG_SECONDS)
        assert future.succeeded()
    for partition in range(3):
        wanted = [
            (number, keys[number], b"%d" % number, tuple(headers[number] or ()))
            for number in range(500)
            if partition_for_key(keys[number], 3) == partition
        ]
        assert [record[1:] for record in stored(server, "t", partition)] == wanted


def test_calls_and_single_records_keep_their_order(
    clients: Clients, server: ContractServer
) -> None:
    with clients.Producer(bootstrap_servers=server.address, batch_size=2_000) as producer:
        for number in range(0, 600, 6):
            producer.send("t", b"%d" % number, partition=0)
            values = [b"%d" % each for each in range(number + 1, number + 6)]
            producer.send_batch("t", values, partition=0)
        single = producer.send("t", b"600", partition=0)
        many = producer.send_batch("t", [b"601", b"602"], partition=0)
        assert single.get(HANG_SECONDS).offset == 600
        assert many.get(HANG_SECONDS).offsets() == [601, 602]
    assert [int(record[3]) for record in stored(server, "t", 0)] == list(range(603))


def test_a_broken_stream_stores_nothing_twice(clients: Clients, server: ContractServer) -> None:
    server.break_produce_at = 2
    with clients.Producer(
        bootstrap_servers=server.address, batch_size=2_000, retry_backoff_ms=10
    ) as producer:
        future = producer.send_batch("t", [b"%d" % n for n in range(2_000)], partition=0)
        assert future.get(HANG_SECONDS).offsets() == list(range(2_000))
    assert [int(record[3]) for record in stored(server, "t", 0)] == list(range(2_000))
    sequences = [read_header(data).base_sequence for _, _, data in server.log("t", 0).batches]
    assert sequences == [base for base, _, _ in server.log("t", 0).batches]


def test_an_empty_batch_is_done_at_once(clients: Clients, server: ContractServer) -> None:
    with clients.Producer(bootstrap_servers=server.address) as producer:
        future = producer.send_batch("t", [])
        assert future.done()
        assert len(future.get(1)) == 0
        called: list[object] = []
        future.add_callback(called.append)
        assert len(called) == 1


def test_of_a_failed_call_the_parts_tell_what_is_stored(
    clients: Clients, server: ContractServer
) -> None:
    server.judge = lambda _, partition, __: ErrorCode.PERMISSION_DENIED if partition == 1 else None
    called: list[Any] = []
    finished = threading.Event()

    def on_error(error: TidelogError) -> None:
        called.append(error)
        finished.set()

    with clients.Producer(bootstrap_servers=server.address, batch_size=2_000) as producer:
        future = producer.send_batch("t", [b"%03d" % n for n in range(999)])
        future.add_callback(called.append)
        future.add_errback(on_error)
        error = future.exception(HANG_SECONDS)
        assert finished.wait(HANG_SECONDS)
        parts = future.parts()
    assert error is not None
    assert error.code is ErrorCode.PERMISSION_DENIED
    assert [each.code for each in called] == [error.code]
    missing = sum(len(part) for part in parts if part.error is not None)
    assert any(f"{missing} of the 999" in note for note in error.__notes__)
    assert {part.partition for part in parts if part.error is not None} == {1}
    assert sum(map(len, parts)) == 999
    for part in (part for part in parts if part.error is None):
        log = {record[0]: record[3] for record in stored(server, "t", part.partition)}
        for offset, position in enumerate(part.positions, part.offset):
            assert log[offset] == b"%03d" % position


def test_nothing_of_a_call_is_sent_that_holds_a_record_too_large(
    clients: Clients, server: ContractServer
) -> None:
    with clients.Producer(bootstrap_servers=server.address, max_request_size=1_000) as producer:
        with pytest.raises(TidelogError) as caught:
            producer.send_batch("t", [b"fine", b"v" * 1_000])
        assert caught.value.code is ErrorCode.BATCH_TOO_LARGE
        with pytest.raises(TidelogError) as caught:
            producer.send_batch("t", [b"fine"], partition=9)
        assert caught.value.code is ErrorCode.UNKNOWN_PARTITION
        producer.flush(HANG_SECONDS)
    assert not server.produce_requests


def test_a_full_buffer_blocks_and_then_tells_what_was_taken(
    clients: Clients, server: ContractServer
) -> None:
    server.is_silent.set()

    def filled(limit_ms: int) -> None:
        # The buffer stays full until the call gives up.
        with clients.Producer(
            bootstrap_servers=server.address,
            buffer_memory=40_000,
            batch_size=4_000,
            max_block_ms=limit_ms,
            request_timeout_ms=2 * limit_ms,
            delivery_timeout_ms=4 * limit_ms,
        ) as producer:
            with pytest.raises(PartlySentError) as caught:
                producer.send_batch("t", [b"v" * 64] * 10_000)
            error = caught.value
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED
            taken = len(error.sent)
            assert 0 < taken <= 400
            assert f"{taken} of 10000 records" in error.happened
            assert producer.metrics()["buffer_reserved_bytes"] <= 40_000

    with_more_time(filled, 300)


def test_a_closed_producer_refuses_with_a_typed_error(
    clients: Clients, server: ContractServer
) -> None:
    producer = clients.Producer(bootstrap_servers=server.address)
    producer.close()
    with pytest.raises(TidelogError) as caught:
        producer.send_batch("t", [b"v"])
    assert caught.value.code is ErrorCode.CLOSED
