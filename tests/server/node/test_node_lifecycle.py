"""How a node ends: in order, by a bug in one of its tasks, on a full or failed disk."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence

import pytest

from tests.broker.support.node_in_world import (
    ADDRESS,
    PlainClient,
    configuration,
    formatted,
    partition_batch,
    sealed,
)
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.ports import Append, Disk, File
from tidelog.server.node.node import Node
from tidelog.server.storage.format import CLEAN_MARKER
from tidelog.v1 import admin_pb2, fetch_pb2, metadata_pb2, produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

Wrap = Callable[[SimulatedDisk], object]


class Life:
    """A node in a process that outlives it."""

    def __init__(
        self, wrap: Wrap = lambda disk: disk, wrap_quorum: Wrap = lambda disk: disk
    ) -> None:
        self.wrap = wrap
        self.wrap_quorum = wrap_quorum
        self.node: Node | None = None
        self.error: BaseException | None = None
        self.has_ended = False
        self.was_ready = False
        self.stops_at_once = False

    async def live(self, ports: SimulatedPorts) -> None:
        """The process."""
        disk: Disk = self.wrap(ports.open_disk())  # type: ignore[assignment]
        quorum: Disk = self.wrap_quorum(ports.open_disk("quorum"))  # type: ignore[assignment]
        try:
            self.node = Node(configuration(), await formatted(ports, disk, quorum))
        except TidelogError as error:
            self.error, self.has_ended = error, True
            await asyncio.Event().wait()
        assert self.node is not None
        if self.stops_at_once:
            self.node.request_stop()
        try:
            await self.node.run(self._on_ready)
        except (AssertionError, TidelogError) as error:
            self.error = error
        self.has_ended = True
        await asyncio.Event().wait()

    def _on_ready(self, node: Node) -> None:
        del node
        self.was_ready = True

    async def wait(self, condition: Callable[["Life"], bool]) -> None:
        """Until it holds."""
        for _ in range(2_000):
            if condition(self):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came to that")


class Broken:
    """A disk whose `append` does something else once it is told to, or whose `flush` hangs."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.failure: BaseException | None = None
        self.hold: asyncio.Event | None = None
        for name in ("open", "close", "read", "list", "make_directory", "remove", "free_bytes"):
            setattr(self, name, getattr(disk, name))
        for name in ("rename", "truncate", "shutdown"):
            setattr(self, name, getattr(disk, name))

    @property
    def name(self) -> str:
        return self._disk.name

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        await self._disk.flush(files, directories=directories)

    async def append(self, appends: Sequence[Append]) -> None:
        if self.failure is not None:
            raise self.failure
        await self._disk.append(appends)


def run(work: Callable[[World, PlainClient], Coroutine[object, object, None]]) -> World:
    """A world with a client; the work starts the lives."""
    world = World(5)

    async def forever(ports: SimulatedPorts) -> None:
        del ports
        await asyncio.Event().wait()

    async def main() -> None:
        client = world.machine("client").start("client", forever)
        await work(world, PlainClient(client.ports.network))

    try:
        world.run(main())
    finally:
        world.close()
    return world


def broken(disks: list[Broken]) -> Wrap:
    def wrap(disk: SimulatedDisk) -> object:
        disks.append(Broken(disk))
        return disks[-1]

    return wrap


def test_a_bug_in_a_task_of_a_node_ends_the_node_and_whoever_waits_for_it() -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        life = Life(broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        topic_id = await client.create_topic("t")
        parked = client.network.stream(ADDRESS, "/tidelog.v1.FetchService/FetchStream")
        await parked.send(fetch_pb2.FetchStreamRequest(credit_bytes=1).SerializeToString())
        disks[0].failure = AssertionError("a bug")
        async with asyncio.timeout(20):
            with pytest.raises(TidelogError):
                await client.produce(
                    partition_batch(topic_id, 0, sealed([b"a"])), timeout_ms=3_600_000
                )
            with pytest.raises(TidelogError):
                await parked.receive()
        await life.wait(lambda each: each.has_ended)
        assert isinstance(life.error, AssertionError)

    run(work)


def stream_request(topic_id: bytes, number: int, timeout_ms: int) -> bytes:
    request = produce_pb2.ProduceRequest(
        batches=[partition_batch(topic_id, 0, sealed([b"%d" % number]))], timeout_ms=timeout_ms
    )
    message = produce_pb2.ProduceStreamRequest(correlation_id=number, request=request)
    return message.SerializeToString()


def test_a_produce_request_is_answered_at_its_time_out_though_the_disk_hangs() -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        life = Life(broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        topic_id = await client.create_topic("t")
        disks[0].hold = asyncio.Event()
        loop = asyncio.get_running_loop()
        started = loop.time()
        (late,) = await client.produce(
            partition_batch(topic_id, 0, sealed([b"0"])), timeout_ms=1_500
        )
        assert late.error.code == ErrorCode.DEADLINE_EXCEEDED.value
        assert 1.5 <= loop.time() - started < 2.0
        stream = client.network.stream(ADDRESS, "/tidelog.v1.ProduceService/ProduceStream")
        for number, timeout_ms in ((1, 3_000), (2, 1_000), (3, 60_000)):
            await stream.send(stream_request(topic_id, number, timeout_ms))
        for number in (2, 1):
            message = await stream.receive()
            assert message is not None
            answer = produce_pb2.ProduceStreamResponse.FromString(message)
            assert answer.correlation_id == number
            (part,) = answer.response.acknowledgements
            assert part.error.code == ErrorCode.DEADLINE_EXCEEDED.value
        disks[0].hold.set()
        message = await stream.receive()
        assert message is not None
        answer = produce_pb2.ProduceStreamResponse.FromString(message)
        assert (answer.correlation_id, answer.response.acknowledgements[0].base_offset) == (3, 3)
        assert len(await client.read_all(topic_id)) == 4, "late is not lost"
        await stream.end_sending()
        assert await stream.receive() is None

    assert run(work).findings() == []


def test_batches_of_a_produce_stream_that_broke_end_without_anybody_to_tell() -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        life = Life(broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        topic_id = await client.create_topic("t")
        disks[0].hold = asyncio.Event()
        stream = client.network.stream(ADDRESS, "/tidelog.v1.ProduceService/ProduceStream")
        for number in range(3):
            await stream.send(stream_request(topic_id, number, 0))
        await asyncio.sleep(1)
        stream.cancel()
        await asyncio.sleep(1)
        disks[0].failure = TidelogError(ErrorCode.STORAGE_FAILED, tried="flush", happened="EIO")
        disks[0].hold.set()
        await asyncio.sleep(1)
        (answer,) = await client.produce(partition_batch(topic_id, 0, sealed([b"x"])))
        assert answer.error.code == ErrorCode.STORAGE_FAILED.value
        gc.collect()

    assert run(work).findings() == []


def test_a_disk_too_full_for_the_marker_does_not_make_an_orderly_stop_a_failure() -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        del client
        life = Life(broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        full = TidelogError(ErrorCode.STORAGE_FULL, tried="append", happened="no space")
        disks[0].failure = full
        assert life.node is not None
        life.node.request_stop()
        await life.wait(lambda each: each.has_ended)
        assert life.error is None
        assert CLEAN_MARKER not in await disks[0].list()  # type: ignore[attr-defined]

    run(work)


def test_a_failed_disk_is_logged_once_and_topics_are_still_described_and_decided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        life = Life(broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        topic_id = await client.create_topic("t")
        disks[0].failure = TidelogError(ErrorCode.STORAGE_FAILED, tried="append", happened="EIO")
        request = metadata_pb2.GetMetadataRequest(topic_names=["t"])
        for _ in range(3):
            (refused,) = await client.produce(partition_batch(topic_id, 0, sealed([b"x"])))
            assert refused.error.code == ErrorCode.STORAGE_FAILED.value
            raw = await client.call("MetadataService/GetMetadata", request.SerializeToString())
            (known,) = metadata_pb2.GetMetadataResponse.FromString(raw).topics
            assert not known.HasField("error")
            # The quorum has a disk of its own: it decides, and answers.
            new = admin_pb2.NewTopic(name="new", partition_count=1)
            raw = await client.call(
                "AdminService/CreateTopics",
                admin_pb2.CreateTopicsRequest(topics=[new]).SerializeToString(),
            )
            (result,) = admin_pb2.CreateTopicsResponse.FromString(raw).results
            assert result.error.code in (
                0,
                ErrorCode.TOPIC_ALREADY_EXISTS.value,
                ErrorCode.INVALID_REPLICATION_FACTOR.value,
            ), result
            await asyncio.sleep(3)

    run(work)
    told = [each for each in caplog.messages if each.startswith("storage_stopped")]
    assert len(told) == 1
    assert "directory=node:data" in told[0]


def test_a_failed_disk_of_the_quorum_ends_the_node_with_its_error() -> None:
    disks: list[Broken] = []

    async def work(world: World, client: PlainClient) -> None:
        life = Life(wrap_quorum=broken(disks))
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        await client.create_topic("t")
        disks[0].failure = TidelogError(ErrorCode.STORAGE_FAILED, tried="append", happened="EIO")
        with pytest.raises((TidelogError, AssertionError)):
            await client.create_topic("u")
        await life.wait(lambda each: each.has_ended)
        assert isinstance(life.error, TidelogError)
        assert life.error.code is ErrorCode.STORAGE_FAILED

    run(work)


def test_a_node_told_to_stop_while_it_starts_never_says_that_it_is_ready() -> None:
    async def work(world: World, client: PlainClient) -> None:
        del client
        life = Life()
        life.stops_at_once = True
        world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.has_ended)
        assert life.error is None
        assert not life.was_ready

    run(work)


def test_a_node_that_lost_its_quorum_directory_does_not_start_as_a_new_one() -> None:
    async def work(world: World, client: PlainClient) -> None:
        life = Life()
        process = world.machine("node").start("node", life.live)
        await life.wait(lambda each: each.was_ready)
        await client.create_topic("t")
        process.kill()
        world.machine("node").media.pop("quorum")
        lost = Life()
        world.machine("node").start("node", lost.live)
        await lost.wait(lambda each: each.has_ended)
        assert isinstance(lost.error, TidelogError)
        assert lost.error.code is ErrorCode.STORAGE_NOT_FORMATTED
        assert "tidelog storage format" in lost.error.hint

    run(work)
