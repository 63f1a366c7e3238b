"""The broker epoch in a data directory: stored durably, and never a higher one by mistake."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidelog.broker.log.marks.ballast import NAME as BALLAST
from tidelog.broker.log.marks.ballast import take_ballast
from tidelog.broker.log.marks.epoch_file import FILE_NAME, read_epoch, write_epoch
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.metadata.directory_epochs import NO_STORED_EPOCH
from tidelog.ports import Append, Disk
from tidelog.wire.ids import BrokerEpoch

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
        assert await read_epoch(disk) == NO_STORED_EPOCH
        for epoch in (3, 4, 1_000_004):
            await write_epoch(disk, BrokerEpoch(epoch))
            assert await read_epoch(disk) == epoch

    with_world(work)


@pytest.mark.parametrize("seed", range(30))
def test_after_any_crash_it_is_the_last_one_or_the_one_that_was_being_stored(seed: int) -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await write_epoch(disk, BrokerEpoch(3))
        storing = asyncio.ensure_future(write_epoch(disk, BrokerEpoch(4)))
        await asyncio.sleep(0.0005 * (seed % 10))
        is_stored = storing.done()
        world.machine("m").crash()
        found: list[int] = []

        async def look(ports: SimulatedPorts) -> None:
            found.append(await read_epoch(ports.open_disk()))

        world.machine("m").start("again", look)
        await asyncio.sleep(1)
        assert found == [4] if is_stored else found[0] in (3, 4)
        storing.cancel()

    with_world(work, seed, CRASH_KINDS)


def test_a_flipped_bit_makes_no_other_epoch_of_it() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        await write_epoch(disk, BrokerEpoch(37))
        file = await disk.open(FILE_NAME)
        whole = await disk.read(file, 0, 1_000)
        await disk.close(file)
        for bit in range(8 * len(whole)):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            await changed(disk, bytes(content))
            assert await read_epoch(disk) in (37, NO_STORED_EPOCH)

    with_world(work)


def test_on_a_full_disk_the_room_that_was_held_back_is_taken() -> None:
    async def work(world: World, ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        assert await take_ballast(disk)
        medium = world.machine("m").medium()
        medium.capacity_bytes = medium.used_bytes()
        await write_epoch(disk, BrokerEpoch(5))
        assert await read_epoch(disk) == 5
        assert BALLAST not in await disk.list()

    with_world(work)
