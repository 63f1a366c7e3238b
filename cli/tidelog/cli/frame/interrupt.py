"""Ctrl-C ends a command at once, whatever it is doing.

Owns the handler, and the bounds on a command that has something to put in order: a person at a
terminal waits for nothing, a supervisor that says SIGTERM gives its programs seconds. A second
signal ends the command at once. An exception would not do: raised inside an import or a destructor
it is lost, and an orderly close of a client may wait for a broker that is not there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from tidelog.cli import end_early
from tidelog.cli.show.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from tidelog.cli.show.terminal import is_terminal

ORDER_SECONDS_MAX: Final = {signal.SIGINT: 0.17, signal.SIGTERM: 8.0}
"""What a command may take that has something to put in order: a container's runtime waits 10 s
behind SIGTERM before it kills, and nobody looks at a terminal meanwhile."""

_last_words: list[Callable[[], None]] = []
_in_order: list[Callable[[], None]] = []
_told: list[int] = []
"""The signals that came."""


def install() -> None:
    """From now on Ctrl-C ends this process with 130; for the process's own command only."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, end_early):
        signal.signal(signal.SIGINT, _end)


def on_interrupt(last_words: Callable[[], None]) -> None:
    """What a command says before Ctrl-C or SIGTERM ends it; it must not wait."""
    _last_words.append(last_words)
    _hear_sigterm()


def stop_in_order(stop: Callable[[], None]) -> None:
    """The first Ctrl-C, or SIGTERM, calls it instead, and gives the command a moment to end."""
    _in_order.append(stop)
    _hear_sigterm()


def _hear_sigterm() -> None:
    # Commands that run inside another program's threads leave its signals alone.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def told() -> int:
    """The signal that a command was told to end with."""
    return _told[-1] if _told else signal.SIGINT


def exit_code() -> int:
    """Of a command that was told to end."""
    return EXIT_INTERRUPTED if told() == signal.SIGINT else EXIT_TERMINATED


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    _told.append(number)
    if is_terminal(sys.stderr):
        os.write(sys.stderr.fileno(), b"\n")
    if _in_order:
        stop = _in_order.pop()
        _in_order.clear()
        bound = ORDER_SECONDS_MAX[signal.Signals(number)]
        watch = threading.Timer(bound, os._exit, (exit_code(),))
        watch.daemon = True
        watch.start()
        try:
            stop()
        except Exception:  # noqa: BLE001 - whatever it is, there is nothing left to put in order
            os._exit(exit_code())
        return
    try:
        for last_words in _last_words:
            last_words()
    finally:
        os._exit(exit_code())
