"""What failing disks leave behind, and what a node may not say of a disk that did not fail."""

import asyncio
from collections.abc import Awaitable

import pytest

from tidelog.chaos.sim import FaultKind, Process, SimulatedPorts, World
from tidelog.chaos.sim.skeleton.suite import SkeletonRun
from tidelog.chaos.sim.world.keeper import Keeper
from tidelog.ports import Append
from tidelog.wire.errors import ErrorCode, TidelogError

SEEDS = range(30)


async def wait_forever(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


async def code_of(work: Awaitable[object]) -> ErrorCode | None:
    try:
        await work
    except TidelogError as error:
        return error.code
    return None


def fail_and_go_on(seed: int, kind: FaultKind) -> tuple[int, list[ErrorCode | None]]:
    """The size after an append of 100 bytes that failed, and what came of what was tried then."""
    world = World(seed, enabled=[kind], probabilities={kind: 1.0})
    process: Process = world.machine("node").start("node", wait_forever)
    medium = world.machine("node").medium()

    async def scene() -> tuple[int, list[ErrorCode | None]]:
        world.faults.heal()
        disk = process.ports.open_disk()
        file = await disk.open("log", create=True)
        world.faults.active = {kind: None}
        medium.is_read_only = kind is FaultKind.READ_ONLY
        codes = [await code_of(disk.append([Append(file, [bytes(100)])]))]
        size_bytes = file.size_bytes
        world.faults.heal()
        medium.is_read_only = False
        codes.append(await code_of(disk.append([Append(file, [b"x"])])))
        await disk.truncate(file, size_bytes)
        codes.append(await code_of(disk.append([Append(file, [b"x"])])))
        return size_bytes, codes

    try:
        return world.run(scene())
    finally:
        world.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FaultKind.NO_SPACE, ErrorCode.STORAGE_FULL),
        (FaultKind.WRITE_ERROR, ErrorCode.STORAGE_FAILED),
        (FaultKind.READ_ONLY, ErrorCode.STORAGE_FAILED),
    ],
)
def test_an_append_that_failed_leaves_a_tear_whatever_it_wrote(
    kind: FaultKind, code: ErrorCode
) -> None:
    for seed in SEEDS:
        _, codes = fail_and_go_on(seed, kind)
        assert codes == [code, ErrorCode.STORAGE_FAILED, None]


def test_a_full_disk_often_has_not_room_for_one_byte() -> None:
    sizes = [fail_and_go_on(seed, FaultKind.NO_SPACE)[0] for seed in SEEDS]
    assert sizes.count(0) >= 5, sizes
    assert sum(size > 0 for size in sizes) >= 5, sizes


FAILED = TidelogError(ErrorCode.STORAGE_FAILED, tried="append", happened="the disk failed")


def keeper(world: World) -> Keeper:
    return Keeper(world, world.machine("node"), "node", wait_forever)


def test_a_failed_disk_that_no_fault_explains_is_a_violation_said_once() -> None:
    world = World(1)
    kept = keeper(world)
    kept.report(FAILED)
    kept.report(FAILED)
    assert [violation.split()[0] for violation in kept.violations] == ["false_failure:"]
    world.close()


def test_a_fault_explains_a_failed_disk_in_its_life_of_the_node_and_the_next() -> None:
    world = World(1)
    kept = keeper(world)
    world.faults.took_effect(FaultKind.READ_ERROR, "node:data")
    kept.report(FAILED)
    kept.restart()
    kept.report(FAILED)
    assert kept.violations == []
    kept.restart()
    kept.report(FAILED)
    assert len(kept.violations) == 1
    world.close()


@pytest.mark.parametrize(
    "happened", ["simulated fault: read_error", "an earlier flush failed, so nothing is written"]
)
def test_an_answer_that_names_its_fault_may_come_lives_later(happened: str) -> None:
    world = World(1)
    kept = keeper(world)
    kept.report(TidelogError(ErrorCode.STORAGE_FAILED, tried="append", happened=happened))
    assert kept.violations == []
    world.close()


def test_a_full_disk_explains_no_failed_one() -> None:
    world = World(1)
    kept = keeper(world)
    world.faults.took_effect(FaultKind.NO_SPACE, "node:data")
    kept.report(FAILED)
    assert len(kept.violations) == 1
    world.close()


@pytest.mark.parametrize("is_undone", [False, True])
def test_a_node_that_died_of_damage_is_not_accused_once_that_was_undone(*, is_undone: bool) -> None:
    """Without the word, the node would seem to have refused bytes that are whole."""
    world = World(1)
    kept = keeper(world)
    kept.report(TidelogError(ErrorCode.STORAGE_CORRUPT, tried="recover", happened="a flipped bit"))
    kept.restart(is_undone=is_undone)
    assert bool(kept.violations) is not is_undone
    world.close()


def test_a_refusal_that_nobody_retrieves_is_a_violation() -> None:
    run = SkeletonRun(0)

    def forget() -> None:
        refused: asyncio.Future[None] = run.world.loop.create_future()
        refused.set_exception(FAILED)

    async def scene() -> None:
        run._keeper = keeper(run.world)
        forget()
        await asyncio.sleep(0)

    run.world.run(scene())
    kinds = [violation.split()[0] for violation in run.judge().violations]
    run.world.close()
    assert kinds == ["unretrieved:"]
