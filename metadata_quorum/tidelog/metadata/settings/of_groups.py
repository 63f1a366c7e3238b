"""Settings of consumer groups: what must fit together, and how a coordinator reads them. Pure.

Owns the rule that a member can live by what is set: it is told to report more often than it may be
silent. Which settings there are is `settings.catalogue`'s.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.settings import catalogue
from tidelog.wire.errors import ErrorCode, TidelogError

MS_PER_MINUTE: Final = 60_000


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The settings as numbers."""

    session_ms: int
    session_ms_min: int
    session_ms_max: int
    heartbeat_ms: int
    offsets_retention_ms: int
    is_range: bool
    """Else uniform."""


def read_group_settings(values: Mapping[str, str | None]) -> GroupTimes:
    """What is set, else the defaults; of what an earlier release let pass the nearest that fits."""
    lowest = _number(values, catalogue.GROUP_SESSION_MS_MIN)
    highest = max(lowest, _number(values, catalogue.GROUP_SESSION_MS_MAX))
    session = min(max(_number(values, catalogue.GROUP_SESSION_MS), lowest), highest)
    return GroupTimes(
        session_ms=session,
        session_ms_min=lowest,
        session_ms_max=highest,
        heartbeat_ms=min(_number(values, catalogue.GROUP_HEARTBEAT_MS), max(1, lowest // 2)),
        offsets_retention_ms=_number(values, catalogue.OFFSETS_RETENTION_MINUTES) * MS_PER_MINUTE,
        is_range=_text(values, catalogue.GROUP_ASSIGNOR) == "range",
    )


def check_group_settings(values: Mapping[str, str | None], *, tried: str) -> None:
    """INVALID_CONFIGURATION if they contradict each other."""
    lowest = _number(values, catalogue.GROUP_SESSION_MS_MIN)
    highest = _number(values, catalogue.GROUP_SESSION_MS_MAX)
    session = _number(values, catalogue.GROUP_SESSION_MS)
    heartbeat = _number(values, catalogue.GROUP_HEARTBEAT_MS)
    if not lowest <= session <= highest:
        raise _contradiction(
            tried,
            f"`{catalogue.GROUP_SESSION_MS}` is {session}, the shortest is {lowest} and the "
            f"longest {highest}",
        )
    if 2 * heartbeat > lowest:
        raise _contradiction(
            tried,
            f"`{catalogue.GROUP_HEARTBEAT_MS}` is {heartbeat}, more than half of the shortest "
            f"session timeout, {lowest}: one lost heartbeat would remove a member",
        )


def _number(values: Mapping[str, str | None], name: str) -> int:
    return int(_text(values, name))


def _text(values: Mapping[str, str | None], name: str) -> str:
    return values.get(name) or catalogue.CATALOGUE[name].default


def _contradiction(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_CONFIGURATION, tried=tried, happened=happened)
