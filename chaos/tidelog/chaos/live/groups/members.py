"""The members of a live run's group: a process each, started and stopped while records flow.

Owns which of them there are, what they tell together, and where their journals lie.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.chaos.live.groups.journal import MemberProgress
from tidelog.chaos.live.processes.client import STOP_SECONDS_MAX, ClientProcess
from tidelog.chaos.live.processes.server import wait_until
from tidelog.wire.errors import ErrorCode, TidelogError

GROUP: Final = "chaos-group"
SETTLE_SECONDS_MAX: Final = 60.0
DRAIN_SECONDS_MAX: Final = 60.0


class GroupMembers:
    """All that ever were."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.partition_count = partition_count
        self._directory = directory
        self._loaded: dict[str, ClientProcess[MemberProgress]] = {}
        self._running: dict[str, ClientProcess[MemberProgress]] = {}
        self._ended: dict[str, ClientProcess[MemberProgress]] = {}

    def load(self, count: int) -> None:
        """So many more programs are loaded; their members do not exist yet."""
        first = len(self._loaded) + len(self._running) + len(self._ended)
        for name in (f"m{number}" for number in range(first, first + count)):
            journal = self._directory / f"{name}.member"
            self._loaded[name] = ClientProcess(
                self._command(name, journal), journal, nothing=MemberProgress()
            )
        wait_until(self._are_loaded, SETTLE_SECONDS_MAX, tried="load the programs of the members")

    def _are_loaded(self) -> str | None:
        self.check_running()
        missing = sum(not each.progress.is_ready for each in self._loaded.values())
        return f"{missing} are not" if missing else None

    def start(self, count: int) -> None:
        """So many more subscribe at once; their programs are loaded before."""
        self.load(max(0, count - len(self._loaded)))
        for name in list(self._loaded)[:count]:
            self._running[name] = self._loaded.pop(name)
            self._running[name].let_go()

    def _command(self, name: str, journal: Path) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "tidelog.chaos.live.groups.member"),
            *("--name", name, "--bootstrap", self._bootstrap, "--topic", self._topic),
            *("--group", GROUP, "--journal", str(journal)),
        ]

    @property
    def names(self) -> list[str]:
        """Of those that run, the oldest first."""
        return list(self._running)

    @property
    def delivered(self) -> int:
        """Records, by all that ever were."""
        every = (*self._running.values(), *self._ended.values())
        return sum(each.progress.delivered for each in every)

    @property
    def owned(self) -> list[int]:
        """How many partitions each of those that run has."""
        return [each.progress.owned for each in self._running.values()]

    def check_running(self) -> None:
        """All of them are there."""
        for member in (*self._loaded.values(), *self._running.values()):
            member.check_running()

    def wait_settled(self) -> None:
        """Until every partition has an owner, and no member more than one above another."""

        def is_settled() -> str | None:
            self.check_running()
            owned = self.owned
            is_even = max(owned) - min(owned) <= 1
            return None if sum(owned) == self.partition_count and is_even else f"they own {owned}"

        wait_until(is_settled, SETTLE_SECONDS_MAX, tried="share the partitions among the members")

    def wait_delivered(self, acknowledged: int) -> None:
        """Until so many records were delivered; if they do not come, the verdict names them."""

        def is_drained() -> str | None:
            self.check_running()
            missing = acknowledged - self.delivered
            return f"{missing} records were not delivered" if missing > 0 else None

        try:
            wait_until(is_drained, DRAIN_SECONDS_MAX, tried="read what was acknowledged")
        except TidelogError as error:
            if error.code is not ErrorCode.DEADLINE_EXCEEDED:
                raise
            print(f"  the group stopped reading: {error.happened}")

    def stop(self, names: Sequence[str]) -> None:
        """These close their consumers, all at once: they commit and leave."""
        leaving = {name: self._running.pop(name) for name in names}
        self._ended.update(leaving)
        for member in leaving.values():
            member.ask_end()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for member in leaving.values():
            member.wait_end(deadline)

    def end(self) -> dict[str, Path]:
        """All of them close; the journals of all that ever were."""
        self.stop(self.names)
        return {name: member.journal for name, member in self._ended.items()}

    def kill(self) -> None:
        """Whatever is left, as it is after a run that has failed."""
        for member in (*self._loaded.values(), *self._running.values()):
            member.kill()
