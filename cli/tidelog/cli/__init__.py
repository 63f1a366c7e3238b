"""The `tidelog` command. What it imports first decides what Ctrl-C does while the rest is loaded.

A command takes a moment to start, in which an exception of Python's would end in a traceback.
It must never touch the signals of another program that only imports it.
"""

import os
import signal
import sys
from types import FrameType


def _is_the_command() -> bool:
    """Whether this process was started as `tidelog` or as `python -m tidelog`."""
    path = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    folder, name = os.path.split(path)
    return name in ("tidelog", "tidelog-script.py") or (
        name == "__main__.py" and os.path.basename(folder) == "tidelog"
    )


def end_early(number: int, frame: FrameType | None) -> None:
    """Nothing has begun: there is nothing to say, and nothing to put in order."""
    del number, frame
    os._exit(130)


if _is_the_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_early)
