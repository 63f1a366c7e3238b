"""What those are told who asked a leader that is none any more. Pure."""

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def not_leader(key: PartitionKey, *, tried: str = "append to") -> TidelogError:
    """Nothing was changed."""
    return TidelogError(
        ErrorCode.NOT_LEADER, tried=f"{tried} {key}", happened="another broker leads it by now"
    )


def indeterminate(key: PartitionKey) -> TidelogError:
    """The batch is written here: the next leader may hold it, or cut it off."""
    return TidelogError(
        ErrorCode.INDETERMINATE,
        tried=f"append to {key}",
        happened="another broker leads it by now; the batch may still be stored",
    )


def node_stopping(key: PartitionKey) -> TidelogError:
    """The batch is written here, and no follower is listened to any more."""
    return TidelogError(
        ErrorCode.INDETERMINATE,
        tried=f"append to {key}",
        happened="the node is stopping; the batch may still be stored",
    )
