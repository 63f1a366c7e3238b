"""TaskScope: cancellations reach every child, in order, and none is hidden or left over."""

import asyncio

import pytest

from tests.ports.support.adapters import World
from tests.ports.support.scope_work import (
    Trouble,
    fail,
    fail_after,
    fail_when_cancelled,
    never,
    note_end,
    ordinary,
)
from tidelog.ports import TaskScope
from tidelog.wire.errors import TidelogError


def test_children_are_cancelled_in_the_order_of_their_start() -> None:
    log: list[str] = []

    async def run() -> None:
        async with TaskScope() as scope:
            for number in range(100):
                scope.start(note_end(log, str(number)), name=str(number))
            await asyncio.sleep(0)
            scope.cancel()

    asyncio.run(run())
    assert log == [str(number) for number in range(100)]


def test_the_first_child_that_raises_cancels_the_others_and_its_exception_leaves(
    world: World,
) -> None:
    log: list[str] = []
    error = Trouble("first")

    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(note_end(log, "other"), name="other")
            await asyncio.sleep(0)
            scope.start(fail_after(3, error), name="failing")

    with pytest.raises(Trouble) as caught:
        world.run(run())
    assert caught.value is error
    assert set(log) <= {"other"}


def test_a_body_that_raises_cancels_the_children_and_its_exception_leaves(world: World) -> None:
    log: list[str] = []

    async def run() -> None:
        async with TaskScope() as scope:
            for name in "ab":
                scope.start(note_end(log, name), name=name)
            for _ in range(3):
                await asyncio.sleep(0)
            raise Trouble("body")

    with pytest.raises(Trouble, match="body"):
        world.run(run())
    assert set(log) <= {"a", "b"}


def test_cancelling_the_parent_ends_the_children_and_then_the_parent(world: World) -> None:
    log: list[str] = []

    async def parent(entered: asyncio.Event) -> None:
        async with TaskScope() as scope:
            scope.start(note_end(log, "child"), name="child")
            await asyncio.sleep(0)
            entered.set()
            await never()

    async def run() -> bool:
        entered = asyncio.Event()
        task = asyncio.create_task(parent(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert world.run(run())
    assert set(log) <= {"child"}


def test_cancelling_the_parent_while_it_leaves_ends_the_children(world: World) -> None:
    async def parent(leaving: asyncio.Event) -> None:
        async with TaskScope() as scope:
            scope.start(never(), name="child")
            leaving.set()

    async def run() -> bool:
        leaving = asyncio.Event()
        task = asyncio.create_task(parent(leaving))
        await leaving.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert world.run(run())


def test_a_second_cancellation_reaches_a_child_that_ignored_the_first() -> None:
    ignored: list[str] = []

    async def stubborn() -> None:
        try:
            await never()
        except asyncio.CancelledError:
            ignored.append("once")
        await never()

    async def parent() -> None:
        async with TaskScope() as scope:
            scope.start(stubborn(), name="stubborn")

    async def run() -> None:
        task = asyncio.create_task(parent())
        for _ in range(2):
            for _ in range(5):
                await asyncio.sleep(0)
            assert not task.done()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ignored == ["once"]


def test_a_cancellation_of_the_parent_is_not_hidden_by_a_failure(world: World) -> None:
    """A loop that catches failures and tries again must hear that it is to end."""
    rounds: list[int] = []

    async def supervisor() -> None:
        while True:
            rounds.append(len(rounds))
            assert len(rounds) < 10, "the cancellation was lost"
            try:
                async with TaskScope() as scope:
                    scope.start(fail_when_cancelled(ordinary()), name="closing badly")
                    await never()
            except TidelogError:
                continue

    async def run() -> None:
        task = asyncio.create_task(supervisor())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    world.run(run())
    assert rounds == [0]


def test_a_failure_at_the_moment_of_a_cancellation_does_not_hide_it() -> None:
    async def parent() -> None:
        async with TaskScope() as scope:
            scope.start(fail_after(3, ordinary()), name="failing")
            await never()

    async def run(turns: int) -> None:
        task = asyncio.create_task(parent())
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = task.done()
        task.cancel()
        if was_done:
            with pytest.raises(TidelogError):
                await task
        else:
            with pytest.raises(asyncio.CancelledError):
                await task

    for turns in range(12):
        asyncio.run(run(turns))


def test_a_bug_behind_a_cancellation_goes_to_the_loops_exception_handler() -> None:
    reported: list[object] = []

    async def parent() -> None:
        async with TaskScope() as scope:
            scope.start(fail_when_cancelled(Trouble("bug")), name="buggy")
            scope.start(fail_when_cancelled(ordinary()), name="ordinary")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
        task = asyncio.create_task(parent())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert reported == ["buggy failed while its scope was cancelled"]


def test_a_timeout_around_a_scope_stays_a_timeout_when_a_child_fails_in_it(world: World) -> None:
    async def run() -> int:
        with pytest.raises(TimeoutError):
            await time_out()
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return task.cancelling()

    async def time_out() -> None:
        async with asyncio.timeout(0.001), TaskScope() as scope:
            scope.start(fail_when_cancelled(ordinary()), name="closing badly")
            await never()

    assert world.run(run()) == 0


def test_a_cancelled_child_has_not_failed(world: World) -> None:
    async def run() -> str:
        async with TaskScope() as scope:
            child = scope.start(never(), name="child")
            await asyncio.sleep(0)
            child.cancel()
        return "left in order"

    assert world.run(run()) == "left in order"


def test_cancel_ends_all_children_and_lets_the_body_go_on(world: World) -> None:
    async def run() -> str:
        async with TaskScope() as scope:
            for number in range(3):
                scope.start(never(), name=str(number))
            scope.cancel()
            await asyncio.sleep(0)
            return "went on"

    assert world.run(run()) == "went on"


def test_a_child_started_by_a_child_that_cleans_up_is_cancelled_at_once(world: World) -> None:
    async def run() -> str:
        async with TaskScope() as scope:

            async def parting() -> None:
                try:
                    await never()
                finally:
                    scope.start(never(), name="started while ending")

            scope.start(parting(), name="parting")
            for _ in range(3):
                await asyncio.sleep(0)
            scope.cancel()
        return "ended"

    assert world.run(run()) == "ended"


def test_a_child_started_after_a_failure_is_cancelled_before_its_first_step() -> None:
    steps: list[str] = []

    async def child() -> None:
        steps.append("ran")

    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(fail(Trouble("first")), name="failing")
            try:
                await never()
            except asyncio.CancelledError:
                scope.start(child(), name="late")
                raise

    with pytest.raises(Trouble):
        asyncio.run(run())
    assert steps == []
