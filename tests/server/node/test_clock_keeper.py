"""The node's time across its restarts."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tidelog.broker.shared.clock_trust import StoredTime
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.world.process import Machine, Process
from tidelog.metadata.broker_reports import ClockState, ClockVerdict
from tidelog.metadata.image.image import Image
from tidelog.server.roles.clock_keeper import (
    FILE_NAME,
    STORE_MS,
    ClockKeeper,
    encode_stored,
    read_stored,
)
from tidelog.server.storage.format import write_file
from tidelog.wire.ids import BrokerId

DAY_MS = 86_400_000
ALONE = ClockVerdict(state=ClockState.ALONE, skew_max_ms=60_000)
Life = Callable[[SimulatedPorts, ClockKeeper], Coroutine[Any, Any, None]]


def live(*lives: Life, between: Callable[[Machine], None] = lambda machine: None) -> None:
    """One machine, one life of a process after the other."""
    world = World(3)
    machine = world.machine("node")

    async def main() -> None:
        for life in lives:
            await ended(machine.start("node", partial(_life, life)))
            between(machine)

    try:
        world.run(main())
    finally:
        world.close()


async def ended(process: Process) -> None:
    """It came to its end by itself."""
    for _ in range(100_000):
        if process.is_dead:
            break
        await asyncio.sleep(0.05)
    if process.exit_error is not None:
        raise process.exit_error


async def _life(life: Life, ports: SimulatedPorts) -> None:
    disk = ports.open_disk()
    keeper = await ClockKeeper.open(
        disk,
        ports.clock,
        boot_id=ports.host.boot_id(),
        is_own_judge=False,
        broker_id=BrokerId(1),
        image=Image,
    )
    task = asyncio.get_running_loop().create_task(keeper.run())
    await life(ports, keeper)
    task.cancel()
    await disk.shutdown()


async def beat(ports: SimulatedPorts, keeper: ClockKeeper, for_ms: int) -> None:
    """Heartbeats of a lone node."""
    for _ in range(for_ms // 1_000):
        keeper.time.hear(ALONE, keeper.time.read())
        await ports.clock.sleep(1_000)


def test_a_lone_node_whose_clock_jumped_while_it_was_down_deletes_nothing() -> None:
    async def first(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        await beat(ports, keeper, 5_000)
        await keeper.store()

    async def second(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        await beat(ports, keeper, 2_000)
        assert not keeper.time.may_expire
        assert keeper.time.skew_ms == DAY_MS

    live(first, second, between=lambda machine: machine.jump_wall(DAY_MS))


def test_a_time_is_kept_every_minute_so_that_a_kill_costs_no_more() -> None:
    async def first(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        await beat(ports, keeper, 2 * STORE_MS + 5_000)
        assert keeper.time.may_expire

    async def second(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        kept = await read_stored(ports._process.disks[-1])
        assert kept is not None
        age_ms = ports.clock.wall_ms() - kept.wall_ms
        assert 0 <= age_ms <= STORE_MS + 6_000
        await beat(ports, keeper, 2_000)
        assert keeper.time.may_expire

    live(first, second)


def test_a_short_life_with_a_wrong_clock_keeps_the_clusters_time() -> None:
    off = ClockVerdict(state=ClockState.OFF, skew_ms=DAY_MS, skew_max_ms=60_000)

    async def work(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        keeper.time.hear(off, keeper.time.read())
        await ports.clock.sleep(3_000)
        kept = await read_stored(ports._process.disks[-1])
        assert kept is not None
        assert 0 <= ports.clock.wall_ms() - DAY_MS - kept.wall_ms <= 4_000

    live(work)


def test_what_becomes_of_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        await beat(ports, keeper, 4_000)
        machine.jump_wall(DAY_MS)
        await beat(ports, keeper, 4_000)
        machine.jump_wall(-DAY_MS)
        await beat(ports, keeper, 4_000)

    world = World(3)
    machine = world.machine("node")

    async def main() -> None:
        await ended(machine.start("node", partial(_life, work)))

    with caplog.at_level(logging.INFO, logger="tidelog"):
        world.run(main())
    world.close()
    lines = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert [line.split()[0] for line in lines] == ["clock_not_trusted", "clock_trusted"]
    assert "confirm-clock" in lines[0]
    assert f"skew_ms={DAY_MS}" in lines[0]


@pytest.mark.parametrize("damage", [0, 5, 20, 40])
def test_a_stored_time_that_is_damaged_is_none(damage: int) -> None:
    async def work(ports: SimulatedPorts, keeper: ClockKeeper) -> None:
        del keeper
        disk = ports._process.disks[-1]
        kept = StoredTime(wall_ms=1_790_000_000_000, uptime_ms=5, boot_id="a")
        content = bytearray(encode_stored(kept))
        await write_file(disk, FILE_NAME, bytes(content))
        assert await read_stored(disk) == kept
        content[damage] ^= 1
        await write_file(disk, FILE_NAME, bytes(content))
        assert await read_stored(disk) is None

    live(work)
