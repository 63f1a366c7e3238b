"""Refusals of a group coordinator, each with what was tried, what happened, what to do. Pure."""

from typing import Final

from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.staged import StagedTransaction
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey
from tidelog.wire.refusals import invalid

LOADING: Final = TidelogError(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    tried="ask a group's coordinator",
    happened="it is still loading its groups",
)


def exhausted(tried: str, what: str, limit_name: str, limit: int) -> TidelogError:
    """A limit of the coordinator that cannot be passed."""
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried=tried,
        happened=f"{what}: the limit is {limit:,} ({limit_name})",
        hint="Delete what is not needed any more, or spread the work over more groups.",
    )


def unknown_member(group: str, member_id: str, tried: str) -> TidelogError:
    """It was removed, or never was one."""
    return TidelogError(
        ErrorCode.UNKNOWN_MEMBER,
        tried=f"{tried} group `{group}` as member `{member_id}`",
        happened="the group has no such member",
    )


def fenced(group: Group, member: Member, sent: int, happened: str) -> TidelogError:
    """The member must give up everything and join again."""
    return TidelogError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        tried=f"act in group `{group.name}` as member `{member.member_id}` at epoch {sent}",
        happened=happened,
    )


def not_empty(group: Group, tried: str) -> TidelogError:
    """Only groups without members are changed by operators."""
    count = len(group.members)
    return TidelogError(
        ErrorCode.GROUP_NOT_EMPTY,
        tried=tried,
        happened=f"group `{group.name}` has {count} {'member' if count == 1 else 'members'}",
    )


def not_found(group: str, tried: str) -> TidelogError:
    """No such group."""
    return TidelogError(
        ErrorCode.GROUP_NOT_FOUND, tried=tried, happened=f"there is no group `{group}`"
    )


def unstable(key: PartitionKey, holder: StagedTransaction, tried: str) -> TidelogError:
    """A transaction in progress has sent an offset for the partition."""
    return TidelogError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        tried=tried,
        happened=f"{key} has an offset that is not decided: {_named(holder)} has sent it",
        hint="Ask again: the transaction is committed or aborted by its own timeout at the latest, "
        f"unless it is prepared; `tidelog txn describe {holder.transactional_id}` shows it.",
    )


def holds_group(group: Group, holder: StagedTransaction, tried: str) -> TidelogError:
    """A transaction in progress has sent offsets to the group."""
    return TidelogError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        tried=tried,
        happened=f"group `{group.name}` has offsets that are not decided: {_named(holder)} has "
        "sent them",
        hint="Wait until the transaction is committed or aborted; `tidelog txn describe "
        f"{holder.transactional_id}` shows it.",
    )


def _named(holder: StagedTransaction) -> str:
    return f"transaction `{holder.transactional_id}` of producer {holder.identity}"


def check_name(tried: str, what: str, name: str, limit: int = limits.NAME_BYTES_MAX) -> None:
    """INVALID_ARGUMENT unless it is 1 to `limit` bytes of UTF-8."""
    length = len(name.encode())
    if not 1 <= length <= limit:
        happened = f"the {what} has {length} bytes; 1 to {limit} are allowed"
        raise invalid(tried, happened)
