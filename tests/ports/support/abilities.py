"""What not every world can do."""

import enum


class Ability(enum.Enum):
    """Asked for by tests, declared by worlds."""

    CRASH_MACHINE = "the machine dies: the medium keeps what was flushed and any part of the rest"
    KILL_PROCESS = "the process dies: the page cache stays"
    FILL_DISK = "space runs out"
    LOCK_FILES = "another program makes a file immutable"
