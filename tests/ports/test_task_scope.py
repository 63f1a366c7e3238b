"""TaskScope: children end with their scope, and no failure is lost."""

import asyncio
import gc
import weakref

import pytest

from tests.ports.support.adapters import World
from tests.ports.support.scope_work import (
    Trouble,
    fail,
    fail_after,
    fail_when_cancelled,
    never,
    note_end,
)
from tidelog.ports import TaskScope


def test_leaving_a_scope_waits_for_all_children(world: World) -> None:
    log: list[str] = []

    async def child(name: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        log.append(name)

    async def run() -> None:
        async with TaskScope() as scope:
            for name in "abc":
                scope.start(child(name), name=name)
        log.append("left")

    world.run(run())
    assert sorted(log[:3]) == ["a", "b", "c"]
    assert log[3] == "left"


def test_a_scope_without_children_ends_at_once(world: World) -> None:
    async def run() -> None:
        async with TaskScope():
            pass

    world.run(run())


def test_a_failing_child_ends_a_body_that_waits(world: World) -> None:
    error = Trouble("child")

    async def run() -> int:
        try:
            async with TaskScope() as scope:
                scope.start(fail_after(2, error), name="failing")
                await never()
        except Trouble:
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()
        raise AssertionError("the failure did not leave the scope")

    assert world.run(run()) == 0, "the cancellation that ended the body is taken back"


def test_a_task_goes_on_after_a_failure_that_it_caught(world: World) -> None:
    async def run() -> str:
        for _ in range(3):
            with pytest.raises(Trouble):
                await fail_in_scope()
            await asyncio.sleep(0)
        return "alive"

    async def fail_in_scope() -> None:
        async with TaskScope() as scope:
            scope.start(fail(Trouble("again")), name="failing")
            await never()

    assert world.run(run()) == "alive"


def test_a_child_that_fails_after_the_body_becomes_a_note_of_the_bodys_exception() -> None:
    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(fail_when_cancelled(Trouble("child")), name="cleaner")
            await asyncio.sleep(0)
            raise Trouble("body")

    with pytest.raises(Trouble, match="body") as caught:
        asyncio.run(run())
    assert caught.value.__notes__ == ["cleaner failed too: Trouble('child')"]


def test_a_body_that_fails_in_answer_to_a_childs_failure_becomes_its_note() -> None:
    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(fail(Trouble("child")), name="failing")
            try:
                await never()
            finally:
                raise Trouble("body, cleaning up")

    with pytest.raises(Trouble, match="child") as caught:
        asyncio.run(run())
    assert caught.value.__notes__ == ["the body failed too: Trouble('body, cleaning up')"]


def test_later_failures_become_notes_of_the_first() -> None:
    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(fail_when_cancelled(Trouble("second")), name="b")
            scope.start(fail_when_cancelled(Trouble("third")), name="c")
            scope.start(fail_after(2, Trouble("first")), name="a")

    with pytest.raises(Trouble, match="first") as caught:
        asyncio.run(run())
    assert caught.value.__notes__ == [
        "b failed too: Trouble('second')",
        "c failed too: Trouble('third')",
    ]


def test_a_body_that_awaits_the_failing_child_raises_its_exception_once(world: World) -> None:
    error = Trouble("child")

    async def run() -> None:
        async with TaskScope() as scope:
            await scope.start(fail_after(1, error), name="failing")

    with pytest.raises(Trouble) as caught:
        world.run(run())
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_the_exception_keeps_what_led_to_it() -> None:
    async def child() -> None:
        try:
            raise KeyError("cause")
        except KeyError:
            raise Trouble("child")  # noqa: B904 - the implicit context is what is tested

    async def run() -> None:
        async with TaskScope() as scope:
            scope.start(child(), name="failing")
            await never()

    with pytest.raises(Trouble) as caught:
        asyncio.run(run())
    assert isinstance(caught.value.__context__, KeyError)


def test_a_failure_in_an_outer_scope_ends_an_inner_one(world: World) -> None:
    log: list[str] = []
    error = Trouble("outer child")

    async def run() -> None:
        async with TaskScope() as outer:
            outer.start(fail_after(4, error), name="failing")
            async with TaskScope() as inner:
                inner.start(note_end(log, "inner child"), name="inner child")

    with pytest.raises(Trouble) as caught:
        world.run(run())
    assert caught.value is error
    assert set(log) <= {"inner child"}


def test_a_failure_in_an_inner_scope_can_be_handled_in_the_outer_one(world: World) -> None:
    async def run() -> str:
        async with TaskScope() as outer:
            other = outer.start(asyncio.sleep(0), name="other")
            with pytest.raises(Trouble):
                await fail_in_inner()
            await other
        return "both ended"

    async def fail_in_inner() -> None:
        async with TaskScope() as inner:
            inner.start(fail(Trouble("inner")), name="failing")
            await never()

    assert world.run(run()) == "both ended"


def test_children_may_start_children_while_the_scope_is_left(world: World) -> None:
    log: list[int] = []

    async def run() -> None:
        async with TaskScope() as scope:

            async def descend(depth: int) -> None:
                log.append(depth)
                if depth:
                    await asyncio.sleep(0)
                    scope.start(descend(depth - 1), name=f"depth {depth - 1}")

            scope.start(descend(5), name="depth 5")

    world.run(run())
    assert log == [5, 4, 3, 2, 1, 0]


def test_a_scope_is_entered_once() -> None:
    async def run() -> None:
        scope = TaskScope()
        async with scope:
            pass
        with pytest.raises(AssertionError, match="entered once"):
            await scope.__aenter__()

    asyncio.run(run())


def test_a_scope_starts_nothing_before_it_is_entered_or_after_it_is_left() -> None:
    async def run() -> None:
        scope = TaskScope()
        with pytest.raises(AssertionError, match="nobody is in"):
            scope.start(never(), name="early")
        async with scope:
            pass
        with pytest.raises(AssertionError, match="nobody is in"):
            scope.start(never(), name="late")

    asyncio.run(run())


def test_nothing_outlives_the_scope() -> None:
    references: list[weakref.ref[object]] = []

    async def fail_afresh() -> None:
        raise Trouble("first")

    async def fail_in_scope() -> None:
        async with TaskScope() as scope:
            references.append(weakref.ref(scope))
            references.append(weakref.ref(scope.start(fail_afresh(), name="failing")))
            references.append(weakref.ref(scope.start(never(), name="other")))
            await never()

    async def run() -> list[object]:
        try:
            await fail_in_scope()
        except Trouble as error:
            references.append(weakref.ref(error))
        await asyncio.sleep(0)
        return [reference() for reference in references]

    was_collecting = gc.isenabled()
    gc.disable()
    try:
        assert asyncio.run(run()) == [None] * 4, "only the collector would have freed these"
    finally:
        if was_collecting:
            gc.enable()


def test_the_name_of_a_child_shows_in_its_task(world: World) -> None:
    async def run() -> str:
        names: list[str] = []

        async def child() -> None:
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())

        async with TaskScope() as scope:
            scope.start(child(), name="the child")
        return names[0]

    assert world.run(run()).endswith("the child")
