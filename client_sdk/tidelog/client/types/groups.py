"""What the admin client takes and gives about groups: values only.

Owns the user's types; names follow kafka-python where it has them.
"""

import enum
import operator
from typing import Final, Self

import msgspec

from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

OFFSET_WORDS: Final = ("earliest", "latest", "max_timestamp")
"""Places of a partition that its leader knows."""


class GroupState(enum.Enum):
    """In what state a group is."""

    EMPTY = "empty"
    """It has no members."""
    ASSIGNING = "assigning"
    """The target assignment is being computed."""
    RECONCILING = "reconciling"
    """Some members have not reached the target assignment yet."""
    STABLE = "stable"
    """All members own what they should."""
    UNKNOWN = "unknown"
    """A state that this release does not know."""


class GroupType(enum.Enum):
    """Who divides the partitions."""

    RECONCILED = "reconciled"
    """The coordinator."""
    CLASSIC = "classic"
    """The members, by Kafka's older protocol."""
    SHARE = "share"
    UNKNOWN = "unknown"
    """A type that this release does not know."""


class OffsetTimestamp(int):
    """A time in milliseconds since 1970 where a plain number would be an offset."""

    def __new__(cls, timestamp_ms: int) -> Self:
        """Refuses what a plain int() would read or cut: a text, a float, a datetime."""
        try:
            if isinstance(timestamp_ms, bool):
                raise TypeError
            number = operator.index(timestamp_ms)
            if abs(number) >= 1 << 63:
                raise OverflowError
        except Exception:  # noqa: BLE001 - whatever the value's own code raises
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried="make an OffsetTimestamp",
                happened=f"timestamp_ms is of type {type(timestamp_ms).__name__}, it can be a "
                "whole number of 64 bits",
                hint="milliseconds are int(time.time() * 1000)",
            ) from None
        return super().__new__(cls, number)


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list."""

    group_id: str
    state: GroupState
    group_type: GroupType
    member_count: int
    lag: int
    """Records of all its partitions that are committed and not read yet; -1: not known."""


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, and whether they are all."""

    groups: tuple[GroupListing, ...]
    """In ascending order of name."""
    missing_coordinators: int
    """How many coordinators could not be asked: their groups are not here."""


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group."""

    member_id: str
    group_instance_id: str
    """Empty: a dynamic member."""
    client_id: str
    address: str
    member_epoch: int
    """The epoch that it has reached."""
    topics: tuple[str, ...]
    """What it subscribes to by name."""
    topic_pattern: str
    """What it subscribes to by pattern; empty: nothing."""
    assigned: tuple[TopicPartition, ...]
    """What it owns. The topic's name is empty where the topic was deleted."""
    target: tuple[TopicPartition, ...]
    """What it should own in the end."""
    silence_ms: int
    """How long ago it was heard of."""


class UndecidedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """An offset that counts once its transaction is committed: readers wait for that."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    offset: int
    since_ms: int
    """When the transaction sent its first offset for the group, in milliseconds since 1970."""


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has read one partition; -1 stands for what is not known."""

    topic: str
    """Empty: the topic was deleted."""
    topic_id: bytes
    partition: int
    committed_offset: int
    """-1: nothing was committed."""
    log_start_offset: int
    high_watermark: int
    lag: int
    """Records that are committed and not read yet."""
    member_id: str
    """The owner; empty: nobody."""
    commit_time_ms: int
    metadata: str
    undecided: UndecidedOffset | None = None
    """None: no transaction in progress has sent an offset for it."""


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its members, and how far it has read."""

    group_id: str
    state: GroupState
    group_type: GroupType
    group_epoch: int
    """Grows when members, subscriptions or partition counts change."""
    assignment_epoch: int
    """The group_epoch for which the target assignment was computed."""
    assignor: str
    """`uniform` or `range`."""
    coordinator_id: int
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    """All with a committed or undecided offset or an owner, by topic, then partition."""

    @property
    def lag(self) -> int:
        """Of the partitions for which something was committed; -1: of one it is not known."""
        lags = [each.lag for each in self.partitions if each.committed_offset >= 0]
        return -1 if any(lag < 0 for lag in lags) else sum(lags)


class MemberToRemove(msgspec.Struct, frozen=True):
    """A member by its id, or a static one by its name."""

    member_id: str | None = None
    group_instance_id: str | None = None
