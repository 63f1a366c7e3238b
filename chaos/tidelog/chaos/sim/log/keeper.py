"""Keeps the log node running, as a supervisor and an operator would, and harms nothing.

A dead node is started again; one whose clients are told of a failed disk is restarted, with its
machine if a flush failed; damage at rest is undone where the node has found it. Nothing else is
ever repaired by hand: marks tell what was flushed, so a log that refuses to start although no bit
has rotted is a violation.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.chaos.sim.process import Machine, Process, SimulatedPorts
from tidelog.chaos.sim.suites.keeper import Keeper
from tidelog.chaos.sim.world import World
from tidelog.wire.errors import TidelogError


class LogKeeper(Keeper):
    """Of the one node; `on_dead` is called before another is started."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        name: str,
        live: Callable[[SimulatedPorts], Coroutine[Any, Any, None]],
        on_dead: Callable[[], None],
    ) -> None:
        self._on_dead = on_dead
        self._was_damaged = False
        """Trouble may be told once more, by the life before, after the damage was undone."""
        super().__init__(world, machine, name, live)

    def _start(self) -> Process:
        self._on_dead()
        return super()._start()

    def repair(self) -> bool:
        """Undo what is damaged; whether anything was."""
        undone = sum(medium.unflip() for medium in self._machine.media.values())
        self._was_damaged = bool(undone)
        if undone:
            self._world.trace.note(self._machine.name, "operator:restore")
        return self._was_damaged

    def _restore(self, error: TidelogError) -> None:
        was_damaged = self._was_damaged
        if self.repair():
            self.restores += 1
        elif not was_damaged:
            self.violations.append(f"false_corruption: every byte is whole: {error}")
