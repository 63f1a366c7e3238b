"""What a coordinator's core answers operators. Pure; the names are those of the contract."""

from enum import IntEnum

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.wire.calls.groups import (
    AssignedPartition,
    CommitAnswer,
    FetchOffsetsAnswer,
    HeartbeatAnswer,
    OffsetToCommit,
    SendOffsetsAnswer,
    StoredOffset,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


class GroupType(IntEnum):
    """What kind of group; numbers as in the contract."""

    RECONCILED = 1


class GroupState(IntEnum):
    """Numbers as in the contract."""

    EMPTY = 1
    ASSIGNING = 2
    RECONCILING = 3
    STABLE = 4


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list."""

    group: str
    state: GroupState
    type: GroupType
    member_count: int


class ListGroupsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """In ascending order of name."""

    groups: tuple[GroupListing, ...]


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A member as an operator sees it."""

    member_id: str
    group_instance_id: str
    client_id: str
    address: str
    member_epoch: int
    topics: tuple[str, ...]
    topic_pattern: str
    assignor: int
    assigned: tuple[AssignedPartition, ...]
    """What it owns, also what it is to give up."""
    target: tuple[PartitionKey, ...]
    silence_ms: int


class StagedView(msgspec.Struct, frozen=True, kw_only=True):
    """An offset that a transaction in progress has sent."""

    identity: Identity
    transactional_id: str
    since_ms: int
    """Wall time of the transaction's first offset for the group."""
    offset: OffsetToCommit


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with a committed offset or an owner."""

    key: PartitionKey
    topic_name: str
    """Empty: the topic was deleted."""
    stored: StoredOffset | None
    member_id: str
    """Empty: nobody owns it."""
    staged: StagedView | None = None
    """Of several transactions the one that came first."""


class DescribeGroupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A group as an operator sees it."""

    group: str
    state: GroupState
    type: GroupType
    group_epoch: int
    assignment_epoch: int
    assignor: int
    members: tuple[MemberDescription, ...]
    """In ascending order of member id."""
    partitions: tuple[GroupPartition, ...]
    """By topic name, then partition."""


class AlterOffsetsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the request: what was there before (None: nothing), or what is wrong with it.

    If anything is wrong nothing was set.
    """

    results: tuple[StoredOffset | TidelogError | None, ...]


class DeleteOffsetsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the request; None: forgotten, or was not there."""

    errors: tuple[TidelogError | None, ...]


class DeleteGroupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """It is gone, or with validate_only would be."""


class RemoveMembersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Those that were members, in ascending order."""

    removed_member_ids: tuple[str, ...]


class EndStagedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was committed shows, what was aborted is gone."""


Response = (
    HeartbeatAnswer
    | CommitAnswer
    | FetchOffsetsAnswer
    | ListGroupsAnswer
    | DescribeGroupAnswer
    | AlterOffsetsAnswer
    | DeleteOffsetsAnswer
    | DeleteGroupAnswer
    | RemoveMembersAnswer
    | SendOffsetsAnswer
    | EndStagedAnswer
)
