"""What the command line says when it cannot do what was asked, and the exit codes that go with it.

Owns the three lines of an error (what, why, `hint:`) and which code means what. It must never
import a room of Tidelog: an error in the arguments is told before anything else is loaded.
"""

import contextlib
import sys
from typing import Final, NoReturn

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""The command was right; the cluster, the disk or the records did not allow it."""
EXIT_BAD_INPUT: Final = 2
"""What was typed cannot work; nothing was done."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C."""
EXIT_BROKEN_PIPE: Final = 141
"""Whoever read the output went away, as after `| head -1`."""

EXIT_TERMINATED: Final = 143
"""SIGTERM."""

EXIT_MEANINGS: Final = {
    EXIT_OK: "done",
    EXIT_FAILED: "failed: the command was right, the cluster, a disk or a record did not allow it",
    EXIT_BAD_INPUT: "bad input: what was typed cannot work, and nothing was done",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
    EXIT_BROKEN_PIPE: "whoever read the output went away, as after `| head -1`",
    EXIT_TERMINATED: "ended by SIGTERM",
}

BAD_INPUT_CODES: Final = frozenset(
    {
        "GROUP_NOT_FOUND",
        "INVALID_ARGUMENT",
        "INVALID_CONFIGURATION",
        "INVALID_PARTITION_COUNT",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_TIMESTAMP",
        "INVALID_TOPIC_NAME",
        "NOT_IMPLEMENTED",
        "OFFSET_OUT_OF_RANGE",
        "STORAGE_NOT_FORMATTED",
        "TRANSACTION_NOT_FOUND",
        "UNKNOWN_BROKER",
        "UNKNOWN_PARTITION",
        "UNKNOWN_TOPIC",
        "UNKNOWN_VOTER",
        "UNSUPPORTED_CODEC",
    }
)
"""Codes of a TidelogError that typing the same again cannot mend."""


class CommandError(Exception):
    """A command ends here: three lines and an exit code."""

    def __init__(self, what: str, why: str, hint: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint
        self.exit_code = exit_code


class BadInput(CommandError):
    """What was typed cannot work."""

    def __init__(self, what: str, why: str, hint: str) -> None:
        super().__init__(what, why, hint, EXIT_BAD_INPUT)


def exit_code_of(code_name: str) -> int:
    """The exit code for the name of an ErrorCode."""
    return EXIT_BAD_INPUT if code_name in BAD_INPUT_CODES else EXIT_FAILED


def print_error(what: str, why: str, hint: str) -> None:
    """Exactly three lines on stderr."""
    from tidelog.cli.show.terminal import emphasise

    first = f"{emphasise('error:', sys.stderr)} {_one_line(what)}"
    last = f"{emphasise('hint:', sys.stderr)} {_one_line(hint)}"
    print_stderr(f"{first}\n{_one_line(why)}\n{last}")


def print_stderr(text: str) -> None:
    """A line for the person at the terminal; where stderr is closed nobody wants it."""
    if sys.stderr is None:
        return  # print() would take stdout in its place
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def refuse(what: str, why: str, hint: str) -> NoReturn:
    """Raise BadInput, in an expression's place."""
    raise BadInput(what, why, hint)


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "no reason was given"
