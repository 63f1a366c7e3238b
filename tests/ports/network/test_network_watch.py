"""The watch of a listener's callers goes on, whatever a look meets."""

import asyncio
from collections.abc import Collection

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.ports import ListenerLimits
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.callers import Callers
from tidelog.ports.real.network.memory import ListenerMemory
from tidelog.ports.real.network.watch import CallerWatch

NO_PORT = 1
"""Nothing of this process is connected there."""


class FailingCallers(Callers):
    """The first looks fail."""

    def __init__(self, failures: int) -> None:
        super().__init__(ListenerLimits())
        self.failures = failures
        self.looks = 0

    def keep(self, connections: Collection[str], begun_ns: int) -> None:
        self.looks += 1
        if self.looks <= self.failures:
            raise ValueError("a look that meets what nobody thought of")
        super().keep(connections, begun_ns)


def test_a_look_that_fails_is_logged_once_and_the_next_ones_look_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        limits, callers = ListenerLimits(), FailingCallers(failures=2)
        callers.begin("ipv4:127.0.0.1:1", 0)
        memory = ListenerMemory("client", limits)
        watch = CallerWatch("client", NO_PORT, RealClock(), memory, callers)
        watch.start()
        async with asyncio.timeout(HANG_SECONDS):
            while callers.looks < 3:
                await watch.look()
                await asyncio.sleep(0)
        await watch.stop()

    asyncio.run(run())
    failed = [each for each in caplog.messages if each.startswith("caller_watch_failed")]
    assert failed == ["caller_watch_failed listener=client"]
