"""The client processes of a live run with transactions: started, killed, followed by new lives.

Owns which of them there are and where their journals lie. A seat is a place that somebody always
has: a transactional id, a worker, a reader. Each life of a seat is a process of its own, with a
name and a journal of its own.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.chaos.live.processes.client import STOP_SECONDS_MAX, ClientProcess
from tidelog.chaos.live.transactions.journal import ClientProgress

Command = Callable[[str, Path], Sequence[str]]
"""How a life is started: its name, and its journal."""


class Seat:
    """One place, and the lives that had it."""

    def __init__(self, name: str, directory: Path, command: Command) -> None:
        self.name = name
        self._directory = directory
        self._command = command
        self._lives: dict[str, ClientProcess[ClientProgress]] = {}
        self._zombie: ClientProcess[ClientProgress] | None = None

    def begin(self) -> None:
        """A new life; the former one has ended, or sleeps."""
        name = f"{self.name}-{len(self._lives)}"
        journal = self._directory / f"{name}.client"
        self._lives[name] = ClientProcess(
            self._command(name, journal), journal, nothing=ClientProgress()
        )

    @property
    def present(self) -> ClientProcess[ClientProgress]:
        """The life that has the seat."""
        return next(reversed(self._lives.values()))

    @property
    def done(self) -> int:
        """By all its lives."""
        return sum(each.progress.done for each in self._lives.values())

    @property
    def journals(self) -> dict[str, Path]:
        """By the names of the lives."""
        return {name: each.journal for name, each in self._lives.items()}

    def kill(self) -> None:
        """kill -9, and another life."""
        self.present.kill()
        self.begin()

    def put_to_sleep(self) -> None:
        """SIGSTOP, and another life under the same name to the cluster."""
        self._zombie = self.present
        self._zombie.pause()
        self.begin()

    def wake(self) -> None:
        """The one that slept goes on with what it believes."""
        if self._zombie is not None:
            self._zombie.resume()
            self._zombie = None

    def revive(self) -> None:
        """Another life if the present one has ended by itself."""
        if self.present.has_ended:
            self.begin()

    def end(self) -> None:
        """All lives end in order."""
        self.wake()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for each in self._lives.values():
            if not each.has_ended:
                each.ask_end()
                each.wait_end(deadline)

    def kill_all(self) -> None:
        """Whatever is left."""
        for each in self._lives.values():
            each.resume()
            each.kill()
