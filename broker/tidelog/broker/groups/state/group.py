"""Groups as they are in memory: what records make of them, and the deadlines beside. Pure.

Owns the shape. Persistent fields are changed by `replay` only; those marked volatile a load begins
anew. Dictionaries keep the order in which things came to be and are never iterated where the order
could be seen: what is shown is sorted.
"""

from typing import Final

import msgspec

from tidelog.broker.groups.state.answers import GroupState, GroupType
from tidelog.broker.groups.state.messages import BrokerLife
from tidelog.broker.groups.state.records import NO_BROKER, GroupValue, MemberValue
from tidelog.broker.groups.state.staged import StagedTransaction
from tidelog.wire.calls.groups import Assignor, StoredOffset, Subscription
from tidelog.wire.ids import BrokerEpoch, BrokerId, PartitionKey, ProducerId

NEVER_MS: Final = 1 << 62
"""A deadline that does not come."""


def subscription_of(words: MemberValue) -> Subscription:
    """As it was sent, topics in ascending order."""
    return Subscription(
        topics=words.topics, topic_pattern=words.topic_pattern, assignor=Assignor(words.assignor)
    )


class Member(msgspec.Struct, kw_only=True, gc=False):
    """One member of one group."""

    member_id: str
    words: MemberValue
    """What it said about itself."""
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch with which it sent the heartbeat that brought it to `epoch`: a repetition of that
    heartbeat still has it."""
    stored_sequence: int = 0
    is_away: bool = False
    """Static, and left for a while: it reads nothing, its partitions stay its own."""
    assigned: dict[PartitionKey, int] = msgspec.field(default_factory=dict)
    """What it may read, each with its partition_assignment_epoch."""
    revoking: dict[PartitionKey, int] = msgspec.field(default_factory=dict)
    """Told to give up and not known to be given up: still owned."""

    sequence: int = 0
    """Volatile: of the last heartbeat taken."""
    heard_ms: int = 0
    session_due_ms: int = NEVER_MS
    """Volatile: silent until then it is removed."""
    revoke_due_ms: int = NEVER_MS
    """Volatile: with `revoking` not reported until then it is removed."""
    timer_ms: int = NEVER_MS
    """Volatile: when the timer looks at it next."""
    is_settled: bool = False
    """Volatile: at `epoch` it owns exactly its target; nothing is to be done before the group's
    assignment_epoch moves."""

    @property
    def subscription(self) -> Subscription:
        """What it wants to read."""
        return subscription_of(self.words)

    @property
    def patience_ms(self) -> int:
        """How long it may take to give something up.

        Not less than its session: the answer that says what to give up may be lost, and only after
        a whole session without an answer a member stops reading by itself.
        """
        return max(self.words.rebalance_timeout_ms, self.words.session_timeout_ms)

    @property
    def carrier(self) -> BrokerLife | None:
        """The broker that is the member, for a client; None: the client itself."""
        if self.words.broker_id == NO_BROKER:
            return None
        return BrokerLife(BrokerId(self.words.broker_id), BrokerEpoch(self.words.broker_epoch))

    @property
    def instance_id(self) -> str:
        """Empty: a dynamic member."""
        return self.words.group_instance_id

    def owned_epoch(self, key: PartitionKey) -> int | None:
        """The partition_assignment_epoch of a partition that it owns; None: it does not."""
        epoch = self.assigned.get(key)
        return self.revoking.get(key) if epoch is None else epoch


class Group(msgspec.Struct, kw_only=True):
    """One group: members, targets, owners, offsets."""

    name: str
    is_stored: bool = False
    """A `GroupValue` is there: it has or had members."""
    group_type: int = GroupType.RECONCILED
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: int = Assignor.UNIFORM
    topics_digest: bytes = b""
    empty_since_ms: int = -1
    """Wall time; -1: it has members, or never had."""
    members: dict[str, Member] = msgspec.field(default_factory=dict)
    by_instance: dict[str, str] = msgspec.field(default_factory=dict)
    """Member ids by group_instance_id."""
    targets: dict[str, dict[PartitionKey, None]] = msgspec.field(default_factory=dict)
    """By member id; a member that is not here should own nothing."""
    owners: dict[PartitionKey, str] = msgspec.field(default_factory=dict)
    """Member ids: exactly what the members own."""
    offsets: dict[PartitionKey, StoredOffset] = msgspec.field(default_factory=dict)
    staged: dict[ProducerId, StagedTransaction] = msgspec.field(default_factory=dict)
    """Offsets of transactions that are not folded yet: of a producer one at a time, as its next
    one begins only when every partition has the end of this one."""

    assigned_at_ms: int | None = None
    """Volatile: when the target was computed last."""
    assign_due_ms: int = NEVER_MS
    """Volatile: when it is to be computed next; only while assignment_epoch < epoch."""

    @property
    def state(self) -> GroupState:
        """As the contract names it."""
        if not self.members:
            return GroupState.EMPTY
        if self.assignment_epoch < self.epoch:
            return GroupState.ASSIGNING
        for member in self.members.values():
            if not is_at_target(self, member):
                return GroupState.RECONCILING
        return GroupState.STABLE

    @property
    def is_nothing(self) -> bool:
        """There is no record of it."""
        kept = self.members or self.targets or self.offsets or self.staged
        return not (self.is_stored or kept)

    def value(self) -> GroupValue:
        """As it is to be stored."""
        return GroupValue(
            group_type=self.group_type,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.assignor,
            topics_digest=self.topics_digest,
            empty_since_ms=self.empty_since_ms,
        )


def is_at_target(group: Group, member: Member) -> bool:
    """It owns exactly what it should, at the group's assignment_epoch. An absent one is there."""
    if member.is_away:
        return True
    target = group.targets.get(member.member_id, {})
    return (
        member.epoch == group.assignment_epoch
        and not member.revoking
        and member.assigned.keys() == target.keys()
    )
