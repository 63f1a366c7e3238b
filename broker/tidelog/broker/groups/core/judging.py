"""Whether offsets may be committed, by a commit or by a transaction: the same for both. Pure.

A commit counts for a partition that the member owns, sent at an epoch not below the one at which it
was given the partition and not above its own; whoever is no member commits while there are none. It
must never let an offset in for a topic that the view does not have: what the view lacks is
forgotten for good.
"""

from collections.abc import Collection, Iterable
from typing import Final

from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.refusals import exhausted, fenced, unknown_member
from tidelog.broker.groups.state.staged import holders
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import CommitOffsets, FetchOffsets, OffsetToCommit, SendOffsets
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import PartitionKey
from tidelog.wire.refusals import invalid

OFFSET_RECORD_BYTES: Final = 96
"""At most so much of a record of an offset is neither the group's name nor its metadata."""

COMMIT: Final = "commit offsets of group `{0.group}`"


def committing_member(
    group: Group, request: CommitOffsets | SendOffsets | FetchOffsets, tried: str
) -> Member | None:
    """None: a reader that is no member, and there is none."""
    if not request.member_id:
        if group.members and not isinstance(request, FetchOffsets):
            raise TidelogError(
                ErrorCode.UNKNOWN_MEMBER,
                tried=tried,
                happened="no member id was sent, and the group has members",
                hint="Join the group, or use another group for readers that assign by themselves.",
            )
        return None
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.name, request.member_id, "commit or read offsets of")
    if not 0 <= request.member_epoch <= member.epoch:
        happened = f"its epoch is {member.epoch}"
        raise fenced(group, member, request.member_epoch, happened)
    return member


def check_request(tried: str, group: str, offsets: tuple[OffsetToCommit, ...]) -> None:
    """INVALID_ARGUMENT, RESOURCE_EXHAUSTED or BATCH_TOO_LARGE, before anything is looked at."""
    validate_group_name(group, tried=tried)
    check_count(tried, len(offsets))
    if len(dict.fromkeys(each.key for each in offsets)) != len(offsets):
        raise invalid(tried, "a partition is named twice")
    size = records_size(group, offsets)
    if size > limits.APPEND_BYTES_MAX:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=tried,
            happened=f"its records take up to {size:,} bytes; the limit is "
            f"{limits.APPEND_BYTES_MAX:,} (APPEND_BYTES_MAX)",
            hint="Commit fewer partitions at a time, or less metadata.",
        )


def records_size(group: str, offsets: Collection[OffsetToCommit]) -> int:
    """At most so many bytes take the records of these."""
    size = sum(len(each.metadata.encode()) for each in offsets)
    return size + len(offsets) * (len(group.encode()) + OFFSET_RECORD_BYTES)


def check_count(tried: str, count: int) -> None:
    """RESOURCE_EXHAUSTED for more partitions than one request may name."""
    if count > limits.OFFSETS_PER_REQUEST_MAX:
        limit = limits.OFFSETS_PER_REQUEST_MAX
        raise exhausted(tried, f"it names {count:,} partitions", "OFFSETS_PER_REQUEST_MAX", limit)


def check_room(world: World, group: Group, tried: str) -> None:
    """RESOURCE_EXHAUSTED for one group too many."""
    if group.is_nothing and len(world.groups) > limits.GROUPS_MAX:
        raise exhausted(tried, "there are too many groups", "GROUPS_MAX", limits.GROUPS_MAX)


def no_room(tried: str) -> TidelogError:
    """The refusal of one partition too many."""
    limit = limits.OFFSETS_PER_GROUP_MAX
    happened = "the group has committed too many partitions"
    return exhausted(tried, happened, "OFFSETS_PER_GROUP_MAX", limit)


def judge(world: World, tried: str, offset: OffsetToCommit) -> TidelogError | None:
    """Whether the offset could be one."""
    topic = world.topics.by_id.get(offset.key.topic_id)
    if topic is None:
        happened = f"there is no topic with id {offset.key.topic_id.hex()}"
        return TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, tried=tried, happened=happened)
    if not 0 <= offset.key.partition < topic.partition_count:
        happened = f"topic `{topic.name}` has {topic.partition_count} partitions"
        return TidelogError(ErrorCode.UNKNOWN_PARTITION, tried=tried, happened=happened)
    if offset.committed_offset < 0:
        return invalid(tried, f"{offset.committed_offset} is no offset")
    length = len(offset.metadata.encode())
    if length > limits.METADATA_BYTES_MAX:
        limit = limits.METADATA_BYTES_MAX
        return invalid(tried, f"metadata of {length} bytes; at most {limit} are stored")
    return None


def judge_owner(
    group: Group, member: Member, sent_epoch: int, key: PartitionKey
) -> TidelogError | None:
    """Whether the member may commit the partition."""
    epoch = member.owned_epoch(key)
    if epoch is not None and epoch <= sent_epoch:
        return None
    if epoch is None:
        happened = f"{key} is not owned by the member any more"
    else:
        happened = f"{key} was given back to the member later, at epoch {epoch}"
    return TidelogError(
        ErrorCode.STALE_ASSIGNMENT,
        tried=f"commit in group `{group.name}` as member `{member.member_id}` at {sent_epoch}",
        happened=happened,
    )


class KeptOffsets:
    """Partitions of which a group keeps an offset, or will if transactions are committed: the room
    for those is promised. A look, not a copy: a group has a hundred thousand."""

    def __init__(self, group: Group) -> None:
        self._offsets: Final = group.offsets
        self._held: Final = holders(group.staged.values()) if group.staged else {}

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._offsets or key in self._held

    def room(self, keys: Iterable[PartitionKey] = ()) -> int:
        """For how many more partitions there is room, once it keeps these as well."""
        held = sum(1 for key in self._held if key not in self._offsets)
        new = sum(1 for key in keys if key not in self)
        return limits.OFFSETS_PER_GROUP_MAX - len(self._offsets) - held - new
