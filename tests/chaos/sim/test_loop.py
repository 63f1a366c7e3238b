"""The event loop of the simulator: virtual time, an order by seed, and no way out to the world."""

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from tidelog.chaos.sim import (
    Deadlock,
    Runaway,
    SeededRandom,
    SimulatedLoop,
    SimulatedPorts,
    SimulationBreach,
    Trace,
    World,
)
from tidelog.chaos.sim.world.process import Process
from tidelog.wire.errors import ErrorCode, TidelogError


def order_of_ten_tasks(seed: int | None) -> list[int]:
    loop = SimulatedLoop(Trace(), order=None if seed is None else SeededRandom(seed, "order"))
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    async def main() -> None:
        tasks = [asyncio.create_task(note(number)) for number in range(10)]
        for task in tasks:
            await task

    loop.run(main())
    loop.bury()
    return order


def test_ready_callbacks_run_in_an_order_of_the_seed() -> None:
    assert order_of_ten_tasks(1) == order_of_ten_tasks(1)
    assert len({tuple(order_of_ten_tasks(seed)) for seed in range(20)}) > 10


def test_without_a_seed_callbacks_run_as_they_got_ready() -> None:
    assert order_of_ten_tasks(None) == list(range(10))


def test_an_hour_of_virtual_time_takes_no_real_time() -> None:
    loop = SimulatedLoop(Trace())

    async def sleep() -> float:
        begin = loop.time()
        await asyncio.sleep(3_600)
        return loop.time() - begin

    assert loop.run(sleep()) >= 3_600
    assert loop.steps < 20
    loop.bury()


def test_timers_fire_in_the_order_of_their_times() -> None:
    loop = SimulatedLoop(Trace(), order=SeededRandom(1, "order"))
    fired: list[int] = []

    async def main() -> None:
        for delay_ms in (30, 10, 20, 40):
            loop.call_later(delay_ms / 1000, fired.append, delay_ms)
        await asyncio.sleep(1)

    loop.run(main())
    loop.bury()
    assert fired == [10, 20, 30, 40]


def test_tasks_are_named_by_their_order_in_the_run() -> None:
    async def main() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    names = []
    for _ in range(2):
        loop = SimulatedLoop(Trace())
        names.append(loop.run(main()))
        loop.bury()
    assert names == ["task-1", "task-1"]


def test_waiting_for_what_nobody_does_is_a_deadlock() -> None:
    loop = SimulatedLoop(Trace())

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waiting: task-1"):
        loop.run(wait())
    loop.bury()


def test_spinning_is_a_runaway() -> None:
    loop = SimulatedLoop(Trace(), steps_max=1_000)

    async def yield_once() -> None:
        await asyncio.sleep(0)

    async def spin() -> None:
        while True:
            await yield_once()

    with pytest.raises(Runaway, match="1000 steps"):
        loop.run(spin())
    loop.bury()


async def _in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, int)


async def _open_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def _socket() -> None:
    socket.socket()


async def _sleep() -> None:
    time.sleep(0)  # noqa: ASYNC251


async def _thread() -> None:
    threading.Thread(target=int).start()


async def _process() -> None:
    subprocess.run(["true"], check=True)  # noqa: ASYNC221


async def _from_a_thread() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(int)


@pytest.mark.parametrize(
    "reach",
    [_in_executor, _open_connection, _socket, _sleep, _thread, _process, _from_a_thread],
    ids=lambda reach: reach.__name__.strip("_"),
)
def test_the_real_world_is_refused(reach: Callable[[], Awaitable[None]]) -> None:
    loop = SimulatedLoop(Trace())

    async def main() -> None:
        await reach()

    with pytest.raises(SimulationBreach, match="use a port"):
        loop.run(main())
    loop.bury()


def test_a_refusal_that_code_swallows_still_ends_the_run() -> None:
    loop = SimulatedLoop(Trace())

    async def main() -> None:
        try:
            await _sleep()
        except SimulationBreach:
            return

    with pytest.raises(SimulationBreach):
        loop.run(main())
    loop.bury()


def test_outside_a_simulation_nothing_is_refused() -> None:
    socket.socket().close()
    time.sleep(0)


def test_a_killed_process_takes_no_further_step() -> None:
    world = World(1)
    steps: list[str] = []

    async def life(ports: SimulatedPorts) -> None:
        try:
            steps.append("begun")
            await ports.clock.sleep(1_000)
            steps.append("slept")
        finally:
            steps.append("cleaned up")

    async def main() -> None:
        process = world.machine("m").start("p", life)
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(2)

    world.run(main())
    assert steps == ["begun"]
    world.close()


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_failure_whose_process_died_before_it_could_look_is_no_finding(is_paused: bool) -> None:
    world = World(1)
    processes: list[Process] = []

    def fail(failing: asyncio.Future[None]) -> None:
        failing.set_exception(TidelogError(ErrorCode.STORAGE_FAILED, tried="x", happened="y"))
        processes[0].pause() if is_paused else processes[0].kill()

    async def life(ports: SimulatedPorts) -> None:
        del ports
        loop = asyncio.get_running_loop()
        failing: asyncio.Future[None] = loop.create_future()
        failing.add_done_callback(asyncio.Future.exception)
        loop.call_later(0.1, fail, failing)
        del failing
        await asyncio.sleep(10)

    async def main() -> None:
        processes.append(world.machine("m").start("p", life))
        await asyncio.sleep(0.5)
        processes[0].kill()
        await asyncio.sleep(2)

    world.run(main())
    assert world.loop.unretrieved == []
    world.close()


def test_an_error_that_nobody_awaits_is_a_finding() -> None:
    world = World(1)

    def fail() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    world.run(main())
    assert len(world.findings()) == 1
    assert "lost" in world.findings()[0]
    world.close()


def test_the_trace_hash_tells_runs_apart() -> None:
    def run(seed: int) -> str:
        world = World(seed)

        async def work() -> None:
            await asyncio.sleep(0.1)

        async def main() -> None:
            tasks = [asyncio.create_task(work(), name=f"work-{n}") for n in range(5)]
            for task in tasks:
                await task

        world.run(main())
        text = world.trace.hash_text()
        world.close()
        return text

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(10)}) > 3


def test_the_trace_hash_stays_when_code_is_renamed() -> None:
    def run(names: list[str], detail: str) -> str:
        world = World(3)

        async def main() -> None:
            tasks = [asyncio.create_task(asyncio.sleep(0.1), name=name) for name in names]
            for task in tasks:
                await task
            world.trace.note("worker", "worker:start", detail, name=names[0])

        world.run(main())
        text = world.trace.hash_text()
        world.close()
        return text

    assert run(["fetch", "append"], "3 bytes") == run(["replicate", "write"], "3 bytes")
    assert run(["fetch", "append"], "3 bytes") != run(["fetch", "append"], "4 bytes")
