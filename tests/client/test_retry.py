"""Record handlers of both drivers: a record is handled, or a dead letter, or read again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tests.client.support.drivers import LoopThread
from tidelog.client import (
    Consumer,
    ConsumerRecord,
    HandlerCounts,
    Producer,
    RecordHandler,
    RetryPolicy,
    TopicPartition,
)
from tidelog.client.aio import AsyncConsumer, AsyncProducer, AsyncRecordHandler
from tidelog.client.aio.handling import check_awaitable
from tidelog.client.errors import ArgumentTypeError, ErrorCode, TidelogError
from tidelog.client.shared.retry_parts import dead_letter_headers
from tidelog.wire.batch import decode_records

T0 = TopicPartition("t", 0)
Handle = Callable[[ConsumerRecord], object]


class Desk:
    """One handler over its clients, whatever the driver; pauses are noted instead of waited for."""

    def __init__(self, driver: str, address: str) -> None:
        self.driver = driver
        self.address = address
        self.pauses: list[float] = []
        self.commits: list[dict[TopicPartition, int]] = []
        self.on_pause: Callable[[], object] = lambda: None
        self._thread = LoopThread() if driver == "asyncio" else None
        self._closes: list[Callable[[], object]] = []

    def run(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._thread is None:
            return call(*arguments, **named)
        return self._thread.run(call, *arguments, **named)

    def make(self, handle: Handle, dead: str = "dead", **named: Any) -> Any:
        """A handler of the first partition of `t`, from its beginning."""
        is_async = self._thread is not None
        producer: Any = self.run(
            AsyncProducer if is_async else Producer,
            bootstrap_servers=self.address,
            request_timeout_ms=500,
            delivery_timeout_ms=1_000,
        )
        self.consumer: Any = self.run(
            AsyncConsumer if is_async else Consumer,
            bootstrap_servers=self.address,
            auto_offset_reset="earliest",
        )
        self._closes += [self.consumer.close, producer.close]
        self.run(self.consumer.assign, [T0])

        async def handle_later(record: ConsumerRecord) -> None:
            handle(record)

        async def sleep_later(seconds: float) -> None:
            self._sleep(seconds)

        async def commit_later(offsets: Any) -> None:
            self.commits.append(dict(offsets))

        if is_async:
            return AsyncRecordHandler(
                self.consumer,
                handle_later,
                producer,
                dead,
                commit=commit_later,
                sleep=sleep_later,
                **named,
            )
        return RecordHandler(
            self.consumer,
            handle,
            producer,
            dead,
            commit=lambda offsets: self.commits.append(dict(offsets)),
            sleep=self._sleep,
            **named,
        )

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def handle_all(self, handler: Any, count: int) -> None:
        done = 0
        while done < count:
            found = self.run(handler.run_once, 20_000)
            assert found, "nothing came in time"
            done += found

    def close(self) -> None:
        for close in self._closes:
            self.run(close)
        if self._thread is not None:
            self._thread.close()


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with ContractServer() as running:
        yield running


@pytest.fixture(params=["threads", "asyncio"])
def desk(request: pytest.FixtureRequest, server: ContractServer) -> Iterator[Desk]:
    found = Desk(request.param, server.address)
    yield found
    found.close()


def fill(server: ContractServer, count: int, topic: str = "t") -> None:
    with Producer(bootstrap_servers=server.address) as producer:
        for number in range(count):
            headers = [("trace", b"%d" % number)] if number == 2 else None
            producer.send(topic, b"%d" % number, b"k", headers, 0, timestamp_ms=1_000 + number)


def stored(server: ContractServer, topic: str) -> list[Any]:
    return [record for _, _, data in server.log(topic).batches for record in decode_records(data)]


@pytest.mark.slow
def test_a_record_is_tried_again_and_then_set_aside_with_where_and_why(
    desk: Desk, server: ContractServer
) -> None:
    fill(server, 5)
    seen: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        seen.append(record.offset)
        if record.offset == 1 and seen.count(1) < 3:
            raise OSError("not yet")
        if record.offset == 2:
            raise ValueError("never")

    policy = RetryPolicy(tries=3, backoff_ms=100, backoff_max_ms=150)
    handler = desk.make(handle, policy=policy)
    desk.handle_all(handler, 5)
    assert seen == [0, 1, 1, 1, 2, 2, 2, 3, 4]
    assert desk.pauses == [policy.pause_ms(tries, OSError()) / 1000 for tries in (1, 2)] * 2  # type: ignore[operator]
    assert all(0.05 < pause < 0.2 for pause in desk.pauses)
    assert handler.counts == HandlerCounts(handled=4, retried=4, dead_letters=1)
    ((_, _, _, key, value, headers),) = stored(server, "dead")
    assert (key, value) == (b"k", b"2")
    assert dict(headers) == {
        "trace": b"2",
        "dead-letter.topic": b"t",
        "dead-letter.partition": b"0",
        "dead-letter.offset": b"2",
        "dead-letter.timestamp": b"1002",
        "dead-letter.error": b"ValueError: never",
        "dead-letter.tries": b"3",
    }
    assert desk.commits[-1] == {T0: 5}
    assert desk.run(desk.consumer.position, T0) == 5


@pytest.mark.slow
def test_errors_that_no_try_would_mend_are_not_tried_again(
    desk: Desk, server: ContractServer
) -> None:
    fill(server, 1)

    def handle(record: ConsumerRecord) -> None:
        raise UnicodeError("rubbish")

    handler = desk.make(handle, policy=RetryPolicy(give_up_on=(ValueError,)))
    desk.handle_all(handler, 1)
    assert desk.pauses == []
    assert handler.counts.dead_letters == 1
    ((*_, headers),) = stored(server, "dead")
    assert dict(headers)["dead-letter.tries"] == b"1"


@pytest.mark.slow
def test_a_dead_letter_that_cannot_be_stored_stops_the_handler_and_the_record_is_read_again(
    desk: Desk, server: ContractServer
) -> None:
    fill(server, 4)
    server.judge = lambda topic, *_: ErrorCode.PERMISSION_DENIED if topic == "dead" else None

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 2:
            raise ValueError("never")

    handler = desk.make(handle, policy=RetryPolicy(tries=1))
    for _ in range(2):
        with pytest.raises(TidelogError) as caught:
            desk.handle_all(handler, 4)
        assert caught.value.code is ErrorCode.PERMISSION_DENIED
        assert desk.run(desk.consumer.position, T0) == 2
    assert desk.commits == [{T0: 2}]
    server.judge = None
    desk.handle_all(handler, 2)
    assert [record[4] for record in stored(server, "dead")] == [b"2"]
    assert desk.commits[-1] == {T0: 4}


@pytest.mark.slow
def test_a_handler_that_is_stopped_in_a_pause_leaves_its_record_undone(
    desk: Desk, server: ContractServer
) -> None:
    fill(server, 3)

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 1:
            raise OSError("not yet")

    handler = desk.make(handle)
    desk.on_pause = handler.stop
    desk.run(handler.run, 20_000)
    assert desk.commits == [{T0: 1}]
    assert desk.run(desk.consumer.position, T0) == 1
    assert not server.topics.get("dead")


@pytest.mark.slow
def test_dead_letters_never_go_back_to_where_they_were_read(
    desk: Desk, server: ContractServer
) -> None:
    fill(server, 1)

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("never")

    handler = desk.make(handle, dead="t", policy=RetryPolicy(tries=1))
    with pytest.raises(TidelogError) as caught:
        desk.run(handler.run_once, 20_000)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert len(stored(server, "t")) == 1


def test_pauses_grow_and_end() -> None:
    policy = RetryPolicy(tries=6, backoff_ms=10, backoff_max_ms=100)
    pauses = [policy.pause_ms(tries, OSError()) for tries in range(1, 7)]
    assert pauses[-1] is None
    numbers = [pause for pause in pauses if pause is not None]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= 120
    assert RetryPolicy(backoff_ms=0).pause_ms(1, OSError()) == 0
    with pytest.raises(TidelogError) as caught:
        RetryPolicy(tries=0)
    assert caught.value.code is ErrorCode.INVALID_CONFIGURATION
    with pytest.raises(TidelogError):
        RetryPolicy(backoff_ms=9, backoff_max_ms=8)


def test_a_dead_letter_that_dies_again_tells_of_its_last_death() -> None:
    first = ConsumerRecord("t", 1, 1, 7, 9, 0, b"k", b"v", [("own", None)])
    headers = dead_letter_headers(first, ValueError("a" * 5_000), 3)
    second = ConsumerRecord("dead", 0, 1, 4, 9, 0, b"k", b"v", headers)
    found = dead_letter_headers(second, OSError("\udc80"), 1)
    assert len(found) == len(headers) == 7
    assert dict(found)["dead-letter.topic"] == b"dead"
    assert dict(found)["dead-letter.error"] == b"OSError: ?"
    assert len(dict(headers)["dead-letter.error"] or b"") == 1_000


def test_a_handler_that_is_no_async_function_is_told_of_and_the_record_is_not_set_aside() -> None:
    for name in ("handle", "commit"):
        with pytest.raises(ArgumentTypeError) as caught:
            check_awaitable(None, name)
        assert name in caught.value.happened
        assert "async function" in caught.value.hint
