"""Keeps a node running, as a supervisor and an operator would.

A dead node is started again. A node whose clients are told of a failed disk is restarted, with its
machine if a flush failed. A log that refuses to start because of damage is restored: damage at rest
is undone; else what no flush had covered is cut off, once after each crash of the machine. A
refusal without either is a violation, because nothing was damaged; so is a failed disk that no
fault has made fail in this life of the node or the one before.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.world.process import Machine, Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import ErrorCode, TidelogError

_POLL_NS: Final = 50_000_000
_RESTART_NS: Final = (1_000_000, 600_000_000)
_TROUBLE: Final = (ErrorCode.STORAGE_FAILED, ErrorCode.STORAGE_CORRUPT)
_FAILING: Final = (
    FaultKind.READ_ERROR,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.READ_ONLY,
)
"""Kinds that make a disk fail. A full disk is none of them: it is full, and then it is not."""
_NAMED: Final = ("simulated fault: ", "an earlier flush failed")
"""What a simulated disk says where a fault is the cause."""


class Keeper:
    """Of one process on one machine."""

    def __init__(
        self,
        world: World,
        machine: Machine,
        name: str,
        live: Callable[[SimulatedPorts], Coroutine[Any, Any, None]],
    ) -> None:
        self._world = world
        self._random = world.seeds.purpose("keeper")
        self._machine = machine
        self._name = name
        self._live = live
        self._trouble: TidelogError | None = None
        self._crashes_seen = 0
        self.restores = 0
        """How often damage was undone or an uncertain tail was cut by hand."""
        self.violations: list[str] = []
        self._failures_known = (0, 0)
        """Disk faults felt before the last life of the node began, and before this one."""
        self.process = self._start()

    def report(self, error: TidelogError) -> None:
        """A client was told this."""
        self._check_cause(error)
        is_worse = self._trouble is None or self._trouble.code is not ErrorCode.STORAGE_CORRUPT
        if error.code in _TROUBLE and is_worse:
            self._trouble = error

    async def run(self) -> None:
        """Until cancelled, or until a violation makes going on pointless."""
        while not self.violations:
            await sleep_ns(self._world.loop, _POLL_NS)
            if self.process.is_dead or self._trouble is not None:
                await sleep_ns(self._world.loop, self._random.between(*_RESTART_NS))
                self.restart()

    def restart(self, *, is_undone: bool = False) -> None:
        """Kill what is left, repair what an operator would, start again.

        `is_undone`: the damage that it may have died of was undone since.
        """
        error = self._trouble or self._exit_error()
        self._trouble = None
        self.process.kill()
        if any(medium.is_failed for medium in self._machine.media.values()):
            self._machine.crash()
        if error is not None:
            self._check_cause(error)
        if error is not None and error.code is ErrorCode.STORAGE_CORRUPT and not is_undone:
            self._restore(error)
        elif error is not None and error.code is ErrorCode.STORAGE_NOT_FORMATTED:
            # What an interrupted formatting has left rotted: it is somebody's data by its looks.
            self._undo_damage()
        self.process = self._start()

    def _check_cause(self, error: TidelogError) -> None:
        """A disk does not fail by itself. What names its fault may come late, lives after it."""
        if error.code is not ErrorCode.STORAGE_FAILED or self.violations:
            return
        if any(text in error.happened for text in _NAMED):
            return
        if self._failures() == self._failures_known[0]:
            self.violations.append(f"false_failure: no fault made the disk fail: {error}")

    def _failures(self) -> int:
        return sum(self._world.faults.felt(kind) for kind in _FAILING)

    def _start(self) -> Process:
        self._failures_known = (self._failures_known[1], self._failures())
        return self._machine.start(self._name, self._live)

    def _exit_error(self) -> TidelogError | None:
        error = self.process.exit_error
        if error is None:
            return None
        if not isinstance(error, TidelogError):
            self.violations.append(f"bug: the node ended with {error!r}")
            return None
        return error

    def _restore(self, error: TidelogError) -> None:
        self.restores += 1
        if self._undo_damage():
            return
        is_new_crash = self._crashes_seen != self._machine.crashes
        self._crashes_seen = self._machine.crashes
        cut = sum(
            inode.cut_uncertain()
            for medium in self._machine.media.values()
            for _, inode in medium.files()
        )
        self._world.trace.note(self._machine.name, "operator:cut", str(cut))
        if not cut or not is_new_crash:
            self.violations.append(f"false_corruption: every byte is flushed and whole: {error}")

    def _undo_damage(self) -> bool:
        for medium in self._machine.media.values():
            if medium.unflip():
                self._world.trace.note(medium.name, "operator:restore")
                return True
        return False
