"""The broker epoch in a data directory: stored durably, and never a higher one by mistake."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidelog.broker.log.marks.ballast import NAME as BALLAST
from tidelog.broker.log.marks.ballast import take_ballast
from tidelog.broker.log.marks.epoch_file import FILE_NAME, read_epoch, write_epoch
from tidelog.broker.log.marks.file import make_marks_file
from tidelog.broker.log.marks.marks import (
    NO_STAMP,
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
    marks_of,
    stamp,
    stamped_epoch,
)
from tidelog.broker.log.names import directory_name
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.metadata.directory_epochs import NO_STORED_EPOCH
from tidelog.ports import Append, Disk
from tidelog.wire.ids import BrokerEpoch, PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))
CRASH_KINDS = (FaultKind.LOST_WRITE, FaultKind.TORN_WRITE, FaultKind.HOLE, FaultKind.LOST_NAME)


def with_world(
    work: Callable[[World, SimulatedPorts], Coroutine[Any, Any, None]],
    seed: int = 1,
    kinds: tuple[FaultKind, ...] = (),
) -> None:
    world = World(seed, enabled=kinds)

    async def forever(ports: SimulatedPorts) -> None:
        del ports
        await asyncio.Event().wait()

    try:
        world.run(work(world, world.machine("m").start("p", forever).ports))
    finally:
        world.close()


async def changed(disk: Disk, content: bytes) -> None:
    await disk.remove(FILE_NAME)
    file = await disk.open(FILE_NAME, create=True)
    await disk.append([Append(file, [content])])
    await disk.close(file)


def test_what_was_stored_last_is_read() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        assert (await read_epoch(disk)).epoch == NO_STORED_EPOCH
        for epoch in (3, 4, 1_000_004):
            await write_epoch(disk, BrokerEpoch(epoch), marks_stamp=NO_STAMP)
            assert (await read_epoch(disk)).epoch == epoch

    with_world(work)


@pytest.mark.parametrize("seed", range(30))
def test_after_any_crash_it_is_the_last_one_or_the_one_that_was_being_stored(seed: int) -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await write_epoch(disk, BrokerEpoch(3), marks_stamp=NO_STAMP)
        storing = asyncio.ensure_future(write_epoch(disk, BrokerEpoch(4), marks_stamp=NO_STAMP))
        await asyncio.sleep(0.0005 * (seed % 10))
        is_stored = storing.done()
        world.machine("m").crash()
        found: list[int] = []

        async def look(ports: SimulatedPorts) -> None:
            found.append((await read_epoch(ports.open_disk())).epoch)

        world.machine("m").start("again", look)
        await asyncio.sleep(1)
        assert found == [4] if is_stored else found[0] in (3, 4)
        storing.cancel()

    with_world(work, seed, CRASH_KINDS)


def test_a_flipped_bit_makes_no_other_epoch_of_it() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await write_epoch(disk, BrokerEpoch(37), marks_stamp=NO_STAMP)
        file = await disk.open(FILE_NAME)
        whole = await disk.read(file, 0, 1_000)
        await disk.close(file)
        for bit in range(8 * len(whole)):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            await changed(disk, bytes(content))
            assert (await read_epoch(disk)).epoch in (37, NO_STORED_EPOCH)

    with_world(work)


def test_on_a_full_disk_the_room_that_was_held_back_is_taken() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        assert await take_ballast(disk)
        medium = world.machine("m").medium()
        medium.capacity_bytes = medium.used_bytes()
        await write_epoch(disk, BrokerEpoch(5), marks_stamp=NO_STAMP)
        assert (await read_epoch(disk)).epoch == 5
        assert BALLAST not in await disk.list()

    with_world(work)


def test_marks_that_are_not_those_that_were_left_are_doubted() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        del world
        disk = ports.open_disk()
        before = {KEY: PartitionMarks(flushed_offset=7)}
        for epoch in (3, 4):
            await (await make_marks_file(disk, before, epoch=epoch)).close()
        await write_epoch(disk, BrokerEpoch(4), marks_stamp=4)
        assert (await read_epoch(disk)).counts_as == 4
        # Stored before the next marks are made: what lies there still bears the stamp before.
        await write_epoch(disk, BrokerEpoch(5), marks_stamp=4)
        assert (await read_epoch(disk)).counts_as == 5
        await (await make_marks_file(disk, before, epoch=5)).close()
        assert (await read_epoch(disk)).counts_as == 5
        await write_epoch(disk, BrokerEpoch(5), marks_stamp=5)
        await (await make_marks_file(disk, before, epoch=4)).close()
        found = await read_epoch(disk)
        assert (found.epoch, found.counts_as) == (5, NO_STORED_EPOCH)
        assert "older" in found.marks_doubt
        await disk.remove("marks")
        assert (await read_epoch(disk)).marks_doubt == "`marks` is gone"

    with_world(work)


def test_each_bit_before_the_stamp_counts_and_what_is_torn_behind_it_does_not() -> None:
    known = [*marks_of(KEY, PartitionMarks(flushed_offset=7, committed_offset=5)), stamp(9)]
    made = encode_marks(known)
    later = encode_marks([Mark(KEY, MarkKind.FLUSHED, 8)])
    for torn in (later, bytes(len(later)), later[:5], b""):
        assert stamped_epoch(made + torn) == 9
    for bit in range(8 * len(made)):
        content = bytearray(made)
        content[bit // 8] ^= 1 << bit % 8
        assert stamped_epoch(bytes(content) + later) == NO_STAMP
    for length in range(len(made)):
        assert stamped_epoch(made[:length]) == NO_STAMP
    assert decode_marks(made) == decode_marks(encode_marks(known[:-1]))


@pytest.mark.parametrize(("has_partition", "is_doubted"), [(False, False), (True, True)])
def test_empty_marks_of_a_release_without_stamps_are_doubted_beside_partitions(
    has_partition: bool, is_doubted: bool
) -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        del world
        disk = ports.open_disk()
        await (await make_marks_file(disk, {})).close()
        await write_epoch(disk, BrokerEpoch(4), marks_stamp=NO_STAMP)
        if has_partition:
            await disk.make_directory(directory_name(KEY))
        assert bool((await read_epoch(disk)).marks_doubt) == is_doubted

    with_world(work)
