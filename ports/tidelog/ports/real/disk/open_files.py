"""How many files this process may have open, and what share of them a data directory keeps.

Owns the system's limit and its raising, which is for programs that run nodes, at their start: an
import or the opening of a directory never raises it. It must never lower it.
"""

import contextlib
import resource
import sys
from typing import Final

TABLE_MAX: Final = 4_096
"""Descriptors that one directory keeps where there are plenty."""
TABLE_MIN: Final = 16
UNLIMITED: Final = sys.maxsize
RAISED_MIN: Final = 10_240
"""macOS calls a process's hard limit infinite and refuses that; this much it admits to each."""
_DIRECTORIES_MIN: Final = 2
"""Of most nodes: data and quorum."""


class Limit:
    """The limit of this process, as the system keeps it."""

    def read(self) -> tuple[int, int]:
        """What is in force, and how far it may be raised."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        infinite = resource.RLIM_INFINITY
        return UNLIMITED if soft == infinite else soft, UNLIMITED if hard == infinite else hard

    def raise_to(self, wanted: int) -> None:
        """OSError or ValueError: the system does not admit it."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        soft = resource.RLIM_INFINITY if wanted == UNLIMITED else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


LIMIT: Final = Limit()


def raise_limit(limit: Limit = LIMIT) -> int:
    """As far as the system admits; gives what is in force then.

    What a shell gives (256, 1,024) is for programs that cannot handle more; a node can.
    """
    hard = limit.read()[1]
    for wanted in (hard, min(hard, RAISED_MIN)):
        if limit.read()[0] < wanted:
            # What is not admitted leaves the limit as it is: a node serves with less as well.
            with contextlib.suppress(OSError, ValueError):
                limit.raise_to(wanted)
    return limit.read()[0]


def table_size(directories: int = _DIRECTORIES_MIN, limit: Limit = LIMIT) -> int:
    """What each of the directories keeps open.

    Half of the limit is for all of them. The rest is for connections, and for what comes on top
    of a table: files with unflushed writes, and those of a flush round with their directories.
    """
    assert directories > 0, "somebody opens a directory"
    share = limit.read()[0] // (2 * max(directories, _DIRECTORIES_MIN))
    return max(TABLE_MIN, min(TABLE_MAX, share))
