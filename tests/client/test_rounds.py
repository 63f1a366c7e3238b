"""Which address is asked when, for a call that any node may answer; on both drivers."""

import asyncio
import queue
from collections.abc import Callable
from typing import cast

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.aio.rounds import Round as AsyncRound
from tidelog.client.shared.asking import Answer, OnAnswer, OnFailure, nobody_is_told
from tidelog.client.sync.connections import Connections
from tidelog.client.sync.rounds import Round
from tidelog.wire.errors import ErrorCode, TidelogError

READ = "/tidelog.v1.MetadataService/GetMetadata"
WRITE = "/tidelog.v1.AdminService/CreateTopics"
SILENCE = 60_000


def refused(address: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE, tried="call", happened=f"{address}: connection refused"
    )


class Nodes:
    """Addresses that answer at once, refuse at once, or (`hole`) never say anything."""

    def __init__(self, *known: str) -> None:
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.silent: dict[str, OnAnswer] = {}
        self.known = known

    def has_answered(self, address: str) -> bool:
        return address in self.known

    def call_later(
        self, address: str, method: str, data: bytes, timeout_ms: int, on_answer: OnAnswer
    ) -> None:
        self.asked.append(address)
        if address.startswith("hole"):
            self.silent[address] = on_answer
        elif address.startswith("bad"):
            on_answer(refused(address))
        else:
            on_answer(address.encode())

    async def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        came: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.call_later(address, method, data, timeout_ms, came.set_result)
        try:
            answer = await came
        finally:
            self.ended.append(address)
        if isinstance(answer, TidelogError):
            raise answer
        return answer


def sync_driver(
    nodes: Nodes, addresses: list[str], method: str, note: OnFailure = nobody_is_told
) -> Answer:
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    connections = cast("Connections", nodes)
    Round(connections, addresses, method, b"", SILENCE, answers.put, note).begin()
    return answers.get(timeout=HANG_SECONDS)


def aio_driver(
    nodes: Nodes, addresses: list[str], method: str, note: OnFailure = nobody_is_told
) -> Answer:
    async def work() -> Answer:
        connections = cast("AsyncConnections", nodes)
        asked = AsyncRound(connections, addresses, method, b"", SILENCE, note)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                return await asked.answer()
        except TidelogError as error:
            return error

    return asyncio.run(work())


Ask = Callable[..., Answer]
both = pytest.mark.parametrize("ask", [sync_driver, aio_driver])


@both
def test_the_next_address_is_asked_when_one_has_failed(ask: Ask) -> None:
    nodes = Nodes()
    assert ask(nodes, ["bad1", "bad2", "good", "spare"], WRITE) == b"good"
    assert nodes.asked == ["bad1", "bad2", "good"]


@both
def test_a_failure_is_told_although_another_address_answers(ask: Ask) -> None:
    noted: list[TidelogError] = []
    assert ask(Nodes(), ["bad", "good"], WRITE, noted.append) == b"good"
    assert [each.happened for each in noted] == ["bad: connection refused"]


@both
def test_the_error_names_each_address_in_its_order(ask: Ask) -> None:
    answer = ask(Nodes(), ["bad1", "bad2"], READ)
    assert isinstance(answer, TidelogError)
    assert answer.happened == "bad1: connection refused; bad2: connection refused"


@pytest.mark.slow
@both
def test_a_call_that_reads_does_not_wait_for_an_address_that_swallows_everything(ask: Ask) -> None:
    nodes = Nodes()
    assert ask(nodes, ["hole1", "hole2", "good", "spare"], READ) == b"good"
    assert nodes.asked == ["hole1", "hole2", "good"]


def test_a_call_that_changes_something_is_with_one_node_at_a_time() -> None:
    nodes = Nodes()
    answers: list[Answer] = []
    connections = cast("Connections", nodes)
    asked = Round(connections, ["hole", "good"], WRITE, b"", SILENCE, answers.append)
    asked.begin()
    assert asked._timer is None
    assert nodes.asked == ["hole"]
    nodes.silent["hole"](refused("hole"))
    assert answers == [b"good"]


def test_an_address_that_has_answered_before_is_waited_for() -> None:
    nodes = Nodes("hole")
    answers: list[Answer] = []
    asked = Round(cast("Connections", nodes), ["hole", "good"], READ, b"", SILENCE, answers.append)
    asked.begin()
    assert asked._timer is None
    nodes.silent["hole"](b"late")
    assert answers == [b"late"]


def test_what_comes_after_the_first_answer_is_nobody_s() -> None:
    nodes = Nodes()
    answers: list[Answer] = []
    asked = Round(cast("Connections", nodes), ["hole", "good"], READ, b"", SILENCE, answers.append)
    asked.begin()
    asked._ask_beside()
    assert answers == [b"good"]
    nodes.silent["hole"](b"late")
    assert answers == [b"good"]


def test_a_round_that_is_given_up_leaves_no_call_behind() -> None:
    async def work() -> None:
        nodes = Nodes()
        asked = AsyncRound(cast("AsyncConnections", nodes), ["hole"], READ, b"", SILENCE)
        task = asyncio.ensure_future(asked.answer())
        for _ in range(5):
            await asyncio.sleep(0)
        assert nodes.asked == ["hole"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nodes.ended == ["hole"]

    asyncio.run(work())
