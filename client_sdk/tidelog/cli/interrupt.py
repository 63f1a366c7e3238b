"""Ctrl-C ends a command at once, whatever it is doing.

Owns the handler, and the bound on a command that has something to put in order. An exception would
not do: raised inside an import or a destructor it is lost, and an orderly close of a client may
wait for a broker that is not there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from tidelog.cli.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from tidelog.cli.terminal import is_terminal

ORDER_SECONDS_MAX: Final = 0.17
"""What a command may take that has something to put in order."""

_last_words: list[Callable[[], None]] = []
_in_order: list[Callable[[], None]] = []
_told: list[int] = []
"""The exit codes of the signals that came."""


def install() -> None:
    """From now on Ctrl-C ends this process with 130; for the process's own command only."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def on_interrupt(last_words: Callable[[], None]) -> None:
    """What a command says before it ends; it must not wait."""
    _last_words.append(last_words)


def stop_in_order(stop: Callable[[], None]) -> None:
    """The first Ctrl-C, or SIGTERM, calls it instead, and gives the command a moment to end."""
    _in_order.append(stop)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def exit_code() -> int:
    """Of a command that was told to end."""
    return _told[-1] if _told else EXIT_INTERRUPTED


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    _told.append(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED)
    if is_terminal(sys.stderr):
        os.write(sys.stderr.fileno(), b"\n")
    if _in_order:
        stop = _in_order.pop()
        _in_order.clear()
        watch = threading.Timer(ORDER_SECONDS_MAX, os._exit, (exit_code(),))
        watch.daemon = True
        watch.start()
        stop()
        return
    try:
        for last_words in _last_words:
            last_words()
    finally:
        os._exit(exit_code())
