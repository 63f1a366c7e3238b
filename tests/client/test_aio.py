"""What only the asyncio clients have: cancellation, one loop, no thread held up."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from tests.client.support.contract_server import ContractServer
from tests.support.waiting import HANG_SECONDS
from tidelog.client import TopicPartition
from tidelog.client.aio import AsyncConsumer, AsyncProducer
from tidelog.client.engine.fetch.messages import FetchAnswered, PartitionBatches
from tidelog.client.engine.produce.messages import FetchMetadata
from tidelog.client.errors import ErrorCode, TidelogError
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


def with_server(work: Callable[[ContractServer], Awaitable[None]]) -> None:
    """Run the coroutine beside a server in memory."""

    async def main(server: ContractServer) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await work(server)

    with ContractServer(default_partitions=1) as server:
        asyncio.run(main(server))


async def produce(server: ContractServer, count: int, *, first: int = 0) -> None:
    async with AsyncProducer(bootstrap_servers=server.address) as producer:
        for number in range(first, first + count):
            await producer.send("t", b"%d" % number)


def test_a_wait_that_is_cancelled_loses_no_record() -> None:
    async def work(server: ContractServer) -> None:
        server.create("t")
        async with AsyncConsumer(
            "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await consumer.getone()
            await produce(server, 20)
            assert [(await consumer.getone()).offset for _ in range(20)] == list(range(20))
            assert await consumer.position(T0) == 20

    with_server(work)


def test_a_block_that_is_cancelled_gives_up_what_nobody_answers() -> None:
    async def work(server: ContractServer) -> None:
        producer = AsyncProducer(bootstrap_servers=server.address, linger_ms=0)
        await producer.start()
        await (await producer.send("t", b"stored"))
        server.is_silent.set()

        async def block() -> None:
            async with producer:
                await producer.send("t", b"given up")
                await producer.flush()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await block()

    with_server(work)


def test_iterating_getone_and_getmany_take_up_where_the_other_left() -> None:
    async def work(server: ContractServer) -> None:
        await produce(server, 30)
        async with AsyncConsumer(
            "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 6:
                    break
            seen.append((await consumer.getone()).offset)
            assert await consumer.position(T0) == 8
            while len(seen) < 30:
                found = await consumer.getmany(timeout_ms=5_000, max_records=9)
                seen += [record.offset for record in found[T0]]
            assert seen == list(range(30))
            assert consumer.metrics()["records_read"] == 30

    with_server(work)


def test_records_that_a_truncation_has_made_void_are_not_handed_over() -> None:
    async def work(server: ContractServer) -> None:
        await produce(server, 20)
        async with AsyncConsumer(
            "t", bootstrap_servers=server.address, auto_offset_reset="earliest"
        ) as consumer:
            assert [(await consumer.getone()).offset for _ in range(5)] == [0, 1, 2, 3, 4]
            state = consumer._core.partitions[T0]
            (stream,) = consumer._loop._streams
            cut = PartitionBatches(
                topic_id=TopicId(server.topics["t"]),
                partition=PartitionId(0),
                divergence=Divergence(leader_epoch=LeaderEpoch(1), end_offset=Offset(3)),
            )
            consumer._loop._step(
                FetchAnswered(
                    broker_id=1,
                    stream=stream,
                    session_epoch=state.session_epoch,
                    size_bytes=0,
                    partitions=(cut,),
                )
            )
            assert (await consumer.getone()).offset == 3, "from where the logs have parted"

    with_server(work)


def test_two_coroutines_in_one_consumer_are_told() -> None:
    async def work(server: ContractServer) -> None:
        server.create("t")
        async with AsyncConsumer("t", bootstrap_servers=server.address) as consumer:
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0)
            with pytest.raises(TidelogError) as caught:
                await consumer.getmany()
            assert caught.value.code is ErrorCode.CONCURRENT_USE
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    with_server(work)


def test_who_waits_when_the_consumer_is_stopped_is_told() -> None:
    async def work(server: ContractServer) -> None:
        server.create("t")
        consumer = AsyncConsumer("t", bootstrap_servers=server.address)
        asked, loop = asyncio.Event(), asyncio.get_running_loop()
        server.on_read = lambda: loop.call_soon_threadsafe(asked.set)
        waiting = asyncio.ensure_future(consumer.getone())
        await asked.wait()
        server.on_read = None
        await consumer.stop()
        with pytest.raises(TidelogError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.CLOSED
        await consumer.stop()

    with_server(work)


def test_a_client_that_is_stopped_before_its_first_turn_ends() -> None:
    async def work(server: ContractServer) -> None:
        server.create("t")
        consumer = AsyncConsumer(bootstrap_servers=server.address)
        assert await consumer.partitions_for_topic("t") == {0}
        await consumer.start()
        await consumer.stop()

    with_server(work)


def test_a_full_buffer_makes_the_sender_wait_and_lets_him_go_on() -> None:
    async def work(server: ContractServer) -> None:
        async with AsyncProducer(
            bootstrap_servers=server.address, buffer_memory=64 * 1024, batch_size=16 * 1024
        ) as producer:
            futures = [await producer.send("t", b"v" * 1_000) for _ in range(500)]
            await producer.flush(HANG_SECONDS)
            assert [(await each).offset for each in futures] == list(range(500))
            assert producer.metrics()["waits_for_room"] > 0
            assert producer.metrics()["buffer_reserved_bytes"] == 0

    with_server(work)


def test_a_buffer_full_of_open_batches_is_sent_before_it_has_lingered() -> None:
    async def work(server: ContractServer) -> None:
        server.create("t", 8)
        async with AsyncProducer(
            bootstrap_servers=server.address, buffer_memory=64 * 1024, linger_ms=60_000
        ) as producer:
            futures = [
                await producer.send("t", b"v" * 1_000, partition=number) for number in range(8)
            ]
            assert producer.metrics()["waits_for_room"] > 0
            await producer.flush(HANG_SECONDS)
            assert [(await each).offset for each in futures] == [0] * 8

    with_server(work)


def test_whoever_gives_up_waiting_for_a_record_cancels_nobody_elses() -> None:
    async def work(server: ContractServer) -> None:
        async with AsyncProducer(bootstrap_servers=server.address, linger_ms=500) as producer:
            first, second = await producer.send("t", b"a"), await producer.send("t", b"b")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await first
            places = await asyncio.gather(first, second, first)
            assert [place.offset for place in places] == [0, 1, 0]
            with pytest.raises(TidelogError, match="await the future"):
                (await producer.send("t", b"c")).get(1)

    with_server(work)


def test_a_client_belongs_to_the_loop_on_which_it_was_first_used() -> None:
    with ContractServer() as server:
        producer = AsyncProducer(bootstrap_servers=server.address)

        async def use() -> None:
            async with asyncio.timeout(HANG_SECONDS):
                await producer.send_and_wait("t", b"v")

        with asyncio.Runner() as first, asyncio.Runner() as second:
            first.run(use())
            with pytest.raises(TidelogError, match="another event loop"):
                second.run(use())
            first.run(producer.stop())


def test_nobody_there_is_told_soon_and_in_words() -> None:
    async def work() -> None:
        consumer = AsyncConsumer("t", bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=500)
        try:
            with pytest.raises(TidelogError) as caught:
                await consumer.start()
            assert "127.0.0.1:1: connection refused" in caught.value.happened
        finally:
            await consumer.stop()

    asyncio.run(work())


def test_synchronous_programs_load_nothing_of_it_and_it_loads_no_grpc() -> None:
    program = (
        "import sys, tidelog.client as c\n"
        "c.Producer().close(); c.Consumer('t').close(); c.AdminClient().close()\n"
        "assert not any(name.startswith('tidelog.client.aio') for name in sys.modules)\n"
        "import tidelog.client.aio as aio\n"
        "aio.AsyncProducer(); aio.AsyncConsumer('t'); aio.AsyncAdminClient()\n"
        "assert 'grpc' not in sys.modules, 'grpc was imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG_SECONDS)


@pytest.mark.parametrize("is_amid_work", [False, True], ids=["alone", "amid other work"])
@pytest.mark.parametrize("who_waits", ["for a record", "for the end"])
def test_a_bug_in_the_producer_is_told_to_whoever_waits(
    who_waits: str, is_amid_work: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What the step that broke off had begun to ask for is not begun any more."""

    async def work(server: ContractServer) -> None:
        producer = AsyncProducer(bootstrap_servers=server.address, linger_ms=0)
        await (await producer.send("t", b"stored"))
        server.is_silent.set()
        future = await producer.send("t", b"on its way")
        loop = producer._loop

        def broken() -> int | None:
            if is_amid_work:
                loop.core._effects.append(FetchMetadata(topics=(), may_create=False))
            raise AssertionError("a bug")

        loop.driver._on_turn = broken
        loop.driver.wake()
        if who_waits == "for a record":
            with pytest.raises(TidelogError) as told:
                await future
            assert told.value.code is ErrorCode.UNKNOWN
            assert "a bug" in str(told.value)
        await producer.stop()
        assert future.done()
        server.is_silent.clear()

    with_server(work)
    assert "the asyncio producer failed" in caplog.text
