"""What both drivers of a group member need beside its core. Holds no state."""

import logging

from tidelog.client.engine.group.messages import Note, Severity
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")


def note(effect: Note) -> None:
    """A line of the core's in the log."""
    level = logging.WARNING if effect.severity is Severity.WARNING else logging.INFO
    _log.log(level, "%s", effect.text)


def bug_of(group: str, error: Exception) -> TidelogError:
    """What the next poll raises after a bug."""
    return TidelogError(
        ErrorCode.UNKNOWN,
        tried=f"be a member of group {group!r}",
        happened=f"{type(error).__name__}: {error}",
        hint="this is a bug of the SDK: report it with the log",
    )
