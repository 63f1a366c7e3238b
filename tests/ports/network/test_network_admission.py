"""Which calls may begin: nobody takes all places, and who says nothing gives way."""

import asyncio
import contextlib
from collections import Counter
from functools import partial

import pytest

from tests.ports.network.test_network_limits import CALL, STREAM, echo, refusal, serving, wait_until
from tests.support.waiting import HANG_MS, HANG_SECONDS
from tidelog.ports import ListenerLimits, Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.ports.real.network.admission import SHARE_MIN, SILENT_NS_MIN, CallAdmission
from tidelog.wire.errors import ErrorCode, TidelogError


class Table:
    """An admission with a clock that the test turns."""

    def __init__(self, calls_max: int) -> None:
        self.now_ns = 0
        self.refused: Counter[str] = Counter()
        self.admission = CallAdmission(
            "client",
            ListenerLimits(calls_max=calls_max),
            lambda: self.now_ns,
            lambda name: self.refused.update([name]),
        )

    def fill(self, connection: str) -> int:
        """As many calls as the connection gets."""
        before = self.admission.calls
        with contextlib.suppress(TidelogError):
            while True:
                self.admission.begin(connection, "m")
        return self.admission.calls - before


def test_a_connection_gets_what_it_leaves_to_all_others_and_the_next_ones_get_less() -> None:
    table = Table(1_024)
    assert [table.fill(name) for name in "abcde"] == [512, 256, 128, 64, 32]
    assert table.fill("late") == SHARE_MIN
    table.admission.end("a")
    assert table.fill("a") == 0
    assert table.refused["calls_max"] == 7


def test_greedy_connections_leave_places_to_one_with_few_calls() -> None:
    table = Table(16_384)
    for number in range(20):
        with contextlib.suppress(TidelogError):
            for _ in range(1_024):
                table.admission.begin(f"greedy {number}", "m")
    table.admission.begin("healthy", "m")


def test_what_ends_makes_room_and_leaves_nothing_behind() -> None:
    table = Table(8)
    for _ in range(8):
        table.admission.begin("a", "m")
    with pytest.raises(TidelogError, match="calls_max = 8 is used up"):
        table.admission.begin("b", "m")
    for _ in range(8):
        table.admission.end("a")
    assert (table.admission.calls, table.admission._calls) == (0, {})


def test_the_call_that_is_silent_for_longest_gives_way_but_not_one_that_has_only_begun() -> None:
    table = Table(2)
    ended: list[int] = []
    silent = []
    for number in range(2):
        table.admission.begin("a", "m")
        silent.append(table.admission.wait_message(partial(ended.append, number)))
    table.now_ns = SILENT_NS_MIN - 1
    with pytest.raises(TidelogError):
        table.admission.begin("b", "m")
    table.now_ns = SILENT_NS_MIN
    table.admission.begin("b", "m")
    assert ended == [0]
    assert [each.is_displaced for each in silent] == [True, False]
    table.admission.came(silent[1])
    with pytest.raises(TidelogError):
        table.admission.begin("b", "m")


@pytest.mark.slow
def test_streams_that_say_nothing_give_way_to_calls_and_are_told_why() -> None:
    async def take(_: RequestContext, stream: Stream) -> None:
        while await stream.receive() is not None:
            pass

    async def run() -> None:
        methods: dict[str, Method] = {CALL: UnaryMethod(echo), STREAM: StreamMethod(take)}
        async with serving(methods, calls_max=8) as (server, caller):
            network = caller()
            silent = [network.stream(server.address, STREAM) for _ in range(8)]
            answers = [asyncio.create_task(each.receive()) for each in silent]
            await wait_until(lambda: server.admission.calls == 8)
            error = await refusal(caller(), server.address)
            assert error.code is ErrorCode.RESOURCE_EXHAUSTED
            assert "listeners.client.limits.calls_max = 8 is used up" in error.happened
            healthy = caller()

            async def is_answered() -> bool:
                try:
                    await healthy.call(server.address, CALL, b"", timeout_ms=HANG_MS)
                except TidelogError:
                    return False
                return True

            async with asyncio.timeout(HANG_SECONDS):
                while not await is_answered():
                    pass
                await wait_until(lambda: any(task.done() for task in answers))
            assert server.usage().refused["calls_max"] >= 2
            told = [task.exception() for task in answers if task.done()]
            assert all("no message of this call has come" in str(each) for each in told)
            for task in answers:
                task.cancel()

    asyncio.run(run())
