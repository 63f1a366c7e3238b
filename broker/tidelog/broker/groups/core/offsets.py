"""How far groups have read: committing, reading, setting, forgetting, expiring. Pure.

Owns the committed offsets, keyed by group, topic id and partition. A commit counts for a partition
that the member owns, sent at an epoch not below the one at which it was given the partition and not
above its own; whoever is no member commits while there are none. It must never take an offset for a
topic that the view does not have: what the view lacks is forgotten for good.
"""

from collections.abc import Iterable
from typing import Final

from tidelog.broker.groups.core.targets import subscribed
from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.answers import AlterOffsetsAnswer, DeleteOffsetsAnswer
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.messages import AlterOffsets, DeleteOffsets
from tidelog.broker.groups.state.records import OffsetKey, OffsetValue
from tidelog.broker.groups.state.refusals import exhausted, fenced, not_empty, unknown_member
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    OffsetToCommit,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import PartitionKey
from tidelog.wire.refusals import invalid

_OFFSET_RECORD_BYTES: Final = 96
"""At most so much of a record of an offset is neither the group's name nor its metadata."""

_COMMIT: Final = "commit offsets of group `{0.group}`"


def on_commit(world: World, draft: Draft, request: CommitOffsets) -> CommitAnswer:
    """Each partition is looked at on its own."""
    tried = _COMMIT.format(request)
    _check_request(tried, request.group, request.offsets)
    group = draft.group()
    member = _committing_member(group, request)
    _check_room(world, group, tried)
    errors: list[TidelogError | None] = []
    accepted: list[OffsetToCommit] = []
    room = limits.OFFSETS_PER_GROUP_MAX - len(group.offsets)
    for offset in request.offsets:
        error = _judge(world, tried, offset)
        if error is None and member is not None:
            error = _judge_owner(group, member, request.member_epoch, offset.key)
        if error is None and offset.key not in group.offsets:
            error = None if room > 0 else _no_room(tried)
            room -= 1
        if error is None:
            accepted.append(offset)
        errors.append(error)
    _store(world, draft, accepted)
    return CommitAnswer(errors=tuple(errors))


def _committing_member(group: Group, request: CommitOffsets | FetchOffsets) -> Member | None:
    """None: a reader that is no member, and there is none."""
    if not request.member_id:
        if group.members and isinstance(request, CommitOffsets):
            raise TidelogError(
                ErrorCode.UNKNOWN_MEMBER,
                tried=_COMMIT.format(request),
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


def _check_request(tried: str, group: str, offsets: tuple[OffsetToCommit, ...]) -> None:
    validate_group_name(group, tried=tried)
    _check_count(tried, len(offsets))
    if len(dict.fromkeys(each.key for each in offsets)) != len(offsets):
        raise invalid(tried, "a partition is named twice")
    size = sum(len(each.metadata.encode()) for each in offsets)
    size += len(offsets) * (len(group.encode()) + _OFFSET_RECORD_BYTES)
    if size > limits.APPEND_BYTES_MAX:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=tried,
            happened=f"its records take up to {size:,} bytes; the limit is "
            f"{limits.APPEND_BYTES_MAX:,} (APPEND_BYTES_MAX)",
            hint="Commit fewer partitions at a time, or less metadata.",
        )


def _check_count(tried: str, count: int) -> None:
    if count > limits.OFFSETS_PER_REQUEST_MAX:
        limit = limits.OFFSETS_PER_REQUEST_MAX
        raise exhausted(tried, f"it names {count:,} partitions", "OFFSETS_PER_REQUEST_MAX", limit)


def _check_room(world: World, group: Group, tried: str) -> None:
    if group.is_nothing and len(world.groups) > limits.GROUPS_MAX:
        raise exhausted(tried, "there are too many groups", "GROUPS_MAX", limits.GROUPS_MAX)


def _no_room(tried: str) -> TidelogError:
    limit = limits.OFFSETS_PER_GROUP_MAX
    happened = "the group has committed too many partitions"
    return exhausted(tried, happened, "OFFSETS_PER_GROUP_MAX", limit)


def _judge(world: World, tried: str, offset: OffsetToCommit) -> TidelogError | None:
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


def _judge_owner(
    group: Group, member: Member, sent_epoch: int, key: PartitionKey
) -> TidelogError | None:
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


def _store(world: World, draft: Draft, offsets: Iterable[OffsetToCommit]) -> None:
    for each in offsets:
        value = OffsetValue(
            committed_offset=each.committed_offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            commit_time_ms=world.stamp_ms,
        )
        draft.put(OffsetKey(draft.name, each.key.topic_id, each.key.partition), value)


def on_fetch(world: World, draft: Draft, request: FetchOffsets) -> FetchOffsetsAnswer:
    """Reads; the core answers it once all is committed that it shows."""
    tried = f"read the offsets of group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    _check_count(tried, len(request.keys))
    group = draft.group()
    _committing_member(group, request)
    keys = request.keys or tuple(sorted(group.offsets))
    return FetchOffsetsAnswer(offsets=tuple((key, group.offsets.get(key)) for key in keys))


def on_alter(world: World, draft: Draft, request: AlterOffsets) -> AlterOffsetsAnswer:
    """All or none."""
    tried = f"set offsets of group `{request.group}`"
    _check_request(tried, request.group, request.offsets)
    group = draft.group()
    if group.members:
        raise not_empty(group, tried)
    _check_room(world, group, tried)
    if len({**group.offsets, **{each.key: None for each in request.offsets}}) > (
        limits.OFFSETS_PER_GROUP_MAX
    ):
        raise _no_room(tried)
    errors = [_judge(world, tried, each) for each in request.offsets]
    if any(errors):
        return AlterOffsetsAnswer(results=tuple(errors))
    before = tuple(group.offsets.get(each.key) for each in request.offsets)
    if not request.validate_only:
        _store(world, draft, request.offsets)
    return AlterOffsetsAnswer(results=before)


def on_delete(world: World, draft: Draft, request: DeleteOffsets) -> DeleteOffsetsAnswer:
    """Each partition on its own."""
    tried = f"forget offsets of group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    _check_count(tried, len(request.keys))
    group = draft.group()
    in_use = subscribed(world, group)
    errors = tuple(
        not_empty(group, tried) if key.topic_id in in_use else None for key in request.keys
    )
    if not request.validate_only:
        for key, error in zip(request.keys, errors, strict=True):
            if error is None and key in group.offsets:
                forget(draft, key)
    return DeleteOffsetsAnswer(errors=errors)


def forget(draft: Draft, key: PartitionKey) -> None:
    """A tombstone for the offset."""
    draft.put(OffsetKey(draft.name, key.topic_id, key.partition), None)


def gone(world: World, group: Group) -> list[PartitionKey]:
    """Offsets of topics that were deleted."""
    return sorted(key for key in group.offsets if key.topic_id not in world.topics.by_id)


def expired(world: World, group: Group) -> list[PartitionKey]:
    """Offsets that nobody has needed for the group's retention.

    Of a group without members: since it has none, or since the commit if that was later (or if it
    never had any). Of a group with members: of topics to which none subscribes, since the commit.
    """
    before_ms = world.wall_ms - world.settings(group.name).offsets_retention_ms
    if not group.members and group.empty_since_ms > before_ms:
        return []
    in_use = subscribed(world, group) if group.members else {}
    return sorted(
        key
        for key, stored in group.offsets.items()
        if key.topic_id not in in_use and stored.commit_time_ms <= before_ms
    )
