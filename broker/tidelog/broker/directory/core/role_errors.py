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


def not_taken(key: PartitionKey) -> TidelogError:
    """The batch waited for its transaction's coordinator: nothing is stored."""
    return TidelogError(
        ErrorCode.UNAVAILABLE, tried=f"append to {key}", happened="the node is stopping"
    )


def led_anew(key: PartitionKey) -> TidelogError:
    """Nothing is stored, and what was asked of a coordinator in the former epoch does not count."""
    return TidelogError(
        ErrorCode.FENCED_LEADER_EPOCH,
        tried=f"append to {key}",
        happened="this broker leads it in another leader epoch than when it asked for the batch's "
        "transaction",
        hint="Send the batch again: its transaction is looked up again.",
    )
