"""Ctrl-C ends a command at once, whatever it is doing.

Owns the handler. An exception would not do: raised inside an import or a destructor it is lost, and
an orderly close of a client may wait for a broker that is not there.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from tidelog.cli.errors import EXIT_INTERRUPTED
from tidelog.cli.terminal import is_terminal

_last_words: list[Callable[[], None]] = []


def install() -> None:
    """From now on Ctrl-C ends this process with 130; for the process's own command only."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def on_interrupt(last_words: Callable[[], None]) -> None:
    """What a command says before it ends; it must not wait."""
    _last_words.append(last_words)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    try:
        if is_terminal(sys.stderr):
            os.write(sys.stderr.fileno(), b"\n")
        for last_words in _last_words:
            last_words()
    finally:
        os._exit(EXIT_INTERRUPTED)
