"""Which clients this process made, and whether a fork lies between them and now.

Owns the fork rule of the SDK: gRPC does not survive a fork, so a client that was inherited refuses
every use, and so does a new one if an ancestor had started gRPC. It must never import gRPC: a
process that only imports the SDK, and its children, have nothing to fear. Owns the process's end
too: no thread that was started for a call outlives the interpreter.
"""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any, Final

from tidelog.client.errors import ForkedClientError, with_article
from tidelog.wire.errors import ErrorCode, TidelogError

_THREAD_NAMES: Final = ("grpc_global_tim", "event_engine", "lifeguard")
"""How gRPC's own threads are called; Linux cuts names at 15 characters."""
_THREADS_END_S: Final = 5.0
"""Once every client is closed its threads end at once, unless a callback of the user holds one."""


class _Process:
    """What this process knows of itself and its ancestors."""

    def __init__(self) -> None:
        self.has_started_grpc = False
        self.is_forked_after_grpc = False
        self.clients: dict[int, weakref.ref[Client]] = {}
        self.held: dict[int, Any] = {}
        """gRPC objects in use: a forked child must never free them."""
        self.threads: dict[threading.Thread, None] = {}
        """Started for calls, by us or by gRPC; ended ones leave with the next that comes."""


# gRPC would start its threads again in a forked child, unless told before it is imported: some of
# them crash there (one fork in eight beside an embedded node), and no client may use them anyway.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_process = _Process()


def hold(grpc_object: Any) -> None:
    """Remember a gRPC object until `let_go`; from now on forks matter."""
    _process.has_started_grpc = True
    _process.held[id(grpc_object)] = grpc_object


def let_go(grpc_object: Any) -> None:
    """The object is closed."""
    _process.held.pop(id(grpc_object), None)


@contextlib.contextmanager
def watching_threads() -> Generator[None]:
    """Remember the daemon threads that are started meanwhile: the process's end waits for them.

    One that runs on while the interpreter ends stops for good where it stands, also inside a lock
    of a call. The interpreter frees that call, whose destructor takes the lock, and waits forever.
    """
    before = set(threading.enumerate())
    try:
        yield
    finally:
        for thread in list(_process.threads):
            if not thread.is_alive():
                _process.threads.pop(thread, None)
        for thread in threading.enumerate():
            if thread.daemon and thread not in before:
                _process.threads[thread] = None


class Client:
    """What every client has: a state that one read tells, and a place in the process's list."""

    def __init__(self) -> None:
        # Of the instance, not the class: send() reads it for each record.
        self._refusal: Callable[[str], TidelogError] | None = None
        """Makes the error for any further use; None: usable."""
        name = type(self).__name__
        if _process.is_forked_after_grpc:
            raise ForkedClientError(
                tried=f"make {with_article(name)}",
                happened="this process was forked from one that had started gRPC, "
                "which does not work on this side of a fork",
            )
        key = id(self)
        _process.clients[key] = weakref.ref(self, lambda _: _process.clients.pop(key, None))

    @property
    def is_closed(self) -> bool:
        """Whether it refuses every use."""
        return self._refusal is not None

    def _check_usable(self, tried: str) -> None:
        if self._refusal is not None:
            raise self._refusal(tried)

    def _become_closed(self) -> None:
        self._refusal = _closed

    def become_forked(self) -> None:
        """Called in a forked child before anything else runs there."""
        self._refusal = _forked

    @property
    def _is_forked(self) -> bool:
        return self._refusal is _forked

    def close_at_exit(self) -> None:
        """What is still to be done when the interpreter ends without a close."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise ForkedClientError(
            tried=f"pickle a {type(self).__name__}",
            happened="a client belongs to the process that made it",
            hint="make a client in the process that uses it",
        )


def _closed(tried: str) -> TidelogError:
    return TidelogError(ErrorCode.CLOSED, tried=tried, happened="the client was closed before")


def _forked(tried: str) -> TidelogError:
    return ForkedClientError(
        tried=tried, happened="the client was made before this process was forked from its parent"
    )


def _before_fork() -> None:
    # Somebody else's channels count as well; asking costs nothing while gRPC is not imported.
    if not _process.has_started_grpc and "grpc" in sys.modules:
        _process.has_started_grpc = _has_grpc_threads()


def _has_grpc_threads() -> bool:
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return False
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/comm", encoding="ascii", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue
        if name.startswith(_THREAD_NAMES):
            return True
    return False


def _after_fork_in_child() -> None:
    if _process.has_started_grpc:
        _process.is_forked_after_grpc = True
    _process.threads.clear()
    for reference in list(_process.clients.values()):
        client = reference()
        if client is not None:
            client.become_forked()
    # Freeing a channel talks to threads that do not exist here: one more reference each, never
    # given back, keeps the interpreter's end from doing so.
    for grpc_object in _process.held.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(grpc_object))


def _at_exit() -> None:
    for reference in list(_process.clients.values()):
        client = reference()
        if client is not None and not client.is_closed:
            client.close_at_exit()
    deadline = time.monotonic() + _THREADS_END_S
    for thread in list(_process.threads):
        if thread is not threading.current_thread():
            # Who was not started by Python, but ran some, is a dummy that refuses to be joined.
            with contextlib.suppress(AssertionError, RuntimeError):
                thread.join(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
