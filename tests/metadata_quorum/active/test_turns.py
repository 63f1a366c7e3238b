"""Large calls take turns at the controller: callers in rotation, small calls past them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata_quorum.active.turns import AdminTurns, TurnLimits
from tidelog.ports import Clock, RequestContext
from tidelog.ports.request_context import ANONYMOUS, CLIENT_LISTENER, NO_DEADLINE_NS
from tidelog.wire.errors import ErrorCode, TidelogError

LIMITS = TurnLimits(small_call_max=10, work_per_s=1_000, waiting_of_caller_max=3, waiting_max=5)
LARGE = 500
"""Half a second of work."""
TRIED = "call it"


def in_world(work: Callable[[AdminTurns, Clock], Awaitable[None]]) -> None:
    async def live(ports: SimulatedPorts) -> None:
        await work(AdminTurns(ports.clock, LIMITS), ports.clock)

    async def main() -> None:
        process = world.machine("m").start("m", live)
        for _ in range(10_000):
            if process.is_dead:
                break
            await asyncio.sleep(0.05)
        assert process.is_dead, "the test's work did not end"
        if process.exit_error is not None:
            raise process.exit_error

    world = World(5)
    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


class Calls:
    """Who had a turn, in order."""

    def __init__(self, turns: AdminTurns) -> None:
        self.turns = turns
        self.done: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, caller: str, work: int = LARGE, timeout_ms: int = 60_000) -> None:
        begun = asyncio.Event()

        async def call() -> None:
            begun.set()
            await self.turns.wait(caller, work, tried=TRIED, timeout_ms=timeout_ms)
            self.done.append(caller)

        self.tasks.append(asyncio.create_task(call()))
        await begun.wait()


def test_callers_take_turns_whoever_sends_more() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls = Calls(turns)
        for caller in ("first", "many", "many", "many", "one"):
            await calls.start(caller)
        await asyncio.gather(*calls.tasks)
        assert calls.done == ["first", "many", "one", "many", "many"]
        assert turns.waiting_count == 0

    in_world(work)


def test_the_work_of_all_large_calls_together_is_bounded() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls, begun_ns = Calls(turns), clock.monotonic_ns()
        for caller in ("a", "b", "c", "d"):
            await calls.start(caller)
        await asyncio.gather(*calls.tasks)
        assert clock.monotonic_ns() - begun_ns >= 3 * LARGE * 1_000_000, "three rests"

    in_world(work)


def test_a_small_call_passes_those_that_wait() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls, begun_ns = Calls(turns), clock.monotonic_ns()
        await calls.start("many")
        await calls.start("many")
        await calls.start("many", LIMITS.small_call_max)
        await calls.tasks[2]
        assert calls.done == ["many", "many"]
        assert clock.monotonic_ns() - begun_ns < LARGE * 1_000_000
        await asyncio.gather(*calls.tasks)

    in_world(work)


def test_a_caller_that_fills_its_queue_is_refused_and_so_is_everybody_once_all_are_full() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls = Calls(turns)
        await calls.start("many")
        for _ in range(1 + LIMITS.waiting_of_caller_max):
            await calls.start("many")
        with pytest.raises(TidelogError, match="3 large calls of many") as caught:
            await turns.wait("many", LARGE, tried=TRIED, timeout_ms=1)
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        await calls.start("b")
        await calls.start("c")
        with pytest.raises(TidelogError, match="5 large calls of all callers"):
            await turns.wait("d", LARGE, tried=TRIED, timeout_ms=1)
        await asyncio.gather(*calls.tasks)

    in_world(work)


def test_a_call_that_is_withdrawn_at_any_moment_gives_its_turn_away() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls = Calls(turns)
        for caller in ("a", "b", "c", "d"):
            await calls.start(caller)
        calls.tasks[1].cancel()
        await clock.sleep(LARGE // 2)
        calls.tasks[2].cancel()
        await asyncio.gather(*calls.tasks, return_exceptions=True)
        assert calls.done == ["a", "d"]
        await turns.wait("e", LARGE, tried=TRIED, timeout_ms=60_000)

    in_world(work)


def test_a_call_without_a_turn_within_its_time_was_not_begun() -> None:
    async def work(turns: AdminTurns, clock: Clock) -> None:
        calls = Calls(turns)
        await calls.start("a")
        await calls.start("b", timeout_ms=100)
        with pytest.raises(TidelogError, match="no turn within 100 ms") as caught:
            await calls.tasks[1]
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert calls.done == ["a"]
        await turns.wait("c", LARGE, tried=TRIED, timeout_ms=60_000)

    in_world(work)


@pytest.mark.parametrize(
    ("principal", "address", "caller"),
    [
        ("CN=alice", "10.0.0.1:999", "CN=alice"),
        (ANONYMOUS, "10.0.0.1:999", "10.0.0.1"),
        (ANONYMOUS, "[::1]:999", "[::1]"),
        (ANONYMOUS, "", ""),
    ],
)
def test_a_caller_is_its_principal_else_its_machine(
    principal: str, address: str, caller: str
) -> None:
    context = RequestContext(
        principal=principal,
        listener=CLIENT_LISTENER,
        client_id="",
        address=address,
        deadline_ns=NO_DEADLINE_NS,
    )
    assert context.caller == caller
