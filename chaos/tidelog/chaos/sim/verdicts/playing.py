"""Plays one seed and judges it: what every suite does around its own run.

Owns what becomes of a run that does not end as it should: a world that hangs or never rests, and
an assertion that fails, are violations like any other, and the run is judged all the same.
"""

from typing import Protocol

from tidelog.chaos.sim.base.loop import Deadlock, Runaway
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.verdicts.result import RunResult, Watch
from tidelog.chaos.sim.world.world import World


class WorldRun(Protocol):
    """A seed played by processes in a simulated world."""

    @property
    def violations(self) -> list[str]:
        """What was found so far; more is added here."""
        ...

    @property
    def world(self) -> World:
        """Where it is played."""
        ...

    async def play(self) -> None:
        """Lets everything happen."""
        ...

    def judge(self) -> RunResult:
        """Says what came of it, whether it was played to its end or not."""
        ...


class CoreRun(Protocol):
    """A seed played by pure cores that are called in turn."""

    @property
    def violations(self) -> list[str]:
        """What was found so far; more is added here."""
        ...

    @property
    def trace(self) -> Trace:
        """What happened."""
        ...

    def play(self) -> None:
        """Lets everything happen."""
        ...

    def judge(self) -> RunResult:
        """Says what came of it, whether it was played to its end or not."""
        ...


def play(run: WorldRun, watch: Watch | None) -> RunResult:
    """Plays a run in its world, which is closed afterwards."""
    if watch is not None:
        watch(run.world.trace)
    try:
        run.world.run(run.play())
    except (Deadlock, Runaway) as error:
        run.violations.append(f"{type(error).__name__.lower()}: {error}")
    except AssertionError as error:
        run.violations.append(f"bug: {_with_place(error)}")
    finally:
        result = run.judge()
        run.world.close()
    return result


def play_cores(run: CoreRun, watch: Watch | None) -> RunResult:
    """Plays a run of cores."""
    if watch is not None:
        watch(run.trace)
    try:
        run.play()
    except AssertionError as error:
        run.violations.append(f"bug: {_with_place(error)}")
    return run.judge()


def _with_place(error: BaseException) -> str:
    """The error and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
    return f"{error!r} at {place}"
