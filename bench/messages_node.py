"""A node that tells how long its loop's turns are: `python -m bench.messages_node ARGUMENTS`.

Owns the selector that measures them, under the command itself. It must never change what the node
does. SIGUSR1 is answered by a line: the longest turn since the last one, in nanoseconds, by the
time that its thread was computing: what neighbours take of the machine is not its doing.
"""

import asyncio
import selectors
import signal
import sys
import time
from types import FrameType
from typing import Final

from tidelog.cli.main import main

TURN: Final = "longest turn "


class Turns(selectors.DefaultSelector):
    """From the moment at which the loop has something to do until it waits again."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_ns = 0
        self._begun_ns = time.thread_time_ns()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as ever."""
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - self._begun_ns)
        try:
            return super().select(timeout)
        finally:
            self._begun_ns = time.thread_time_ns()

    def take(self) -> int:
        """The longest since the last question."""
        longest_ns, self.longest_ns = self.longest_ns, 0
        return longest_ns


TURNS: Final = Turns()


class Policy(asyncio.DefaultEventLoopPolicy):
    """Every loop of the process is measured; a node has one."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Over the selector above."""
        return asyncio.SelectorEventLoop(TURNS)


def answer(number: int, frame: FrameType | None) -> None:
    """Tell the longest turn."""
    del number, frame
    print(f"{TURN}{TURNS.take()}", flush=True)


if __name__ == "__main__":
    asyncio.set_event_loop_policy(Policy())
    signal.signal(signal.SIGUSR1, answer)
    sys.exit(main(sys.argv[1:]))
