"""The disk of the testing kit: every promise of the port, and exactly what a crash takes.

The contract tests of the Disk port run on it as they are, with the crashes that a real disk cannot
show; what the kit promises beyond the port is below.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.ports import test_disk_contract, test_disk_failures
from tests.ports.support.abilities import Ability
from tests.ports.support.disk_steps import append, read_all
from tests.ports.support.real_world import RealWorld
from tidelog.ports.real.disk.disk import RealDisk, open_disk
from tidelog.testing.disk import Flushed, RememberingDisk
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")


class RememberingWorld(RealWorld):
    """Real files below; a machine that crashes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.flushed = Flushed(directory / "data")
        self.opened: list[tuple[RealDisk, RememberingDisk]] = []
        self._is_dead = False
        self._has_crashed = False

    @property
    def abilities(self) -> frozenset[Ability]:
        """Also what a real disk lacks."""
        return super().abilities | {Ability.CRASH_MACHINE, Ability.KILL_PROCESS}

    async def disk(self, *, is_flush_failing: bool = False) -> Any:
        """The same directory each time; after a crash as that left it."""
        if self._is_dead:
            await self.opened.pop()[0].shutdown()
            self._is_dead = False
        if self._has_crashed:
            self.flushed.crash()
            self._has_crashed = False
        real = await super().disk(is_flush_failing=is_flush_failing)
        disk = RememberingDisk(real, self.flushed)
        self.opened.append((real, disk))
        return disk

    def crash(self, *, is_machine: bool) -> None:
        """From now on the process does nothing; its files are dealt with at the next opening."""
        self.opened[-1][1].cut()
        self._is_dead = True
        self._has_crashed = is_machine


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> RememberingWorld:
    made = RememberingWorld(tmp_path)
    needed = {ability for mark in request.node.iter_markers("needs") for ability in mark.args}
    if missing := needed - made.abilities:
        pytest.skip(f"not here: {missing}")
    return made


for contract in (test_disk_contract, test_disk_failures):
    globals().update({name: test for name, test in vars(contract).items() if name[:5] == "test_"})


def after(world: RememberingWorld, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine saw."""
    return world.run(work)


def test_a_crash_takes_every_byte_that_no_flush_of_the_file_covered(
    world: RememberingWorld,
) -> None:
    async def run() -> tuple[bytes, bytes]:
        disk = await world.disk()
        first, second = [await disk.open(name, create=True) for name in ("first", "second")]
        await append(disk, first, b"kept")
        await append(disk, second, b"taken")
        await disk.flush([first], directories=[""])
        await append(disk, first, b", taken")
        world.crash(is_machine=True)
        disk = await world.disk()
        return (
            await read_all(disk, await disk.open("first")),
            await read_all(disk, await disk.open("second")),
        )

    assert after(world, run()) == (b"kept", b"")


def test_a_crash_takes_a_file_whose_name_was_never_flushed(world: RememberingWorld) -> None:
    async def run() -> list[str]:
        disk = await world.disk()
        await disk.make_directory("named")
        await disk.flush([], directories=[""])
        await disk.make_directory("unnamed")
        files = [await disk.open(f"{place}/f", create=True) for place in ("named", "unnamed")]
        loose = await disk.open("loose", create=True)
        await disk.flush([*files, loose], directories=["named", "unnamed"])
        world.crash(is_machine=True)
        disk = await world.disk()
        names: list[str] = await disk.list() + await disk.list("named")
        return names

    assert after(world, run()) == ["named/", "f"]


def test_what_a_killed_process_had_not_flushed_is_taken_by_a_crash_of_the_next_one(
    world: RememberingWorld,
) -> None:
    async def run() -> tuple[bytes, bytes]:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"kept")
        await disk.flush([file], directories=[""])
        await append(disk, file, b", cached")
        world.crash(is_machine=False)
        disk = await world.disk()
        cached = await read_all(disk, await disk.open("log"))
        world.crash(is_machine=True)
        disk = await world.disk()
        return cached, await read_all(disk, await disk.open("log"))

    assert after(world, run()) == (b"kept, cached", b"kept")


def test_a_flush_does_not_cover_what_was_written_over_a_truncation_behind_it(
    world: RememberingWorld,
) -> None:
    async def run() -> bytes:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        await append(disk, file, b"abcdef")
        flushing = asyncio.ensure_future(disk.flush([file], directories=[""]))
        await asyncio.sleep(0)
        cutting = asyncio.ensure_future(disk.truncate(file, 2))
        await flushing
        await cutting
        await append(disk, file, b"XY")
        world.crash(is_machine=True)
        disk = await world.disk()
        return await read_all(disk, await disk.open("log"))

    assert after(world, run()) == b"ab"


def test_what_is_remembered_follows_a_rename_and_ends_with_a_removal(
    world: RememberingWorld,
) -> None:
    async def run() -> list[bytes]:
        disk = await world.disk()
        await disk.make_directory("a")
        file = await disk.open("a/log", create=True)
        await append(disk, file, b"kept")
        await disk.flush([file], directories=["", "a"])
        await append(disk, file, b", taken")
        await disk.rename("a", "b")
        again = await disk.open("again", create=True)
        await append(disk, again, b"taken")
        await disk.remove("again")
        again = await disk.open("again", create=True)
        await append(disk, again, b"kept")
        await disk.flush([again], directories=[""])
        world.crash(is_machine=True)
        disk = await world.disk()
        return [await read_all(disk, await disk.open(path)) for path in ("b/log", "again")]

    assert after(world, run()) == [b"kept", b"kept"]


def test_a_dead_process_changes_nothing_any_more(world: RememberingWorld) -> None:
    async def run() -> ErrorCode:
        disk = await world.disk()
        file = await disk.open("log", create=True)
        world.crash(is_machine=False)
        with pytest.raises(TidelogError) as refused:
            await append(disk, file, b"too late")
        return refused.value.code

    assert after(world, run()) is ErrorCode.CLOSED


def test_a_flush_that_is_on_its_way_at_a_kill_tells_nobody_that_it_ended(tmp_path: Path) -> None:
    async def run() -> ErrorCode:
        real = await open_disk(tmp_path / "data")
        disk = RememberingDisk(real, Flushed(tmp_path / "data"))
        file = await disk.open("log", create=True)
        flushing = asyncio.ensure_future(disk.flush([file]))
        await asyncio.sleep(0)
        disk.cut()
        with pytest.raises(TidelogError) as refused:
            await flushing
        await real.shutdown()
        return refused.value.code

    assert asyncio.run(run()) is ErrorCode.CLOSED
