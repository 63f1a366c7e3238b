"""Refuses the real world while a simulated loop runs in this thread.

A sleep, a socket, a thread or a child process inside a simulation would make a seed unrepeatable;
here it is a SimulationBreach at the place that tried. The interpreter's audit events are used, so
that C code is caught as well. Outside a running simulation nothing changes.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class SimulationBreach(BaseException):
    """Code under simulation reached for the real world.

    Not an Exception: no handler on the way may take it for a failure of the simulated world.
    """


_REFUSED: Final = frozenset(
    {
        "_thread.start_new_thread",
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "time.sleep",
    }
)

_running = threading.local()
breaches: Final[list[str]] = []
"""What was refused since the running simulation began."""
_is_installed = False


def _on_audit_event(event: str, arguments: tuple[object, ...]) -> None:
    del arguments
    if event in _REFUSED and getattr(_running, "depth", 0) > 0:
        raise breach(event)


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
        _is_installed = True
    _running.depth = getattr(_running, "depth", 0) + 1
    breaches.clear()
    try:
        yield
    finally:
        _running.depth -= 1
        if breaches:
            raise SimulationBreach(breaches[0])
