"""Every fault kind is felt where it is enabled, and nowhere else."""

import asyncio

import pytest

from tests.chaos.gone_file_scenario import gone_file
from tests.chaos.held_message_scenario import held_message
from tests.chaos.support import fault_scenarios
from tidelog.chaos.sim import FaultKind, Faults, SeededRandom, SimulatedPorts, Trace, World
from tidelog.chaos.sim.base.faults import draw_kinds, with_causes
from tidelog.ports import Append

SCENES = {
    **fault_scenarios.SCENES,
    FaultKind.GONE_FILE: gone_file,
    FaultKind.HELD_MESSAGE: held_message,
}
ALWAYS = (
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.LATE_PROCESSING,
    FaultKind.CLOSED_EARLY,
    FaultKind.HELD_MESSAGE,
    FaultKind.READ_ERROR,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.NO_SPACE,
    FaultKind.SLOW_DISK,
    FaultKind.WORKER_CRASH,
)
"""Kinds that their scene wants to happen at the first chance."""

SEED = 3


def play(kind: FaultKind, enabled: list[FaultKind]) -> tuple[bool, int]:
    probabilities = {kind: 1.0} if kind in ALWAYS else {kind: 0.5}
    world = World(SEED, enabled=enabled, probabilities=probabilities)

    async def scene() -> bool:
        return await SCENES[kind](world)

    try:
        is_seen = world.run(scene())
    finally:
        world.close()
    return is_seen, sum(count.felt for count in world.faults.counts.values())


@pytest.mark.parametrize("kind", list(FaultKind), ids=lambda kind: kind.value)
def test_a_fault_is_felt_when_enabled_and_only_then(kind: FaultKind) -> None:
    is_seen, felt = play(kind, [kind])
    assert is_seen, f"{kind.value} was enabled and nobody saw it"
    assert felt > 0, f"{kind.value} was seen but not counted"
    is_seen, felt = play(kind, [])
    assert not is_seen, f"{kind.value} was seen without being enabled"
    assert felt == 0


def test_about_a_quarter_of_the_runs_have_no_fault_at_all() -> None:
    calm = sum(1 for seed in range(1_000) if not draw_kinds(SeededRandom(seed, "kinds"), FaultKind))
    assert 200 < calm < 300


def test_every_kind_is_drawn_in_some_runs_and_not_in_others() -> None:
    drawn = [set(draw_kinds(SeededRandom(seed, "kinds"), FaultKind)) for seed in range(200)]
    for kind in FaultKind:
        count = sum(1 for kinds in drawn if kind in kinds)
        highest = 160 if kind is FaultKind.MACHINE_CRASH else 100
        assert 20 < count < highest, f"{kind.value} was drawn in {count} of 200 runs"


def test_what_only_a_crash_shows_brings_the_crash_along() -> None:
    assert with_causes([FaultKind.HOLE]) == [FaultKind.HOLE, FaultKind.MACHINE_CRASH]
    assert with_causes([FaultKind.BREAK]) == [FaultKind.BREAK]


def test_healed_faults_never_fire() -> None:
    faults = Faults(
        SeededRandom(1, "faults"),
        Trace(),
        enabled=[FaultKind.BREAK],
        probabilities={FaultKind.BREAK: 1.0},
    )
    assert faults.fires(FaultKind.BREAK)
    faults.heal()
    assert not faults.fires(FaultKind.BREAK)


def test_a_kind_that_nobody_felt_is_named() -> None:
    faults = Faults(SeededRandom(1, "faults"), Trace(), enabled=[FaultKind.BREAK])
    assert faults.unfelt() == [FaultKind.BREAK]
    faults.took_effect(FaultKind.BREAK, "here")
    assert faults.unfelt() == []


def test_a_process_that_dies_keeps_what_it_wrote_and_a_machine_what_it_flushed() -> None:
    world = World(1, enabled=[FaultKind.LOST_WRITE], probabilities={FaultKind.LOST_WRITE: 1.0})
    sizes: list[int] = []

    async def first(ports: SimulatedPorts) -> None:
        disk = ports.open_disk()
        file = await disk.open("log", create=True)
        await disk.append([Append(file, [b"flushed"])])
        await disk.flush([file], directories=[""])
        await disk.append([Append(file, [b"only written"])])
        await asyncio.Event().wait()

    async def later(ports: SimulatedPorts) -> None:
        sizes.append((await ports.open_disk().open("log")).size_bytes)

    async def main() -> None:
        machine = world.machine("m")
        process = machine.start("p", first)
        await asyncio.sleep(1)
        process.kill()
        machine.start("p", later)
        await asyncio.sleep(1)
        machine.crash()
        machine.start("p", later)
        await asyncio.sleep(1)

    world.run(main())
    assert sizes == [len(b"flushedonly written"), len(b"flushed")]
    world.close()
