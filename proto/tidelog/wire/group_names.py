"""Names of consumer groups: one rule for brokers, controller and client. Pure."""

from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

GROUP_NAME_BYTES_MAX: Final = 249
"""Of UTF-8; a static member's `group_instance_id` and a rack are bounded likewise."""


def validate_group_name(group: str, *, tried: str) -> None:
    """INVALID_ARGUMENT for a name that no group can have."""
    size = len(group.encode())
    if not 1 <= size <= GROUP_NAME_BYTES_MAX:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened=f"the group's name has {size} bytes, not 1 to {GROUP_NAME_BYTES_MAX}",
        )
