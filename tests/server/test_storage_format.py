"""The data directory's own file: made once, refused when it is not this node's."""

import asyncio
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.disk import SimulatedDisk
from tidelog.ports import Append
from tidelog.server import storage_format
from tidelog.server.storage_format import CleanShutdown, open_or_format, write_file
from tidelog.wire.errors import ErrorCode, TidelogError

Work = Callable[[SimulatedDisk, SimulatedPorts], Coroutine[object, object, None]]


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


def with_disk(work: Work) -> None:
    """Run over an empty data directory."""
    world = World(1)

    async def main() -> None:
        ports = world.machine("m").start("p", wait_forever).ports
        await work(ports.open_disk(), ports)

    try:
        world.run(main())
    finally:
        world.close()


async def refused(disk: SimulatedDisk, ports: SimulatedPorts, node_id: int = 1) -> ErrorCode:
    """Why the directory is refused; it is not touched."""
    before = await disk.list()
    with pytest.raises(TidelogError) as caught:
        await open_or_format(disk, ports.random, node_id)
    assert await disk.list() == before
    return caught.value.code


def test_an_empty_directory_is_formatted_once() -> None:
    async def work(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        made = await open_or_format(disk, ports.random, 1)
        assert await open_or_format(disk, ports.random, 1) == made
        assert len(made.cluster_id) == 32

    with_disk(work)


def test_the_top_of_a_new_file_system_counts_as_empty() -> None:
    async def work(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        await disk.make_directory("lost+found")
        made = await open_or_format(disk, ports.random, 1)
        assert made.node_id == 1

    with_disk(work)


def test_a_directory_of_another_node_version_or_purpose_is_refused() -> None:
    async def another_node(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        await open_or_format(disk, ports.random, 1)
        assert await refused(disk, ports, 2) is ErrorCode.WRONG_CLUSTER

    async def another_version(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        made = await open_or_format(disk, ports.random, 1)
        later = msgspec.to_builtins(made) | {"format_version": 2}
        await write_file(disk, storage_format.FILE_NAME, msgspec.json.encode(later))
        assert await refused(disk, ports) is ErrorCode.UNSUPPORTED_VERSION

    async def damaged(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        await write_file(disk, storage_format.FILE_NAME, b"{")
        assert await refused(disk, ports) is ErrorCode.STORAGE_CORRUPT

    async def foreign(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        file = await disk.open("holiday.jpg", create=True)
        await disk.append([Append(file, [b"x"])])
        assert await refused(disk, ports) is ErrorCode.STORAGE_NOT_FORMATTED

    for work in (another_node, another_version, damaged, foreign):
        with_disk(work)


def test_the_clean_marker_counts_once() -> None:
    async def work(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        del ports
        marker = CleanShutdown(broker_epoch=4, boot_id="b")
        assert await storage_format.take_clean_marker(disk) is None
        await storage_format.write_clean_marker(disk, marker)
        assert await storage_format.take_clean_marker(disk) == marker
        assert await storage_format.take_clean_marker(disk) is None

    with_disk(work)


def test_a_formatting_that_was_cut_short_is_begun_again() -> None:
    async def work(disk: SimulatedDisk, ports: SimulatedPorts) -> None:
        file = await disk.open(storage_format.NEW_FILE_NAME, create=True)
        await disk.append([Append(file, [b"{half"])])
        await open_or_format(disk, ports.random, 1)
        assert storage_format.FILE_NAME in await disk.list()

    with_disk(work)
