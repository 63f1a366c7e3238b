"""From a record to the state: the only place where anything persistent of a group changes. Pure.

Owns `apply`. A live core calls it for each record that it is about to append, a loading one for
each that it reads; both end in the same state. It must never fail because of the order of records:
a compacted log has the last value of each key, not the history, and for a while a member's
partitions may be there before its words, or an owner that is superseded further on.
"""

from collections.abc import Iterable
from typing import Final, assert_never

from tidelog.broker.groups.state.group import Group, Member
from tidelog.broker.groups.state.records import (
    AnyValue,
    GroupKey,
    GroupValue,
    Key,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    OwnedKey,
    OwnedPartitionsValue,
    OwnedValue,
    StagedKey,
    StagedPartitionValue,
    StagedTopicValue,
    StagedValue,
    TargetKey,
    TargetValue,
    TopicPartitionsValue,
)
from tidelog.broker.groups.state.staged import StagedTransaction
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import OffsetToCommit, StoredOffset
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

SILENT: Final = MemberValue(
    group_instance_id="",
    rack="",
    client_id="",
    address="",
    session_timeout_ms=0,
    rebalance_timeout_ms=0,
    topics=(),
    topic_pattern="",
    assignor=0,
)
"""Of a member whose words have not been read yet: it is none before they come."""


def apply(groups: dict[str, Group], key: Key, value: AnyValue | None) -> None:
    """Change the state as the record says."""
    group = groups.get(key.group)
    if group is None:
        if value is None:
            return
        group = groups[key.group] = Group(name=key.group)
    match key:
        case GroupKey():
            assert value is None or isinstance(value, GroupValue), f"{value} under {key}"
            _apply_group(group, value)
        case MemberKey():
            assert value is None or isinstance(value, MemberValue), f"{value} under {key}"
            _apply_member(group, key.member_id, value)
        case TargetKey():
            assert value is None or isinstance(value, TargetValue), f"{value} under {key}"
            _apply_target(group, key.member_id, value)
        case OwnedKey():
            assert value is None or isinstance(value, OwnedValue), f"{value} under {key}"
            _apply_owned(group, key.member_id, value)
        case OffsetKey():
            assert value is None or isinstance(value, OffsetValue), f"{value} under {key}"
            _apply_offset(group, key, value)
        case StagedKey():
            assert value is None or isinstance(value, StagedValue), f"{value} under {key}"
            _apply_staged(group, key, value)
        case _:
            assert_never(key)
    if group.is_nothing:
        del groups[key.group]


def _apply_group(group: Group, value: GroupValue | None) -> None:
    if value is None:
        group.is_stored = False
        group.epoch = group.assignment_epoch = 0
        group.empty_since_ms = -1
        group.topics_digest = b""
        return
    group.is_stored = True
    group.group_type = value.group_type
    group.epoch = value.group_epoch
    group.assignment_epoch = value.assignment_epoch
    group.assignor = value.assignor
    group.topics_digest = value.topics_digest
    group.empty_since_ms = value.empty_since_ms


def _apply_member(group: Group, member_id: str, value: MemberValue | None) -> None:
    member = group.members.get(member_id)
    if member is not None and group.by_instance.get(member.instance_id) == member_id:
        del group.by_instance[member.instance_id]
    if value is None:
        if member is not None:
            _forget_owner(group, member)
            del group.members[member_id]
            group.targets.pop(member_id, None)
        return
    if member is None:
        group.members[member_id] = Member(member_id=member_id, words=value)
    else:
        member.words = value
    if value.group_instance_id:
        group.by_instance[value.group_instance_id] = member_id


def _apply_target(group: Group, member_id: str, value: TargetValue | None) -> None:
    if value is None:
        group.targets.pop(member_id, None)
    else:
        group.targets[member_id] = {
            PartitionKey(each.topic_id, PartitionId(partition)): None
            for each in value.topics
            for partition in each.partitions
        }


def _apply_owned(group: Group, member_id: str, value: OwnedValue | None) -> None:
    member = group.members.get(member_id)
    if member is not None:
        _forget_owner(group, member)
    if value is None:
        if member is not None:
            member.assigned, member.revoking = {}, {}
        return
    if member is None:
        member = group.members[member_id] = Member(member_id=member_id, words=SILENT)
    member.epoch = value.member_epoch
    member.previous_epoch = value.previous_epoch
    member.stored_sequence = value.heartbeat_sequence
    member.is_away = value.is_away
    member.assigned = _with_epochs(value.assigned)
    member.revoking = _with_epochs(value.revoking)
    member.is_settled = False
    for keys in (member.assigned, member.revoking):
        for key in keys:
            group.owners[key] = member_id


def _forget_owner(group: Group, member: Member) -> None:
    for keys in (member.assigned, member.revoking):
        for key in keys:
            if group.owners.get(key) == member.member_id:
                del group.owners[key]


def _apply_offset(group: Group, key: OffsetKey, value: OffsetValue | None) -> None:
    partition = PartitionKey(key.topic_id, key.partition)
    if value is None:
        group.offsets.pop(partition, None)
    else:
        group.offsets[partition] = StoredOffset(
            committed_offset=value.committed_offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_time_ms=value.commit_time_ms,
        )


def _apply_staged(group: Group, key: StagedKey, value: StagedValue | None) -> None:
    transaction = group.staged.get(key.producer_id)
    if value is None:
        if transaction is not None:
            transaction.parts.pop(key.number, None)
            if not transaction.parts:
                del group.staged[key.producer_id]
        return
    identity = Identity(key.producer_id, value.producer_epoch)
    if transaction is None or transaction.identity != identity:
        # Parts of an earlier one that a compaction has left, without their tombstones as yet.
        transaction = group.staged[key.producer_id] = StagedTransaction(
            identity=identity, transactional_id=value.transactional_id, since_ms=value.staged_ms
        )
    transaction.parts[key.number] = {
        each.key: each for topic in value.topics for each in _staged_offsets(topic)
    }


def _staged_offsets(topic: StagedTopicValue) -> Iterable[OffsetToCommit]:
    for each in topic.partitions:
        yield OffsetToCommit(
            key=PartitionKey(topic.topic_id, each.partition),
            committed_offset=each.committed_offset,
            leader_epoch=each.leader_epoch,
            metadata=each.metadata,
        )


def decide(group: Group, end: Identity, decision: Decision) -> StagedTransaction | None:
    """A marker stands in the log: what it decides of the group; None: nothing.

    The marker's epoch is above that of what it ends. What has its epoch, or a higher one, is of a
    later transaction, and the marker has come again.
    """
    transaction = group.staged.get(end.producer_id)
    if transaction is None or transaction.identity.producer_epoch >= end.producer_epoch:
        return None
    transaction.decision = decision
    return transaction


def drop_members_without_words(group: Group) -> None:
    """At the end of a load: what a tombstone left of a member that compaction cut in pieces."""
    for member_id in [each for each, member in group.members.items() if member.words is SILENT]:
        _apply_member(group, member_id, None)
    for member_id in [each for each in group.targets if each not in group.members]:
        del group.targets[member_id]


def target_value(keys: Iterable[PartitionKey]) -> TargetValue:
    """The persisted form of a target."""
    return TargetValue(
        topics=tuple(
            TopicPartitionsValue(topic_id, tuple(each.partition for each in partitions))
            for topic_id, partitions in _by_topic(keys).items()
        )
    )


def staged_value(
    offsets: Iterable[OffsetToCommit],
    *,
    identity: Identity,
    transactional_id: str,
    staged_ms: int,
) -> StagedValue:
    """The persisted form of a part."""
    by_key = {each.key: each for each in offsets}
    return StagedValue(
        producer_epoch=identity.producer_epoch,
        transactional_id=transactional_id,
        staged_ms=staged_ms,
        topics=tuple(
            StagedTopicValue(
                topic_id,
                tuple(_staged_partition(by_key[key]) for key in partitions),
            )
            for topic_id, partitions in _by_topic(by_key).items()
        ),
    )


def _staged_partition(offset: OffsetToCommit) -> StagedPartitionValue:
    return StagedPartitionValue(
        offset.key.partition, offset.committed_offset, offset.leader_epoch, offset.metadata
    )


def owned_value(
    member: Member,
    *,
    assigned: dict[PartitionKey, int],
    revoking: dict[PartitionKey, int],
    epoch: int,
    previous_epoch: int,
    sequence: int,
    is_away: bool = False,
) -> OwnedValue:
    """The persisted form of what a member owns."""
    assert epoch >= member.epoch, f"member {member.member_id} goes from {member.epoch} to {epoch}"
    return OwnedValue(
        member_epoch=epoch,
        previous_epoch=previous_epoch,
        heartbeat_sequence=sequence,
        is_away=is_away,
        assigned=_without_epochs(assigned),
        revoking=_without_epochs(revoking),
    )


def _with_epochs(topics: tuple[OwnedPartitionsValue, ...]) -> dict[PartitionKey, int]:
    return {
        PartitionKey(each.topic_id, PartitionId(partition)): epoch
        for each in topics
        for partition, epoch in zip(each.partitions, each.epochs, strict=True)
    }


def _without_epochs(owned: dict[PartitionKey, int]) -> tuple[OwnedPartitionsValue, ...]:
    return tuple(
        OwnedPartitionsValue(
            topic_id,
            tuple(each.partition for each in partitions),
            tuple(owned[each] for each in partitions),
        )
        for topic_id, partitions in _by_topic(owned).items()
    )


def _by_topic(keys: Iterable[PartitionKey]) -> dict[TopicId, list[PartitionKey]]:
    found: dict[TopicId, list[PartitionKey]] = {}
    for key in sorted(keys):
        found.setdefault(key.topic_id, []).append(key)
    return found
