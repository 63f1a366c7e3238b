"""What the SDK warns of while a command waits, on stderr: a silent command looks like a hang.

Owns the one handler of the client's log. What failed is told by the command itself.
"""

import logging
from typing import Final

from tidelog.cli.show.errors import print_stderr

_LOG: Final = "tidelog.client"


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        print_stderr(record.getMessage())


def show_warnings() -> None:
    """From now on; for a process's own command only."""
    log = logging.getLogger(_LOG)
    if not any(isinstance(each, _Stderr) for each in log.handlers):
        log.addHandler(_Stderr(logging.WARNING))
