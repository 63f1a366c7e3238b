"""Quotas: how much a client may do, how long it is told to wait, what holds it if it does not."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.support.passing import passed, sized
from tidelog.broker.services.middleware import quota as quota_module
from tidelog.broker.services.middleware.quota import (
    DELAY_MS_MAX,
    DELAYED_BYTES_MAX,
    DELAYED_CALLS_MAX,
    NS_PER_MS,
    NS_PER_S,
    Quotas,
    TokenBucket,
    Use,
)
from tidelog.metadata.image.image import Image, QuotaImage
from tidelog.metadata.image.map import ImageMap
from tidelog.ports import Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.v1 import errors_pb2, fetch_pb2, produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

PRODUCE = "/tidelog.v1.ProduceService/Produce"
PRODUCE_STREAM = "/tidelog.v1.ProduceService/ProduceStream"
FETCH = "/tidelog.v1.FetchService/Fetch"
FETCH_STREAM = "/tidelog.v1.FetchService/FetchStream"
DESCRIBE = "/tidelog.v1.AdminService/DescribeTopics"


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.slept_ms: list[int] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // NS_PER_MS

    def uptime_ns(self) -> int:
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        self.on_sleep()
        self.slept_ms.append(duration_ms)
        self.now_ns += duration_ms * NS_PER_MS


def image_with(**quotas: QuotaImage) -> Image:
    """An image in which nothing but quotas is set; `default` is the one of all others."""
    named = {"" if name == "default" else name: each for name, each in quotas.items()}
    return Image(quotas=ImageMap.of(named))


def context(client_id: str = "alice") -> RequestContext:
    """Of one client."""
    return RequestContext(
        principal="anonymous",
        listener="client",
        client_id=client_id,
        address="127.0.0.1:1",
        deadline_ns=1 << 62,
    )


@given(
    rate=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**10)), max_size=50),
)
def test_a_client_that_waits_as_told_never_passes_its_rate_and_its_burst(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, 0)
    now_ns, done = 0, 0
    for amount, idle_ns in steps:
        # What a debt forgets beyond its longest wait is the one exception, by design.
        amount = min(amount, rate * (DELAY_MS_MAX // 1_000 - 2))
        now_ns += idle_ns
        bucket.take(amount, now_ns)
        done += amount
        now_ns += bucket.debt_ns(now_ns)
        allowed = rate + rate * now_ns / NS_PER_S
        assert done <= allowed + len(steps)
        assert bucket.debt_ns(now_ns) == 0


def test_a_bucket_holds_one_second_and_no_more() -> None:
    bucket = TokenBucket(100, 0)
    bucket.take(100, 3_600 * NS_PER_S)
    assert bucket.debt_ns(3_600 * NS_PER_S) == 0
    bucket.take(50, 3_600 * NS_PER_S)
    assert bucket.debt_ns(3_600 * NS_PER_S) == NS_PER_S // 2


def test_a_debt_is_bounded_and_time_that_stands_still_pays_nothing() -> None:
    bucket = TokenBucket(1, 5 * NS_PER_S)
    bucket.take(1 << 40, 5 * NS_PER_S)
    assert bucket.debt_ns(4 * NS_PER_S) == DELAY_MS_MAX * NS_PER_MS


def test_the_quota_of_all_counts_for_each_client_by_itself() -> None:
    image = image_with(default=QuotaImage(requests_per_second=1), bob=QuotaImage())
    quotas = Quotas(lambda: image)
    first, second = quotas.of("a", 0), quotas.of("b", 0)
    assert first is not None
    assert second is not None
    first.take(Use(requests=3), 0)
    assert (first.debt_ms(0), second.debt_ms(0)) == (2_000, 0)
    own = quotas.of("bob", 0)
    assert own is not None
    own.take(Use(requests=10**6), 0)
    assert own.debt_ms(0) == 0


def test_a_quota_that_changes_counts_at_once_and_one_that_goes_limits_nothing() -> None:
    images = [image_with(alice=QuotaImage(requests_per_second=1))]
    quotas = Quotas(lambda: images[-1])
    client = quotas.of("alice", 0)
    assert client is not None
    client.take(Use(requests=5), 0)
    images.append(image_with(alice=QuotaImage(fetch_bytes_per_second=1)))
    assert quotas.of("alice", 0) is client
    assert client.debt_ms(0) == 0
    images.append(Image())
    assert quotas.of("alice", 0) is None


def test_client_ids_that_are_remembered_are_bounded() -> None:
    image = image_with(default=QuotaImage(requests_per_second=1))
    quotas = Quotas(lambda: image)
    first = quotas.of("first", 0)
    assert first is not None
    for number in range(quota_module.CLIENTS_MAX):
        quotas.of(f"client {number}", 0)
    assert quotas.of("first", 0) is not first


class World:
    """Methods behind quotas, on a clock that jumps."""

    def __init__(self, image: Image, methods: dict[str, Method]) -> None:
        self.clock = Clock()
        self.quotas = Quotas(lambda: image)
        self.methods = passed(methods, self.clock, quotas=self.quotas)

    async def call(self, name: str, message: bytes, client_id: str = "alice") -> bytes:
        method = self.methods[name]
        assert isinstance(method, UnaryMethod)
        return await method.handler(context(client_id), message)

    async def stream(self, name: str, stream: Stream) -> None:
        method = self.methods[name]
        assert isinstance(method, StreamMethod)
        await method.handler(context(), stream)


def run(work: Coroutine[Any, Any, None]) -> None:
    """On a loop of its own."""
    asyncio.run(asyncio.wait_for(work, 20))


async def acknowledge(_: RequestContext, message: bytes) -> bytes:
    """As a produce handler does."""
    del message
    answer = produce_pb2.ProduceResponse()
    answer.acknowledgements.add(partition=3, base_offset=7)
    return answer.SerializeToString()


def test_a_producer_over_its_quota_is_told_how_long_to_wait_and_held_back_if_it_does_not() -> None:
    world = World(
        image_with(alice=QuotaImage(produce_bytes_per_second=1_000)),
        {PRODUCE: UnaryMethod(acknowledge)},
    )

    async def work() -> None:
        answer = produce_pb2.ProduceResponse.FromString(await world.call(PRODUCE, sized(500)))
        assert answer.throttle_ms == 0
        answer = produce_pb2.ProduceResponse.FromString(await world.call(PRODUCE, sized(2_500)))
        assert answer.throttle_ms == 2_000
        assert (answer.acknowledgements[0].partition, answer.acknowledgements[0].base_offset) == (
            3,
            7,
        )
        assert world.clock.slept_ms == []
        await world.call(PRODUCE, sized(2))
        assert world.clock.slept_ms == [1_000, 1_000]
        await world.call(PRODUCE, sized(100_000), client_id="bob")
        assert world.clock.slept_ms == [1_000, 1_000]

    run(work())


def test_a_fetcher_pays_for_the_bytes_of_its_answers() -> None:
    async def serve(_: RequestContext, message: bytes) -> bytes:
        answer = fetch_pb2.FetchResponse()
        answer.partitions.add(batches=bytes(3_000))
        return answer.SerializeToString()

    world = World(
        image_with(alice=QuotaImage(fetch_bytes_per_second=1_000)), {FETCH: UnaryMethod(serve)}
    )

    async def work() -> None:
        answer = fetch_pb2.FetchResponse.FromString(await world.call(FETCH, b""))
        assert 2_000 <= answer.throttle_ms <= 2_100
        assert len(answer.partitions[0].batches) == 3_000
        await world.call(FETCH, b"")
        assert sum(world.clock.slept_ms) == answer.throttle_ms

    run(work())


def test_administration_is_never_held_back() -> None:
    async def describe(_: RequestContext, message: bytes) -> bytes:
        return message

    world = World(
        image_with(default=QuotaImage(requests_per_second=1)), {DESCRIBE: UnaryMethod(describe)}
    )

    async def work() -> None:
        for _ in range(100):
            await world.call(DESCRIBE, b"")
        assert world.clock.slept_ms == []

    run(work())


class Pausing(Clock):
    """Nobody who sleeps wakes up before `wake`."""

    def __init__(self) -> None:
        super().__init__()
        self.wake = asyncio.Event()

    def uptime_ns(self) -> int:
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        await self.wake.wait()
        await super().sleep(duration_ms)


def test_calls_that_wait_are_bounded_and_each_one_goes_on_when_its_turn_comes() -> None:
    world = World(
        image_with(alice=QuotaImage(requests_per_second=1)), {PRODUCE: UnaryMethod(acknowledge)}
    )

    async def work() -> None:
        clock = world.clock = Pausing()
        world.methods = passed({PRODUCE: UnaryMethod(acknowledge)}, clock, quotas=world.quotas)
        for _ in range(2):
            await world.call(PRODUCE, b"")
        waiting = [asyncio.create_task(world.call(PRODUCE, b"")) for _ in range(DELAYED_CALLS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TidelogError) as caught:
            await world.call(PRODUCE, b"")
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert world.quotas.refused_count == 1
        clock.wake.set()
        await asyncio.gather(*waiting)
        assert clock.now_ns >= DELAYED_CALLS_MAX * NS_PER_S

    run(work())


def test_calls_that_wait_are_bounded_by_their_bytes_but_for_one_that_is_alone() -> None:
    world = World(
        image_with(alice=QuotaImage(requests_per_second=1)), {PRODUCE: UnaryMethod(acknowledge)}
    )

    async def work() -> None:
        clock = world.clock = Pausing()
        world.methods = passed({PRODUCE: UnaryMethod(acknowledge)}, clock, quotas=world.quotas)
        for _ in range(2):
            await world.call(PRODUCE, b"")
        alone = asyncio.create_task(world.call(PRODUCE, sized(DELAYED_BYTES_MAX)))
        await asyncio.sleep(0)
        with pytest.raises(TidelogError) as caught:
            await world.call(PRODUCE, sized(2))
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        clock.wake.set()
        await alone
        clock.wake.clear()
        half = sized(DELAYED_BYTES_MAX // 2)
        waiting = [asyncio.create_task(world.call(PRODUCE, half)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TidelogError):
            await world.call(PRODUCE, sized(2))
        clock.wake.set()
        await asyncio.gather(*waiting)
        assert world.quotas.refused_count == 2

    run(work())


def test_who_is_held_back_goes_on_within_a_second_once_the_quota_is_lifted() -> None:
    images = [image_with(alice=QuotaImage(produce_bytes_per_second=1))]
    world = World(images[-1], {PRODUCE: UnaryMethod(acknowledge)})
    world.quotas = Quotas(lambda: images[-1])
    world.methods = passed({PRODUCE: UnaryMethod(acknowledge)}, world.clock, quotas=world.quotas)

    def lift() -> None:
        if world.clock.now_ns == 5 * NS_PER_S:
            images.append(Image())

    async def work() -> None:
        await world.call(PRODUCE, sized(1_000))
        world.clock.on_sleep = lift
        answer = produce_pb2.ProduceResponse.FromString(await world.call(PRODUCE, sized(2)))
        assert world.clock.slept_ms == [1_000] * 6
        assert answer.throttle_ms == 0

    run(work())


class Messages:
    """The client's end of a stream, as its handler sees it."""

    def __init__(self, *messages: bytes) -> None:
        self._coming = deque(messages)
        self.sent: list[bytes] = []
        self.held_bytes = 0
        """Of the last message, until it is let go, or the next one is asked for."""
        self.held_bytes_at_sleep: list[int] = []

    def note_sleep(self) -> None:
        """Somebody waits for time to pass."""
        self.held_bytes_at_sleep.append(self.held_bytes)

    async def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def receive(self) -> bytes | None:
        message = self._coming.popleft() if self._coming else None
        self.held_bytes = len(message or b"")
        return message

    def let_go(self) -> None:
        self.held_bytes = 0

    async def end_sending(self) -> None:
        raise AssertionError("a handler returns")

    def cancel(self) -> None:
        raise AssertionError("nobody breaks it")


def answering(make: Callable[[bytes], bytes]) -> StreamMethod:
    """One answer for each message, with room for it."""

    async def handle(asked: RequestContext, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            await asked.answer_room.take(1)
            await stream.send(make(message))

    return StreamMethod(handle)


def test_a_produce_stream_tells_in_its_answers_and_is_not_read_while_its_client_is_ahead() -> None:
    def answer(message: bytes) -> bytes:
        found = produce_pb2.ProduceStreamResponse(correlation_id=9)
        if len(message) == 2:
            found.error.CopyFrom(errors_pb2.Error(tried="t"))
        else:
            found.response.SetInParent()
        return found.SerializeToString()

    world = World(
        image_with(alice=QuotaImage(produce_bytes_per_second=1_000)),
        {PRODUCE_STREAM: answering(answer)},
    )
    stream = Messages(sized(1_000), sized(3_000), sized(2))
    world.clock.on_sleep = stream.note_sleep

    async def work() -> None:
        await world.stream(PRODUCE_STREAM, stream)

    run(work())
    answers = [produce_pb2.ProduceStreamResponse.FromString(each) for each in stream.sent]
    assert [each.response.throttle_ms for each in answers] == [0, 3_000, 0]
    assert [each.correlation_id for each in answers] == [9, 9, 9]
    # The error stays an error, and held the stream up as any other request did.
    assert answers[2].error.tried == "t"
    assert not answers[2].HasField("response")
    assert world.clock.slept_ms[:3] == [1_000] * 3
    assert stream.held_bytes_at_sleep == [0] * len(world.clock.slept_ms)


def test_a_fetch_stream_is_sent_at_the_rate_of_its_client() -> None:
    world = World(
        image_with(alice=QuotaImage(fetch_bytes_per_second=1_000)),
        {FETCH_STREAM: answering(lambda _: bytes(2_000))},
    )
    stream = Messages(*[b""] * 5)

    async def work() -> None:
        await world.stream(FETCH_STREAM, stream)

    run(work())
    assert stream.sent == [bytes(2_000)] * 5
    # The first second is free, the last answer is not paid for yet.
    assert world.clock.now_ns == 7 * NS_PER_S


def test_without_quotas_nothing_is_counted() -> None:
    world = World(Image(), {PRODUCE: UnaryMethod(acknowledge)})

    async def work() -> None:
        for _ in range(10):
            await world.call(PRODUCE, sized(10**6))
        assert world.clock.slept_ms == []

    run(work())
