"""What both drivers of a group member need beside its core. Holds no state."""

import logging

from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.messages import Note, Severity
from tidelog.client.reading.group_side import Standing
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


def standing_of(core: GroupCore) -> Standing:
    """What the user's side is told after each step of the core."""
    member = core.membership
    return Standing(member.lease_until_ns, member.member_epoch, member.is_idle)
