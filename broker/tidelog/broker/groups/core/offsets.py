"""How far groups have read: committing, reading, setting, forgetting, expiring. Pure.

Owns the committed offsets, keyed by group, topic id and partition. A commit counts for a partition
that the member owns, sent at an epoch not below the one at which it was given the partition and not
above its own; whoever is no member commits while there are none. It must never take an offset for a
topic that the view does not have: what the view lacks is forgotten for good.
"""

from collections.abc import Iterable

from tidelog.broker.groups.core.judging import (
    COMMIT,
    KeptOffsets,
    check_count,
    check_request,
    check_room,
    committing_member,
    judge,
    judge_owner,
    no_room,
)
from tidelog.broker.groups.core.targets import subscribed
from tidelog.broker.groups.state.answers import AlterOffsetsAnswer, DeleteOffsetsAnswer
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.messages import AlterOffsets, DeleteOffsets
from tidelog.broker.groups.state.records import OffsetKey, OffsetValue
from tidelog.broker.groups.state.refusals import not_empty, unstable
from tidelog.broker.groups.state.staged import holders
from tidelog.broker.groups.state.world import World
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    OffsetToCommit,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import PartitionKey


def on_commit(world: World, draft: Draft, request: CommitOffsets) -> CommitAnswer:
    """Each partition is looked at on its own."""
    tried = COMMIT.format(request)
    check_request(tried, request.group, request.offsets)
    group = draft.group()
    member = committing_member(group, request, tried)
    check_room(world, group, tried)
    errors: list[TidelogError | None] = []
    accepted: list[OffsetToCommit] = []
    kept = KeptOffsets(group)
    room = kept.room()
    for offset in request.offsets:
        error = judge(world, tried, offset)
        if error is None and member is not None:
            error = judge_owner(group, member, request.member_epoch, offset.key)
        if error is None and offset.key not in kept:
            error = None if room > 0 else no_room(tried)
            room -= 1
        if error is None:
            accepted.append(offset)
        errors.append(error)
    store(world, draft, accepted)
    return CommitAnswer(errors=tuple(errors))


def store(world: World, draft: Draft, offsets: Iterable[OffsetToCommit]) -> None:
    """A record for each."""
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
    check_count(tried, len(request.keys))
    group = draft.group()
    committing_member(group, request, tried)
    held = holders(group.staged.values()) if request.require_stable else {}
    keys = request.keys or tuple(sorted({**group.offsets, **held}))
    return FetchOffsetsAnswer(
        offsets=tuple(
            (key, unstable(key, held[key], tried) if key in held else group.offsets.get(key))
            for key in keys
        )
    )


def on_alter(world: World, draft: Draft, request: AlterOffsets) -> AlterOffsetsAnswer:
    """All or none."""
    tried = f"set offsets of group `{request.group}`"
    check_request(tried, request.group, request.offsets)
    group = draft.group()
    if group.members:
        raise not_empty(group, tried)
    check_room(world, group, tried)
    if KeptOffsets(group).room(each.key for each in request.offsets) < 0:
        raise no_room(tried)
    held = holders(group.staged.values())
    errors = [
        judge(world, tried, each)
        or (unstable(each.key, held[each.key], tried) if each.key in held else None)
        for each in request.offsets
    ]
    if any(errors):
        return AlterOffsetsAnswer(results=tuple(errors))
    before = tuple(group.offsets.get(each.key) for each in request.offsets)
    if not request.validate_only:
        store(world, draft, request.offsets)
    return AlterOffsetsAnswer(results=before)


def on_delete(world: World, draft: Draft, request: DeleteOffsets) -> DeleteOffsetsAnswer:
    """Each partition on its own."""
    tried = f"forget offsets of group `{request.group}`"
    validate_group_name(request.group, tried=tried)
    check_count(tried, len(request.keys))
    group = draft.group()
    in_use = subscribed(world, group)
    held = holders(group.staged.values())
    errors = tuple(
        not_empty(group, tried)
        if key.topic_id in in_use
        else unstable(key, held[key], tried)
        if key in held
        else None
        for key in request.keys
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
    Never one of a partition for which a transaction in progress has sent another (KAFKA-13636): the
    transaction may be aborted, and then this one is needed.
    """
    before_ms = world.wall_ms - world.settings(group.name).offsets_retention_ms
    if not group.members and group.empty_since_ms > before_ms:
        return []
    in_use = subscribed(world, group) if group.members else {}
    held = holders(group.staged.values())
    return sorted(
        key
        for key, stored in group.offsets.items()
        if key.topic_id not in in_use and key not in held and stored.commit_time_ms <= before_ms
    )
