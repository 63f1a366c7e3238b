"""Writes that are larger than all that the quorum takes at a time."""

import asyncio

import pytest

from tests.metadata_quorum.active.controller_world import Scene, run, value_of
from tests.metadata_quorum.active.voters_world import Voters, simulate
from tidelog.chaos.sim import World
from tidelog.metadata.records.entries import (
    BeginRecord,
    ClusterConfigurationRecord,
    EndRecord,
    decode_entry,
)
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.active.limits import ActiveLimits
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.raft.types import EntryKind, Options
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

COUNT = 200
LARGE = tuple(ClusterConfigurationRecord(changes={f"k{n}": "x" * 100}) for n in range(COUNT))
LAST = f"k{COUNT - 1}"
LIMITS = ActiveLimits(entry_bytes_max=2_000, in_flight_bytes_max=6_000)


async def write_large(controller: ActiveController) -> str:
    """How it ended: the answer, or the error's name."""
    try:
        written = await controller.write(
            lambda _: Decision(records=LARGE, answer="written"),
            tried="set many",
            timeout_ms=60_000,
        )
    except TidelogError as error:
        return error.code.name
    return written.answer


async def lead(scene: Scene) -> None:
    """Node 1 decides, over a quorum that takes twice what the controller may have with it."""
    scene.quorum.lead()
    await scene.wait_active()
    scene.quorum.uncommitted_bytes_max = 2 * LIMITS.in_flight_bytes_max


async def wait_full(scene: Scene) -> None:
    """Until the controller waits for room, with part of the write committed."""
    scene.quorum.commit_ms = None
    await asyncio.sleep(0.1)
    scene.quorum.commit_to(LogIndex(len(scene.quorum.entries)))
    await asyncio.sleep(0.1)
    assert 0 < scene.quorum.uncommitted_bytes <= LIMITS.in_flight_bytes_max
    assert scene.machine.has_open_group()


def test_a_write_larger_than_what_the_quorum_takes_at_once_is_committed_whole() -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        scene.quorum.commit_ms = None
        first = len(scene.quorum.entries)
        outcomes: list[str] = []

        async def keep() -> None:
            outcomes.append(await write_large(scene.controller))

        async with TaskScope() as scope:
            scope.start(keep(), name="large")
            while not outcomes:
                await asyncio.sleep(0.001)
                assert scene.quorum.uncommitted_bytes <= LIMITS.in_flight_bytes_max
                is_whole = value_of(scene.controller.image(), LAST) != ""
                assert is_whole or value_of(scene.controller.image(), "k0") == ""
                scene.quorum.commit_to(LogIndex(scene.quorum.applied_index + 1))
        assert outcomes == ["written"]
        written = [
            record
            for entry in scene.quorum.entries[first:]
            if entry.kind is EntryKind.COMMAND
            for record in decode_entry(entry.data)
        ]
        assert written == [BeginRecord(name="set many"), *LARGE, EndRecord()]
        assert scene.controller.image_ahead() == scene.controller.image()

    run(work, limits=LIMITS)


def test_writes_behind_a_large_one_wait_for_it_and_are_written() -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        async with TaskScope() as scope:
            scope.start(_expect(scene, "written"), name="large")
            await wait_full(scene)
            for number in range(20):
                scope.start(_set(scene, f"k{number}"), name="small")
                await asyncio.sleep(0.001)
            scene.quorum.commit_ms = 1
            scene.quorum.commit_to(LogIndex(len(scene.quorum.entries)))
        values = [value_of(scene.controller.image(), f"k{number}") for number in range(21)]
        assert values == ["small"] * 20 + ["x" * 100]

    run(work, limits=LIMITS)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_leadership_lost_while_a_large_write_waits_for_room_leaves_nothing_of_it(
    seed: int, keeps: bool
) -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        async with TaskScope() as scope:
            scope.start(_expect(scene, "UNAVAILABLE"), name="large")
            await wait_full(scene)
            scene.quorum.step_down(2, keeps=keeps)
        scene.quorum.commit_ms = 1
        await lead(scene)
        assert not scene.machine.has_open_group()
        assert value_of(scene.controller.image_ahead(), "k0") == ""
        assert await write_large(scene.controller) == "written"

    run(work, seed=seed, limits=LIMITS)


def test_a_large_write_whose_later_entry_is_refused_leaves_nothing_of_it() -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        async with TaskScope() as scope:
            scope.start(_expect(scene, "STORAGE_FULL"), name="large")
            await wait_full(scene)
            scene.quorum.refusal = TidelogError(
                ErrorCode.STORAGE_FULL, tried="propose", happened="the disk is full"
            )
            before = len(scene.quorum.entries)
            scene.quorum.commit_ms = 1
            scene.quorum.commit_to(LogIndex(before))
        await scene.wait_active()
        assert len(scene.quorum.entries) == before + 1, "the group is aborted"
        assert value_of(scene.controller.image_ahead(), "k0") == ""
        assert await write_large(scene.controller) == "written"

    run(work, limits=LIMITS)


def test_a_hand_over_waits_for_the_whole_of_a_large_write() -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        async with TaskScope() as scope:
            scope.start(_expect(scene, "written"), name="large")
            await wait_full(scene)
            scene.quorum.commit_ms = 1
            scene.quorum.commit_to(LogIndex(len(scene.quorum.entries)))
            async with scene.controller.hold():
                await scene.quorum.transfer(None, timeout_ms=1_000)
        assert value_of(scene.controller.image(), LAST) == "x" * 100

    run(work, limits=LIMITS)


def test_the_end_of_the_quorum_ends_a_large_write_that_waits_for_room() -> None:
    async def work(scene: Scene) -> None:
        await lead(scene)
        async with TaskScope() as scope:
            scope.start(_expect(scene, "INDETERMINATE"), name="large")
            await wait_full(scene)
            scene.quorum.end()

    run(work, limits=LIMITS)


def test_voters_commit_a_write_larger_than_they_take_at_once() -> None:
    count = 18
    mib = "x" * (1 << 20)
    assert count * len(mib) > Options().uncommitted_bytes_max
    records = tuple(
        ClusterConfigurationRecord(changes={f"k{number}.{part}": mib[: 1 << 18]})
        for number in range(count)
        for part in range(4)
    )

    async def work(world: World) -> None:
        voter = await Voters(world, 3).active()
        assert voter.controller is not None
        await voter.controller.write(
            lambda _: Decision(records=records, answer=None), tried="set many", timeout_ms=60_000
        )
        changes = voter.machine.image().cluster_configuration
        assert sum(map(len, changes.values())) == count * len(mib)

    simulate(work)


async def _expect(scene: Scene, outcome: str) -> None:
    assert await write_large(scene.controller) == outcome


async def _set(scene: Scene, name: str) -> None:
    await scene.set(name, "small")
