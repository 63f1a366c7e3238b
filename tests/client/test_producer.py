"""The producers of both drivers against a server that misbehaves on request."""

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_SECONDS, with_more_time
from tidelog.client import Producer, RecordMetadata, TopicPartition
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.client.sync.future import SendFuture
from tidelog.v1 import produce_pb2
from tidelog.wire.batch import Codec, read_header

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


def test_a_future_tells_where_its_record_was_stored(
    clients: Clients, server: ContractServer
) -> None:
    server.create("t", 2)
    with clients.Producer(bootstrap_servers=server.address) as producer:
        futures = [producer.send("t", b"v", partition=1, timestamp_ms=7) for _ in range(3)]
        stored = [future.get(HANG_SECONDS) for future in futures]
    assert stored[2] == RecordMetadata("t", 1, 2, 7, 1)
    assert stored[2].topic_partition == TopicPartition("t", 1)
    assert futures[0].done()
    assert futures[0].exception() is None


def test_closing_sends_what_was_appended(clients: Clients, server: ContractServer) -> None:
    producer = clients.Producer(bootstrap_servers=server.address, linger_ms=60_000)
    future = producer.send("t", b"v")
    producer.close()
    assert future.succeeded()


def test_a_closed_producer_refuses_with_a_typed_error(
    clients: Clients, server: ContractServer
) -> None:
    producer = clients.Producer(bootstrap_servers=server.address)
    producer.close()
    with pytest.raises(TidelogError) as caught:
        producer.send("t", b"v")
    assert caught.value.code is ErrorCode.CLOSED
    producer.close()


@pytest.mark.parametrize("call", ["send", "send_batch"])
def test_a_record_that_was_on_its_way_in_while_another_thread_closed_is_refused(
    server: ContractServer, call: str
) -> None:
    is_inside, go_on = threading.Event(), threading.Event()
    told: list[BaseException] = []

    def serialize(value: bytes) -> bytes:
        if value == b"late":
            is_inside.set()
            go_on.wait(HANG_SECONDS)
        return value

    producer = Producer(bootstrap_servers=server.address, value_serializer=serialize)
    producer.send("t", b"first").get(HANG_SECONDS)

    def send() -> None:
        with pytest.raises(TidelogError) as caught:
            producer.send("t", b"late") if call == "send" else producer.send_batch("t", [b"late"])
        told.append(caught.value)

    thread = threading.Thread(target=send)
    thread.start()
    assert is_inside.wait(HANG_SECONDS)
    producer.close()
    go_on.set()
    thread.join(HANG_SECONDS)
    (error,) = told
    cause = error.__cause__ or error
    assert isinstance(cause, TidelogError)
    assert cause.code is ErrorCode.CLOSED


def test_the_same_key_goes_to_the_same_partition(clients: Clients, server: ContractServer) -> None:
    with clients.Producer(bootstrap_servers=server.address) as producer:
        places = {
            producer.send("t", b"v", key=b"customer-7").get(HANG_SECONDS).partition
            for _ in range(5)
        }
    assert len(places) == 1


def test_records_without_a_key_fill_one_batch_and_then_the_next_partition(
    clients: Clients, server: ContractServer
) -> None:
    with clients.Producer(
        bootstrap_servers=server.address, batch_size=4_096, linger_ms=60_000
    ) as producer:
        futures = [producer.send("t", b"v" * 100) for _ in range(300)]
        producer.flush(HANG_SECONDS)
        partitions = [future.get(0).partition for future in futures]
    changes = sum(1 for a, b in itertools.pairwise(partitions) if a != b)
    assert set(partitions) == {0, 1, 2}
    assert changes < 20


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed_as_asked(
    clients: Clients, server: ContractServer, codec: Codec
) -> None:
    with clients.Producer(
        bootstrap_servers=server.address, compression_type=codec.name.lower()
    ) as producer:
        producer.send("t", b"v" * 5_000, partition=0).get(HANG_SECONDS)
    data = server.log("t").batches[0][2]
    assert read_header(data).codec is codec
    with clients.Consumer(
        "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer).value == b"v" * 5_000


def test_records_that_were_never_answered_are_sent_again_and_stored_once(
    clients: Clients, server: ContractServer
) -> None:
    server.break_produce_at = 1
    with clients.Producer(bootstrap_servers=server.address, retry_backoff_ms=10) as producer:
        future = producer.send("t", b"v", partition=0)
        assert future.get(HANG_SECONDS).offset == 0
        assert producer.send("t", b"next", partition=0).get(HANG_SECONDS).offset == 1
    headers = [read_header(part.batch) for part in _sent(server)]
    assert [header.base_sequence for header in headers] == [0, 0, 1]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(1, 0)}
    assert len(server.log("t").batches) == 2


def test_without_idempotence_what_was_never_answered_is_indeterminate_and_not_sent_again(
    clients: Clients, server: ContractServer
) -> None:
    server.break_produce_at = 1
    with clients.Producer(bootstrap_servers=server.address, enable_idempotence=False) as producer:
        future = producer.send("t", b"v")
        error = future.exception(HANG_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.INDETERMINATE
        producer.send("t", b"next").get(HANG_SECONDS)
    headers = [read_header(part.batch) for part in _sent(server)]
    assert [header.producer_id for header in headers] == [-1, -1], "each of them was sent once"
    assert server.ids_given == 0


def test_a_silent_broker_makes_records_indeterminate_after_the_delivery_timeout(
    clients: Clients, server: ContractServer
) -> None:
    server.is_silent.set()

    def given_up(limit_ms: int) -> None:
        before, each_ms = len(_sent(server)), limit_ms // 3
        with clients.Producer(
            bootstrap_servers=server.address,
            request_timeout_ms=each_ms,
            delivery_timeout_ms=limit_ms,
        ) as producer:
            error = producer.send("t", b"v").exception(HANG_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.INDETERMINATE
        assert f"delivery_timeout_ms={limit_ms}" in error.happened
        assert f"request_timeout_ms={each_ms}" in error.happened
        assert len(_sent(server)) > before + 1

    with_more_time(given_up, 900)


def test_a_refused_batch_is_sent_again_until_it_is_stored(
    clients: Clients, server: ContractServer
) -> None:
    server.judge = lambda _topic, _partition, before: (
        ErrorCode.NOT_ENOUGH_IN_SYNC_REPLICAS if before < 2 else None
    )
    with clients.Producer(bootstrap_servers=server.address, retry_backoff_ms=10) as producer:
        assert producer.send("t", b"v").get(HANG_SECONDS).offset == 0
    assert len(_sent(server)) == 3


def test_a_batch_that_stays_refused_fails_after_the_delivery_timeout(
    clients: Clients, server: ContractServer
) -> None:
    server.judge = lambda *_: ErrorCode.STORAGE_FULL

    def given_up(limit_ms: int) -> None:
        with clients.Producer(
            bootstrap_servers=server.address,
            retry_backoff_ms=10,
            request_timeout_ms=limit_ms // 2,
            delivery_timeout_ms=limit_ms,
        ) as producer:
            error = producer.send("t", b"v").exception(HANG_SECONDS)
        assert error is not None
        assert error.code is ErrorCode.STORAGE_FULL
        assert f"delivery_timeout_ms={limit_ms}" in error.happened

    with_more_time(given_up, 400)


def test_a_refusal_for_good_fails_at_once(clients: Clients, server: ContractServer) -> None:
    server.judge = lambda *_: ErrorCode.BATCH_TOO_LARGE
    with (
        clients.Producer(bootstrap_servers=server.address) as producer,
        pytest.raises(TidelogError) as caught,
    ):
        producer.send("t", b"v").get(HANG_SECONDS)
    assert caught.value.code is ErrorCode.BATCH_TOO_LARGE
    assert len(_sent(server)) == 1


def test_a_full_buffer_blocks_and_then_says_which_setting(
    clients: Clients, server: ContractServer
) -> None:
    server.create("t")
    server.is_silent.set()

    def filled(limit_ms: int) -> None:
        producer = clients.Producer(
            bootstrap_servers=server.address,
            buffer_memory=64 * 1024,
            batch_size=16 * 1024,
            max_block_ms=limit_ms,
        )

        def fill() -> None:
            for _ in range(100):
                producer.send("t", b"v" * 4_000)

        with pytest.raises(TidelogError) as caught:
            fill()
        producer.close(0)
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert "buffer_memory=65536" in caught.value.happened
        assert f"max_block_ms={limit_ms}" in caught.value.happened

    with_more_time(filled, 200)


def test_a_full_buffer_lets_the_sender_go_on_when_batches_are_done(
    clients: Clients, server: ContractServer
) -> None:
    with clients.Producer(
        bootstrap_servers=server.address, buffer_memory=64 * 1024, batch_size=16 * 1024
    ) as producer:
        futures = [producer.send("t", b"v" * 1_000) for _ in range(500)]
        producer.flush(HANG_SECONDS)
        assert all(future.succeeded() for future in futures)
        # Through a loop in another thread one record at a time comes too slowly for that.
        assert producer.metrics()["waits_for_room"] > 0 or clients.driver == "asyncio"
        assert producer.metrics()["buffer_reserved_bytes"] == 0


def test_an_unknown_topic_is_named_with_the_nearest(
    clients: Clients, server: ContractServer
) -> None:
    server.auto_create = False
    server.create("orders")
    with clients.Producer(bootstrap_servers=server.address, retry_backoff_ms=10) as producer:
        producer.send("orders", b"v").get(HANG_SECONDS)
        with pytest.raises(TidelogError) as caught:
            producer.send("ordres", b"v")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    assert "orders" in caught.value.hint
    assert "auto_create_topics" in caught.value.happened


@pytest.mark.parametrize(("value", "key", "name"), [("v", None, "value"), (b"v", "k", "key")])
def test_text_without_a_serializer_names_the_serializer(
    clients: Clients, server: ContractServer, value: object, key: object, name: str
) -> None:
    with (
        clients.Producer(bootstrap_servers=server.address) as producer,
        pytest.raises(TypeError, match=f"{name}_serializer"),
    ):
        producer.send("t", value, key=key)


def test_serializers_headers_and_timestamps_arrive(
    clients: Clients, server: ContractServer
) -> None:
    with clients.Producer(
        bootstrap_servers=server.address, key_serializer=str.encode, value_serializer=str.encode
    ) as producer:
        headers = [("trace", b"1"), ("empty", b""), ("none", None)]
        producer.send("t", "value", key="key", headers=headers, timestamp_ms=12).get(HANG_SECONDS)
    with clients.Consumer(
        "t",
        bootstrap_servers=server.address,
        auto_offset_reset="earliest",
        value_deserializer=bytes.decode,
    ) as consumer:
        record = next(consumer)
    assert (record.key, record.value, record.timestamp) == (b"key", "value", 12)
    assert list(record.headers) == headers


def test_callbacks_run_with_their_arguments(clients: Clients, server: ContractServer) -> None:
    seen: list[object] = []
    done = threading.Event()
    with clients.Producer(bootstrap_servers=server.address) as producer:
        future = producer.send("t", b"v", partition=2)
        future.add_errback(seen.append)
        future.add_callback(lambda mark, stored: seen.append((mark, stored.partition)), "mark")
        future.add_callback(lambda _: done.set())
        assert done.wait(HANG_SECONDS)
        future.add_callback(lambda stored: seen.append(stored.offset))
    assert seen == [("mark", 2), 0]


def test_many_threads_share_a_producer(clients: Clients, server: ContractServer) -> None:
    count = 500
    with clients.Producer(bootstrap_servers=server.address, batch_size=2_000) as producer:

        def send_all(name: bytes) -> None:
            for number in range(count):
                producer.send("t", b"%s %d" % (name, number), partition=0)

        threads = [threading.Thread(target=send_all, args=(b"%d" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
        producer.flush(HANG_SECONDS)
    with clients.Consumer(
        "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        values = [next(consumer).value for _ in range(4 * count)]
    for name in (b"0", b"1", b"2", b"3"):
        mine = [int(value.split()[1]) for value in values if value.split()[0] == name]
        assert mine == list(range(count)), "each thread's records keep their order"


def test_an_interpreter_that_ends_without_close_sends_what_it_has(server: ContractServer) -> None:
    program = (
        "import sys; from tidelog.client import Producer\n"
        "Producer(bootstrap_servers=sys.argv[1], linger_ms=50_000).send('t', b'last words')"
    )
    subprocess.run(
        [sys.executable, "-c", program, server.address], check=True, timeout=HANG_SECONDS
    )
    assert sum(log.end_offset for log in server.logs.values()) == 1


def test_ctrl_c_ends_a_wait(server: ContractServer) -> None:
    server.is_silent.set()
    program = (
        "import sys; from tidelog.client import Producer\n"
        "future = Producer(bootstrap_servers=sys.argv[1], linger_ms=0).send('t', b'v')\n"
        "try:\n    print('waiting', flush=True)\n    future.get()\n"
        "except KeyboardInterrupt:\n    import os; print('ended', flush=True); os._exit(0)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, server.address], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    assert out == "ended\n"


def interrupted_after_sending(producer: Producer) -> SendFuture:
    """A `with` block that sends a record and is left by Ctrl-C."""
    sent: list[SendFuture] = []

    def block() -> None:
        with producer:
            sent.append(producer.send("t", b"v"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()
    return sent[0]


def test_ctrl_c_in_a_with_block_gives_up_what_nobody_answers(server: ContractServer) -> None:
    producer = Producer(bootstrap_servers=server.address, linger_ms=0)
    producer.send("t", b"stored").get(HANG_SECONDS)
    server.is_silent.set()
    error = interrupted_after_sending(producer).exception(0)
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.INDETERMINATE


def test_ctrl_c_in_a_with_block_sends_what_is_answered(server: ContractServer) -> None:
    producer = Producer(bootstrap_servers=server.address, linger_ms=60_000)
    producer.partitions_for("t")
    assert interrupted_after_sending(producer).succeeded()


def test_a_program_that_ctrl_c_ended_does_not_wait_for_what_nobody_answers(
    server: ContractServer,
) -> None:
    program = (
        "import sys; from tidelog.client import Producer\n"
        "from tidelog.client.sync import producer as module\n"
        "module._EXIT_TIMEOUT_S = 1_000\n"
        "producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=0)\n"
        "producer.send('t', b'stored').get(20); print('ready', flush=True); sys.stdin.readline()\n"
        "producer.send('t', b'given up'); raise KeyboardInterrupt"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        server.is_silent.set()
        process.communicate("go\n", timeout=HANG_SECONDS)
    assert process.returncode in (-signal.SIGINT, 130)


def _sent(server: ContractServer) -> list[produce_pb2.PartitionBatch]:
    return [part for request in server.produce_requests for part in request.batches]
