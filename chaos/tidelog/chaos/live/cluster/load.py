"""The producers of a live run: a process each, and how far they are together.

Owns which of them there are and what they tell together.
"""

import time
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster.journal import Progress
from tidelog.chaos.live.cluster.under_test import ClusterUnderTest
from tidelog.chaos.live.processes.client import STOP_SECONDS_MAX, ClientProcess

WRITERS: Final = 4


class ClusterLoad:
    """All of them; `rate` is theirs together, in records a second."""

    def __init__(
        self, cluster: ClusterUnderTest, directory: Path, *, rate: float, writers: int = WRITERS
    ) -> None:
        self._commands = {
            f"w{number}": cluster.writer(
                f"w{number}", directory / f"w{number}.journal", rate / writers
            )
            for number in range(writers)
        }
        self._directory = directory
        self._writers: dict[str, ClientProcess[Progress]] = {}

    def begin(self) -> None:
        """All of them start."""
        for name, command in self._commands.items():
            journal = self._directory / f"{name}.journal"
            self._writers[name] = ClientProcess(command, journal, nothing=Progress())

    def check_running(self) -> None:
        """All of them are there."""
        for writer in self._writers.values():
            writer.check_running()

    @property
    def acknowledged(self) -> int:
        """So far."""
        return sum(each.progress.acknowledged for each in self._writers.values())

    @property
    def held_back(self) -> int:
        """Records that were due and not sent."""
        return sum(each.progress.held_back for each in self._writers.values())

    @property
    def unanswered(self) -> int:
        """Under way now."""
        return sum(each.progress.unanswered for each in self._writers.values())

    @property
    def oldest_ns(self) -> int:
        """Each producer got an acknowledgement of each partition for what it sent since then."""
        return min((each.progress.oldest_ns for each in self._writers.values()), default=0)

    def end(self) -> dict[str, Path]:
        """No more is sent, all is answered; the journals by producer."""
        for writer in self._writers.values():
            writer.ask_end()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for writer in self._writers.values():
            writer.wait_end(deadline)
        return {name: writer.journal for name, writer in self._writers.items()}

    def kill(self) -> None:
        """Of a run that has failed."""
        for writer in self._writers.values():
            writer.kill()
