"""The loop of the testing kit: an owner that stands still keeps its turns, others go on."""

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tidelog.testing.loop import OWNER, ClusterLoop, LoopThread, Owner
from tidelog.wire.errors import ErrorCode, TidelogError


@pytest.fixture
def loop() -> Iterator[ClusterLoop]:
    made, unhandled = ClusterLoop(), []
    made.set_exception_handler(lambda _, context: unhandled.append(context))
    yield made
    made.close()
    assert unhandled == []


def start(loop: ClusterLoop, owner: Owner, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    context = contextvars.copy_context()
    context.run(OWNER.set, owner)
    return loop.create_task(work, context=context)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_paused_owner_takes_no_step_and_goes_on_where_it_stood(loop: ClusterLoop) -> None:
    steps: dict[str, int] = {"paused": 0, "other": 0}
    owner = Owner()

    async def walk(name: str) -> None:
        while True:
            steps[name] += 1
            await asyncio.sleep(0)

    async def run() -> tuple[int, int, int]:
        tasks = [start(loop, owner, walk("paused")), start(loop, Owner(), walk("other"))]
        await turns()
        loop.pause(owner)
        await turns(1)
        before = steps["paused"]
        await turns()
        during, others = steps["paused"] - before, steps["other"]
        loop.resume(owner)
        await turns()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return during, others, steps["paused"] - before

    during, others, after = loop.run_until_complete(run())
    assert during == 0
    assert others > 10
    assert after >= 9


def test_a_timer_that_falls_due_in_a_pause_goes_off_behind_it(loop: ClusterLoop) -> None:
    owner, told = Owner(), []

    async def wait() -> None:
        await asyncio.sleep(0.001)
        told.append("awake")

    async def run() -> list[str]:
        task = start(loop, owner, wait())
        await turns(2)
        loop.pause(owner)
        await asyncio.sleep(0.02)
        during = list(told)
        loop.resume(owner)
        await task
        return during

    assert loop.run_until_complete(run()) == []
    assert told == ["awake"]


def test_a_timer_that_is_cancelled_behind_a_pause_does_not_go_off(loop: ClusterLoop) -> None:
    """A wait that ended in the pause wins over its timeout that fell due in it as well."""
    owner = Owner()
    event = asyncio.Event()

    async def wait() -> str:
        async with asyncio.timeout(0.01):
            await event.wait()
        return "in time"

    async def run() -> str:
        task = start(loop, owner, wait())
        await turns(2)
        loop.pause(owner)
        event.set()
        await asyncio.sleep(0.03)
        loop.resume(owner)
        return str(await task)

    assert loop.run_until_complete(run()) == "in time"


def test_a_task_that_is_cancelled_in_a_pause_ends_behind_it(loop: ClusterLoop) -> None:
    owner = Owner()

    async def run() -> tuple[bool, bool]:
        task = start(loop, owner, asyncio.sleep(3600))
        await turns(2)
        loop.pause(owner)
        task.cancel()
        await turns()
        was_done = task.done()
        loop.resume(owner)
        await asyncio.gather(task, return_exceptions=True)
        return was_done, task.cancelled()

    assert loop.run_until_complete(run()) == (False, True)


def test_a_call_over_there_that_takes_too_long_is_given_up_and_named() -> None:
    thread = LoopThread()
    thread.start()
    try:
        with pytest.raises(TidelogError, match="wait for nothing") as refused:
            thread.run(asyncio.Event().wait(), 0.01, "wait for nothing")
        assert refused.value.code is ErrorCode.DEADLINE_EXCEEDED
    finally:
        thread.stop()
