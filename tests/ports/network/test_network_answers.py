"""Answers that callers have not taken: room is taken before they are made, shared, given back."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.ports import ListenerLimits
from tidelog.ports.real.network.answers import (
    COPIES,
    PRESSED_MS,
    ROOM_BYTES_MIN,
    AnswerMemory,
    CallRoom,
)
from tidelog.wire.errors import ErrorCode, TidelogError

MIB = 1024 * 1024
NS_PER_MS = 1_000_000


class World:
    """An answer memory, its time, and what it has refused."""

    def __init__(self, **limits: int) -> None:
        self.now_ns = 0
        self.refused: list[str] = []
        self.memory = AnswerMemory(
            "client", ListenerLimits(**limits), lambda: self.now_ns, self.refused.append
        )

    def room(self, connection: str) -> CallRoom:
        return self.memory.room(connection, "/s/M")

    async def taken(self, connection: str, wanted_bytes: int) -> CallRoom:
        room = self.room(connection)
        await room.take(wanted_bytes)
        return room


async def turns() -> None:
    """More than any wake-up needs."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_call_is_told_how_large_its_answer_may_be_and_gives_everything_back() -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=64 * MIB, connection_answer_bytes=16 * MIB)
        room = world.room("a")
        assert await room.take(100_000) == 100_000
        assert world.memory.held_bytes == COPIES * 100_000
        room.send(50_000, may_refuse=True)
        assert world.memory.held_bytes == COPIES * 50_000
        room.gone()
        room.gone()
        assert world.memory.held_bytes == 0
        assert await world.room("b").take(100 * MIB) == 16 * MIB // COPIES

    asyncio.run(run())


def test_a_connection_that_reads_nothing_waits_and_another_one_does_not() -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=64 * MIB, connection_answer_bytes=8 * MIB)
        first = await world.taken("a", 4 * MIB)
        first.send(4 * MIB, may_refuse=True)
        waiting = asyncio.ensure_future(world.taken("a", 4 * MIB))
        await turns()
        assert not waiting.done()
        await world.taken("b", MIB)
        assert world.memory.waiting_count == 1
        first.gone()
        await asyncio.wait_for(waiting, 5)
        assert world.memory.waiting_count == 0

    asyncio.run(run())


def test_whoever_reads_everything_finds_room_although_others_read_nothing() -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=64 * MIB, connection_answer_bytes=64 * MIB)
        held = []
        for number in range(20):
            room = await world.taken(f"hanging {number}", 8 * MIB)
            room.send(MIB, may_refuse=True)
            held.append(room)
        assert world.memory.held_bytes <= 64 * MIB
        healthy = await asyncio.wait_for(world.taken("healthy", 8 * MIB), 5)
        healthy.give_back()
        waiting = asyncio.ensure_future(world.taken("hanging 0", MIB))
        await turns()
        assert not waiting.done(), "above the half only those have room that have read everything"
        waiting.cancel()

    asyncio.run(run())


def test_calls_that_wait_get_their_turn_by_connection() -> None:
    async def run() -> list[str]:
        world = World(answer_memory_bytes=MIB, connection_answer_bytes=MIB)
        world.memory.hold("filler", MIB // COPIES)
        order: list[str] = []

        async def ask(connection: str) -> None:
            room = await world.taken(connection, 512 * 1024)
            order.append(connection)
            await asyncio.sleep(0)
            room.give_back()

        asked = [asyncio.ensure_future(ask(each)) for each in ("x", "x", "x", "y", "z")]
        await turns()
        assert order == []
        world.memory.release("filler", MIB // COPIES)
        await asyncio.wait_for(asyncio.gather(*asked), 5)
        assert world.memory.held_bytes == 0
        return order

    assert asyncio.run(run())[:3] == ["x", "y", "z"]


def test_a_call_that_is_withdrawn_while_it_waits_or_just_was_given_room_leaves_nothing() -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=MIB, connection_answer_bytes=MIB)
        first = await world.taken("a", 512 * 1024)
        first.send(512 * 1024, may_refuse=True)
        waiting = [asyncio.ensure_future(world.taken("b", 64 * 1024)) for _ in range(2)]
        await turns()
        waiting[0].cancel()
        await turns()
        assert world.memory.waiting_count == 1
        first.gone()
        waiting[1].cancel()
        for each in waiting:
            with pytest.raises(asyncio.CancelledError):
                await each
        assert (world.memory.held_bytes, world.memory.waiting_count) == (0, 0)

    asyncio.run(run())


def test_an_answer_without_room_is_refused_unless_it_is_the_only_one() -> None:
    world = World(answer_memory_bytes=4 * MIB, connection_answer_bytes=4 * MIB)
    only = world.room("a")
    only.send(15 * MIB, may_refuse=True)
    small = world.room("b")
    small.send(1_000, may_refuse=True)
    with pytest.raises(TidelogError) as caught:
        world.room("b").send(2 * MIB, may_refuse=True)
    assert caught.value.code is ErrorCode.INDETERMINATE
    assert world.refused == ["answer_memory_bytes"]
    only.gone()
    world.room("b").send(2 * MIB, may_refuse=True)
    with pytest.raises(TidelogError):
        world.room("b").send(MIB, may_refuse=True)
    assert world.refused == ["answer_memory_bytes", "connection_answer_bytes"]


def test_the_oldest_unread_answer_names_its_connection() -> None:
    async def run() -> None:
        world = World(answer_ms_max=10_000)
        first, second = await world.taken("a", MIB), await world.taken("b", MIB)
        first.send(MIB, may_refuse=True)
        world.now_ns = 9_000 * NS_PER_MS
        second.send(MIB, may_refuse=True)
        assert world.memory.stalled() == []
        world.now_ns = 10_000 * NS_PER_MS
        assert [(each.connection, each.limit) for each in world.memory.stalled()] == [
            ("a", "answer_ms_max")
        ]
        # Whoever takes one now and then is judged by the oldest all the same.
        third = await world.taken("a", MIB)
        third.send(MIB, may_refuse=True)
        third.gone()
        assert [each.connection for each in world.memory.stalled()] == ["a"]
        first.gone()
        assert world.memory.stalled() == []

    asyncio.run(run())


def test_while_others_wait_the_oldest_is_named_earlier() -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=MIB, connection_answer_bytes=MIB, answer_ms_max=60_000)
        hanging = await world.taken("a", 512 * 1024)
        hanging.send(512 * 1024, may_refuse=True)
        world.now_ns = PRESSED_MS * NS_PER_MS
        assert world.memory.stalled() == []
        waiting = asyncio.ensure_future(world.taken("b", ROOM_BYTES_MIN))
        await turns()
        assert [(each.connection, each.limit) for each in world.memory.stalled()] == [
            ("a", "answer_memory_bytes")
        ]
        world.now_ns -= 1
        assert world.memory.stalled() == []
        waiting.cancel()

    asyncio.run(run())


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 12 * MIB), st.integers(0, 3)), max_size=60
    )
)
def test_whatever_calls_do_the_memory_is_bounded_and_comes_back(
    steps: list[tuple[int, int, int]],
) -> None:
    async def run() -> None:
        world = World(answer_memory_bytes=32 * MIB, connection_answer_bytes=8 * MIB)
        tasks: list[asyncio.Future[CallRoom]] = []
        for connection, size_bytes, what in steps:
            if what < 2:
                tasks.append(asyncio.ensure_future(world.taken(f"c{connection}", size_bytes)))
            elif tasks:
                task = tasks.pop(size_bytes % len(tasks))
                if what == 2 and task.done():
                    room = task.result()
                    room.send(1 + room._reserved_bytes // 2, may_refuse=True)
                    room.gone()
                elif not task.cancel():
                    task.result().give_back()
            await asyncio.sleep(0)
            assert world.memory.held_bytes <= 32 * MIB
        for task in tasks:
            if not task.cancel():
                task.result().give_back()
        await turns()
        assert (world.memory.held_bytes, world.memory.waiting_count) == (0, 0)

    asyncio.run(run())
