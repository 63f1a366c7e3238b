"""Keeps the log node running, as a supervisor and an operator would, and harms nothing.

A dead node is started again; one whose clients are told of a failed disk is restarted, with its
machine if a flush failed; damage at rest is undone where the node has found it. Nothing else is
ever repaired by hand: marks tell what was flushed, so a log that refuses to start although no bit
has rotted is a violation.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.log.names import SEGMENT_SUFFIX, UNFINISHED_SUFFIX
from tidelog.chaos.sim.world.keeper import Keeper
from tidelog.chaos.sim.world.process import Machine, Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import ErrorCode, TidelogError


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
        self._saw_rot = (False, False)
        """Whether the last life of the node could meet a rotten bit, and whether this one can: it
        may be cut off, for another reason, before the operator comes to look for it."""
        self._rotten_path = ""
        """The file in which a bit has rotted in this run; empty: none has."""
        super().__init__(world, machine, name, live)

    def note_rot(self, path: str) -> None:
        """A bit of this file has rotted, once in a run."""
        self._rotten_path = path
        self._saw_rot = (self._saw_rot[0], True)

    def report(self, error: TidelogError) -> None:
        """Rot in what is derived from batches may be told, but only as that file's."""
        super().report(error)
        # What rots before it is finished has got its name by the time it is met.
        rotten = self._rotten_path.removesuffix(UNFINISHED_SUFFIX)
        is_derived = bool(rotten) and not rotten.endswith(SEGMENT_SUFFIX)
        is_corrupt = error.code is ErrorCode.STORAGE_CORRUPT
        if is_corrupt and is_derived and rotten not in str(error):
            self.violations.append(f"false_corruption: {self._rotten_path} has rotted: {error}")

    def _start(self) -> Process:
        self._on_dead()
        is_rotten = any(medium.is_rotten for medium in self._machine.media.values())
        self._saw_rot = (self._saw_rot[1], is_rotten)
        return super()._start()

    def repair(self) -> bool:
        """Undo what is damaged; whether anything was."""
        undone = sum(medium.unflip() for medium in self._machine.media.values())
        if undone:
            self._world.trace.note(self._machine.name, "operator:restore")
        return bool(undone)

    def _restore(self, error: TidelogError) -> None:
        if self.repair():
            self.restores += 1
        elif not any(self._saw_rot):
            self.violations.append(f"false_corruption: every byte is whole: {error}")
