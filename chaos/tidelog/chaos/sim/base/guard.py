"""Refuses the real world while a simulated loop runs in this thread.

A sleep, a socket, a thread or a child process inside a simulation would make a seed unrepeatable;
here it is a SimulationBreach at the place that tried. The interpreter's audit events are used, so
that C code is caught as well; sleeps and threads have none in every release, so those two functions
are wrapped. Outside a running simulation nothing changes.
"""

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SimulationBreach(BaseException):
    """Code under simulation reached for the real world.

    Not an Exception: no handler on the way may take it for a failure of the simulated world.
    """


_REFUSED: Final = frozenset(
    {
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    }
)

_running = threading.local()
breaches: Final[list[str]] = []
"""What was refused since the running simulation began."""
_is_installed = False


def _on_audit_event(event: str, arguments: tuple[object, ...]) -> None:
    del arguments
    if event in _REFUSED and _is_running():
        raise breach(event)


def _is_running() -> bool:
    return getattr(_running, "depth", 0) > 0


def _refusing(name: str, function: Callable[_P, _T]) -> Callable[_P, _T]:
    @functools.wraps(function)
    def refuse(*arguments: _P.args, **keywords: _P.kwargs) -> _T:
        if _is_running():
            raise breach(name)
        return function(*arguments, **keywords)

    return refuse


def breach(what: str) -> SimulationBreach:
    """Remember it, because the task that gets it may hide it; the loop raises it again."""
    text = f"{what} was called inside a simulation; use a port"
    breaches.append(text)
    return SimulationBreach(text)


@contextmanager
def real_world_refused() -> Iterator[None]:
    """While inside: this thread sleeps, connects and starts threads only in simulation."""
    global _is_installed
    if not _is_installed:
        sys.addaudithook(_on_audit_event)
        time.sleep = _refusing("time.sleep", time.sleep)
        threading.Thread.start = _refusing(  # type: ignore[method-assign]
            "Thread.start", threading.Thread.start
        )
        _is_installed = True
    _running.depth = getattr(_running, "depth", 0) + 1
    breaches.clear()
    try:
        yield
    finally:
        _running.depth -= 1
        if breaches:
            raise SimulationBreach(breaches[0])
