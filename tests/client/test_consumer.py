"""Consumer and admin client of both drivers against a server in memory."""

import threading
from collections.abc import Iterator

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import BOTH, Clients
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.client import Consumer, NewTopic, OffsetAndTimestamp, Producer, TopicPartition
from tidelog.client.errors import ErrorCode, TidelogError, WakeupError
from tidelog.wire.batch import decode_records

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


def produce(server: ContractServer, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Records whose value and timestamp are their number; five in a batch."""
    with Producer(bootstrap_servers=server.address) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, partition=partition, timestamp_ms=number)
            if number % 5 == 4:
                producer.flush(HANG_SECONDS)


def values(records: list[object]) -> list[int]:
    return [int(record.value) for record in records]  # type: ignore[attr-defined]


def test_a_subscription_without_group_reads_all_partitions(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    produce(server, 10, partition=1, first=10)
    with clients.Consumer(
        "t",
        bootstrap_servers=server.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1_000,
    ) as consumer:
        found = sorted(int(record.value) for record in consumer)
        assert consumer.assignment() == {T0, T1}
        assert consumer.subscription() == {"t"}
        assert consumer.position(T0) == 10
        assert consumer.highwater(T0) == 10
    assert found == list(range(20))


def test_iteration_can_be_left_and_taken_up_at_the_next_record(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 20)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0])
        for record in consumer:
            if record.offset == 6:
                break
        assert consumer.position(T0) == 7
        assert next(consumer).offset == 7
        assert [r.offset for r in consumer.poll(HANG_MS, max_records=2)[T0]] == [8, 9]
        assert consumer.position(T0) == 10


def test_seeking_into_the_middle_of_a_batch_skips_the_records_before(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 20)
    with clients.Consumer(bootstrap_servers=server.address) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 13)
        assert next(consumer).offset == 13
        consumer.seek(T0, 2)
        assert next(consumer).offset == 2
        consumer.seek_to_end(T0)
        assert consumer.position(T0) == 20
        consumer.seek_to_beginning()
        assert consumer.position(T0) == 0


def test_latest_begins_behind_what_is_there(clients: Clients, server: ContractServer) -> None:
    produce(server, 5)
    with clients.Consumer("t", bootstrap_servers=server.address) as consumer:
        while not consumer.assignment():
            assert consumer.poll(100) == {}
        assert consumer.position(T0) == 5
        produce(server, 1, first=5)
        assert [r.offset for r in consumer.poll(HANG_MS)[T0]] == [5]


def test_poll_gives_at_most_what_was_asked_for(clients: Clients, server: ContractServer) -> None:
    produce(server, 20)
    with clients.Consumer(
        "t", bootstrap_servers=server.address, auto_offset_reset="earliest", max_poll_records=7
    ) as consumer:
        sizes = [len(consumer.poll(HANG_MS)[T0]) for _ in range(3)]
    assert sizes == [7, 7, 6]


def test_raw_batches_carry_positions_and_decode(clients: Clients, server: ContractServer) -> None:
    produce(server, 10)
    with clients.Consumer(bootstrap_servers=server.address) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 3)
        batches = consumer.poll_batches(HANG_MS)
        while sum(batch.header.record_count for batch in batches) < 10:
            batches += consumer.poll_batches(HANG_MS)
        assert consumer.position(T0) == 10
    name, data, high_watermark = batches[0]
    assert (name, high_watermark) == (T0, 10)
    assert batches[0].first_offset == 3
    assert [record[0] for record in decode_records(data)] == [0, 1, 2, 3, 4]
    assert batches[-1].next_offset == 10


def test_a_paused_partition_is_silent_and_goes_on_where_it_stood(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    produce(server, 10, partition=1, first=10)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0, T1])
        consumer.pause(T0)
        assert consumer.paused() == {T0}
        seen: list[int] = []
        while len(seen) < 10:
            for name, records in consumer.poll(HANG_MS).items():
                assert name == T1
                seen += [record.offset for record in records]
        consumer.resume(T0)
        assert next(consumer).offset == 0


def test_pausing_in_the_middle_of_a_chunk_loses_nothing(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0])
        iterator = iter(consumer)
        assert [next(iterator).offset for _ in range(3)] == [0, 1, 2]
        consumer.pause(T0)
        assert consumer.poll(300) == {}
        assert consumer.position(T0) == 3
        consumer.resume(T0)
        assert [next(iterator).offset for _ in range(3)] == [3, 4, 5]


def test_pausing_another_partition_fetches_nothing_again(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0, T1])
        iterator = iter(consumer)
        for offset in range(10):
            assert next(iterator).offset == offset
            consumer.pause(T1)
            consumer.resume(T1)
    asked = [each.partition for request in server.fetch_requests for each in request.positions]
    assert asked.count(0) == 1


def test_a_paused_partition_learns_where_it_stands(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    with clients.Consumer(bootstrap_servers=server.address, auto_offset_reset="latest") as consumer:
        consumer.assign([T0])
        consumer.pause(T0)
        assert consumer.position(T0, 20_000) == 10
        assert consumer.paused() == {T0}
        assert consumer.poll(0) == {}


def test_what_a_deserializer_refuses_is_told_until_it_is_passed_over_and_costs_no_other_record(
    clients: Clients, server: ContractServer
) -> None:
    def read(value: bytes) -> int:
        if value == b"7":
            raise ValueError("seven")
        return int(value)

    produce(server, 10)
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest", value_deserializer=read
    ) as consumer:
        consumer.assign([T0])
        found: list[int] = []
        while len(found) < 7:
            for records in consumer.poll(HANG_MS).values():
                found += [record.value for record in records]
        assert found == list(range(7))
        for _ in range(3):
            with pytest.raises(ValueError, match="seven") as caught:
                consumer.poll(HANG_MS)
            assert any("t-0 at offset 7; seek to 8" in note for note in caught.value.__notes__)
            assert consumer.position(T0) == 7
        consumer.seek(T0, 8)
        assert values(consumer.poll(HANG_MS, 1)[T0]) == [8]
        assert values(consumer.poll(HANG_MS, 1)[T0]) == [9]


def test_a_pattern_reads_every_topic_whose_name_begins_with_it(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 5)
    server.create("tail")
    server.create("other")
    with clients.Consumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest", consumer_timeout_ms=HANG_MS
    ) as consumer:
        with pytest.raises(TidelogError, match="not a regular expression"):
            consumer.subscribe(pattern="t(")
        consumer.subscribe(pattern="^t")
        assert [int(next(consumer).value) for _ in range(5)] == list(range(5))
        assert consumer.subscription() == {"t", "tail"}


def test_offsets_by_place_and_time(clients: Clients, server: ContractServer) -> None:
    produce(server, 10)
    with clients.Consumer(bootstrap_servers=server.address) as consumer:
        assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
        assert consumer.end_offsets([T0, T1]) == {T0: 10, T1: 0}
        found = consumer.offsets_for_times({T0: 5, T1: 5})
        assert found == {T0: OffsetAndTimestamp(5, 5, 1), T1: None}


def test_offsets_are_found_of_partitions_that_were_added_since_the_topic_was_looked_up(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 10)
    with clients.Consumer(bootstrap_servers=server.address) as consumer:
        assert consumer.end_offsets([T0]) == {T0: 10}
        server.create("t", 4)
        added = TopicPartition("t", 3)
        assert consumer.end_offsets([added]) == {added: 0}
        with pytest.raises(TidelogError, match="0 to 3, not 4"):
            consumer.end_offsets([TopicPartition("t", 4)])


def test_an_offset_of_another_topic_of_the_same_name_is_not_read_from(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 5)
    with clients.Consumer(bootstrap_servers=server.address, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 2, topic_id=server.topics["t"])
        found = consumer.poll(HANG_MS)[T0]
        assert values(list(found)) == [2, 3, 4]
        consumer.seek(T0, 2, topic_id=b"another topic id")
        with pytest.raises(TidelogError, match="created again") as caught:
            consumer.poll(HANG_MS)
        assert caught.value.code is ErrorCode.NO_OFFSET_FOR_PARTITION


def test_topics_and_their_partitions_are_listed(clients: Clients, server: ContractServer) -> None:
    server.create("t", 2)
    with clients.Consumer(bootstrap_servers=server.address) as consumer:
        assert consumer.topics() == {"t"}
        assert consumer.partitions_for_topic("t") == {0, 1}
        assert consumer.partitions_for_topic("missing") is None
        assert consumer.bootstrap_connected()


def test_an_offset_out_of_range_without_reset_is_told(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 5)
    with clients.Consumer(bootstrap_servers=server.address, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(TidelogError) as caught:
            consumer.poll(HANG_MS)
        assert caught.value.code is ErrorCode.NO_OFFSET_FOR_PARTITION
        consumer.seek(T0, 99)
        with pytest.raises(TidelogError) as caught:
            consumer.poll(HANG_MS)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_answer_with_a_wrong_sum_is_refused_and_asked_for_again(
    clients: Clients, server: ContractServer
) -> None:
    produce(server, 5)
    server.wrong_fetch_sum = True
    with clients.Consumer(
        "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
    ) as consumer:
        with pytest.raises(TidelogError) as caught:
            next(consumer)
        assert caught.value.code is ErrorCode.CORRUPT_BATCH
        server.wrong_fetch_sum = False
        assert _first_good(consumer) == 0


def _first_good(consumer: Consumer) -> int:
    """Answers from before the repair may still be on their way."""
    for _ in range(20):
        try:
            return next(consumer).offset
        except TidelogError as error:
            if error.code is not ErrorCode.CORRUPT_BATCH:
                raise
    raise AssertionError("no good answer came")


def test_a_consumer_reads_on_when_the_broker_comes_back(clients: Clients) -> None:
    with ContractServer() as server:
        produce(server, 5)
        consumer = clients.Consumer(
            "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
        )
        assert [next(consumer).offset for _ in range(5)] == list(range(5))
        port, logs, topics, ids = server.port, server.logs, server.topics, server.ids_given
    with consumer, ContractServer(port=port) as again:
        again.logs, again.topics, again.ids_given = logs, topics, ids
        produce(again, 1, first=5)
        assert next(consumer).offset == 5


def test_two_threads_in_one_consumer_are_told(server: ContractServer) -> None:
    server.create("t")
    with Consumer("t", bootstrap_servers=server.address) as consumer:
        errors: list[TidelogError] = []
        inside = threading.Event()

        def wait_for_records() -> None:
            inside.set()
            try:
                consumer.poll(HANG_MS)
            except WakeupError as error:
                errors.append(error)

        waiter = threading.Thread(target=wait_for_records)
        waiter.start()
        inside.wait(HANG_SECONDS)
        while consumer._busy.acquire(blocking=False):
            consumer._busy.release()
            assert waiter.is_alive()
        with pytest.raises(TidelogError) as caught:
            consumer.poll()
        assert caught.value.code is ErrorCode.CONCURRENT_USE
        consumer.wakeup()
        waiter.join(HANG_SECONDS)
        assert [error.code for error in errors] == [ErrorCode.CANCELLED]


def test_a_missing_topic_is_told_when_it_may_not_be_created(
    clients: Clients, server: ContractServer
) -> None:
    server.auto_create = False
    with (
        clients.Consumer("t", bootstrap_servers=server.address, retry_backoff_ms=50) as consumer,
        pytest.raises(TidelogError) as caught,
    ):
        consumer.poll(HANG_MS)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC


def test_topics_are_created_listed_and_described(clients: Clients, server: ContractServer) -> None:
    with clients.AdminClient(bootstrap_servers=server.address) as admin:
        created = admin.create_topics([NewTopic("a", 3), NewTopic("b")])
        assert [(topic.name, topic.num_partitions) for topic in created] == [("a", 3), ("b", 1)]
        assert admin.list_topics() == ["a", "b"]
        (described,) = admin.describe_topics(["a"])
        assert [part.leader for part in described.partitions] == [1, 1, 1]
        assert admin.describe_cluster().cluster_id == "test"
        name = TopicPartition("a", 0)
        assert admin.list_partition_offsets({name: "latest"}) == {
            name: OffsetAndTimestamp(0, -1, 1)
        }
        with pytest.raises(TidelogError) as caught:
            admin.create_topics([NewTopic("a")])
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        outcomes = admin.try_create_topics([NewTopic("b"), NewTopic("c")])
        assert isinstance(outcomes[0], TidelogError)
        assert admin.list_topics() == ["a", "b", "c"]


def test_offsets_of_an_unknown_topic_are_refused_without_waiting(
    clients: Clients, server: ContractServer
) -> None:
    server.auto_create = False
    server.create("orders")
    with (
        clients.Consumer(
            bootstrap_servers=server.address, default_api_timeout_ms=5_000
        ) as consumer,
        pytest.raises(TidelogError, match="did you mean 'orders'") as caught,
    ):
        consumer.end_offsets([TopicPartition("ordres", 0)])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    assert server.metadata_requests <= 2
