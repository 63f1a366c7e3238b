"""What goes wrong with a quorum directory, in one voice."""

from tidelog.wire.errors import ErrorCode, TidelogError


def corrupt(where: str, happened: str, *, hint: str = "") -> TidelogError:
    """Bytes contradict their checksum and nothing else tells what they were."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=f"read {where}",
        happened=happened,
        hint=hint
        or "Keep the directory for inspection, remove this member from the quorum, format an empty "
        "directory with `tidelog storage format --join`, and add it again.",
    )


def failed(where: str, happened: str) -> TidelogError:
    """The storage cannot be used any more."""
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=f"write in {where}", happened=happened)
