"""What must be true of groups, seen from the log of `__groups` and from their members.

Owns a second, simpler reading of the log: who owns what since when, and which offset is committed,
record by record as they are committed. It knows nothing of how a coordinator decides. Members say
when they begin and end to read a partition, what they were answered, and under which
partition_assignment_epoch they committed (in the metadata of the offset).

    two_owners           a partition belongs to two members
    reused_epoch         one partition_assignment_epoch, two owners of the partition
    epoch_fell           group_epoch, assignment_epoch or a member_epoch went back
    stopped_untouched    a partition is to be given up, or is gone, that stays in its owner's target
    stale_commit         an offset is committed by somebody who does not own the partition, or owns
                         it since a later epoch than the one under which it was sent
    fallen_offset        it is below the one before it, and another owner had committed that
    not_committed        a commit or an assignment was answered, and the log does not have it
    wrong_fetch          a reader was told an offset that was not the committed one meanwhile
    read_twice           two members read a partition
    unread               the log was compacted before it was read here: nothing could be judged
    rebuilt_differs      a core that replays the log is not what the live one is
    invariant            what the core's own list of invariants says
"""

from typing import Final

import msgspec

from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.invariants import GroupView, Told, check, check_step, view
from tidelog.broker.groups.state.messages import AppendRecords
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
    TargetKey,
    TargetValue,
    decode_record,
)
from tidelog.chaos.sim.base.trace import Trace
from tidelog.wire.ids import PartitionId, PartitionKey

Place = tuple[str, PartitionKey]
"""A partition as a group reads it."""

_CHECK_EVERY: Final = 7
"""Every so many steps a core's own invariants are looked at: they cost more than a step."""


class CommittedOffset(msgspec.Struct, frozen=True):
    """One value that an offset had, and since when."""

    offset: int
    by: str
    """Member and partition_assignment_epoch, as the committer says."""
    since_ns: int


class Owned(msgspec.Struct, frozen=True):
    """What the log says of one member."""

    epoch: int
    is_joining: bool
    assigned: dict[PartitionKey, int]
    revoking: dict[PartitionKey, int]

    def epoch_of(self, key: PartitionKey) -> int | None:
        """The partition_assignment_epoch; None: it does not own it."""
        return self.assigned.get(key, self.revoking.get(key))


def committer(member_id: str, epoch: int) -> str:
    """How a member says in an offset's metadata who commits, and since when it owns."""
    return f"{member_id}@{epoch}"


class GroupsWatch:
    """Of one run."""

    def __init__(self, trace: Trace) -> None:
        self.trace: Final = trace
        self.now_ns = 0
        self.violations: list[str] = []
        self.reassignments = 0
        self.commits = 0
        self.offsets: Final[dict[Place, list[CommittedOffset]]] = {}
        self._groups: Final[dict[str, GroupValue]] = {}
        self._names: Final[dict[tuple[str, str], str]] = {}
        """Instance ids, or member ids of those that have none."""
        self._owned: Final[dict[tuple[str, str], Owned]] = {}
        self._targets: Final[dict[tuple[str, str], dict[PartitionKey, None]]] = {}
        self._owners: Final[dict[tuple[Place, int], str]] = {}
        self._last_owner: Final[dict[Place, str]] = {}
        self._readers: Final[dict[Place, str]] = {}
        self._excused: Final[dict[str, None]] = {}
        self._steps = 0

    def _violate(self, kind: str, detail: str) -> None:
        self.violations.append(f"{kind}: {detail}")

    # -- the log -------------------------------------------------------------------------------

    def on_committed(self, append: AppendRecords) -> None:
        """One append, as a whole."""
        records: list[tuple[Key, AnyValue | None]] = []
        for record in append.records:
            decoded = decode_record(record.key, record.value)
            assert decoded is not None, "a coordinator writes what it can read"
            records.append(decoded)
        changed: dict[tuple[str, str], Owned] = {}
        for key, value in records:
            if isinstance(key, TargetKey):
                self._on_target(key, value)
        for key, value in records:
            match key:
                case GroupKey():
                    self._on_group(key.group, value)
                case MemberKey():
                    self._on_member(key, value)
                case OwnedKey():
                    place = (key.group, key.member_id)
                    if place in self._owned and place not in changed:
                        changed[place] = self._owned[place]
                    self._on_owned(key, value)
                case OffsetKey():
                    self._on_offset(key, value)
                case TargetKey():
                    pass
        for place, before in changed.items():
            self._check_stops(place, before)
        if any(isinstance(key, OwnedKey) for key, _ in records):
            self._check_owners(records[0][0].group)

    def _on_group(self, group: str, value: AnyValue | None) -> None:
        before = self._groups.pop(group, None)
        if isinstance(value, GroupValue):
            self._groups[group] = value
            if before is not None and (
                value.group_epoch < before.group_epoch
                or value.assignment_epoch < before.assignment_epoch
            ):
                self._violate("epoch_fell", f"of group {group}: {before} became {value}")

    def _on_member(self, key: MemberKey, value: AnyValue | None) -> None:
        if isinstance(value, MemberValue):
            self._names[key.group, key.member_id] = value.group_instance_id or key.member_id

    def _on_target(self, key: TargetKey, value: AnyValue | None) -> None:
        place = (key.group, key.member_id)
        self._targets[place] = {}
        if isinstance(value, TargetValue):
            self._targets[place] = {
                PartitionKey(each.topic_id, PartitionId(number)): None
                for each in value.topics
                for number in each.partitions
            }

    def _on_owned(self, key: OwnedKey, value: AnyValue | None) -> None:
        place = (key.group, key.member_id)
        before = self._owned.pop(place, None)
        if not isinstance(value, OwnedValue):
            return
        owned = Owned(
            value.member_epoch,
            value.previous_epoch == 0 or value.is_away,
            _with_epochs(value.assigned),
            _with_epochs(value.revoking),
        )
        self._owned[place] = owned
        if before is not None and owned.epoch < before.epoch:
            self._violate("epoch_fell", f"of member {place}: {before.epoch} became {owned.epoch}")
        name = self._names.get(place, key.member_id)
        for partition, epoch in owned.assigned.items():
            at = (key.group, partition)
            if self._owners.setdefault((at, epoch), name) != name:
                former = self._owners[at, epoch]
                self._violate("reused_epoch", f"{at} at {epoch}: {former} and {name}")
            if self._last_owner.get(at, name) != name:
                self.reassignments += 1
            self._last_owner[at] = name

    def _check_stops(self, place: tuple[str, str], before: Owned) -> None:
        after, target = self._owned.get(place), self._targets.get(place, {})
        if after is None or after.is_joining:
            return
        for key in before.assigned:
            if key in target and key not in after.assigned:
                self._violate("stopped_untouched", f"{key} of {place}, which is to keep it")

    def _check_owners(self, group: str) -> None:
        owners: dict[PartitionKey, str] = {}
        for (name, member_id), owned in self._owned.items():
            if name == group:
                for key in (*owned.assigned, *owned.revoking):
                    if key in owners:
                        self._violate("two_owners", f"{key}: {owners[key]} and {member_id}")
                    owners[key] = member_id

    def _on_offset(self, key: OffsetKey, value: AnyValue | None) -> None:
        at = (key.group, PartitionKey(key.topic_id, key.partition))
        values = self.offsets.setdefault(at, [])
        if not isinstance(value, OffsetValue):
            values.append(CommittedOffset(-1, "", self.now_ns))
            return
        self.commits += 1
        member_id, _, epoch = value.metadata.partition("@")
        owned = self._owned.get((key.group, member_id))
        present = owned.epoch_of(at[1]) if owned is not None else None
        if present is None or present != int(epoch):
            self._violate("stale_commit", f"{at} by {value.metadata}, who owns it since {present}")
        before = values[-1] if values else None
        if before and value.committed_offset < before.offset and before.by != value.metadata:
            self._violate("fallen_offset", f"{at}: {before} became {value}")
        values.append(CommittedOffset(value.committed_offset, value.metadata, self.now_ns))

    # -- the cores -----------------------------------------------------------------------------

    def before_step(self, core: GroupCoordinatorCore) -> dict[str, GroupView] | None:
        """Now and then a view, to be compared with what comes after."""
        self._steps += 1
        return view(core.groups) if self._steps % _CHECK_EVERY == 0 else None

    def after_step(
        self, core: GroupCoordinatorCore, before: dict[str, GroupView] | None, told: Told
    ) -> None:
        """The core's own invariants."""
        if before is None:
            return
        try:
            check(core.groups)
            check_step(before, view(core.groups), told)
        except AssertionError as error:
            self._violate("invariant", str(error))

    def on_loaded(self, core: GroupCoordinatorCore) -> None:
        """What a new leader has loaded is what the log says, by this reading of it."""
        for (group, member_id), owned in self._owned.items():
            loaded = core.groups.get(group)
            member = loaded.members.get(member_id) if loaded else None
            if member is None or (member.epoch, member.assigned, member.revoking) != (
                owned.epoch,
                owned.assigned,
                owned.revoking,
            ):
                self._violate("rebuilt_differs", f"{member_id} of {group}: {member} for {owned}")
        for (group, key), values in self.offsets.items():
            loaded = core.groups.get(group)
            stored = loaded.offsets.get(key) if loaded else None
            if (stored.committed_offset if stored else -1) != values[-1].offset:
                self._violate("rebuilt_differs", f"{key} of {group}: {stored} for {values[-1]}")

    # -- the members ---------------------------------------------------------------------------

    def on_assignment(self, group: str, member_id: str, told: dict[PartitionKey, int]) -> None:
        """A member was answered what it should own: the log has had that, at least once."""
        for key, epoch in told.items():
            name = self._names.get((group, member_id), member_id)
            if self._owners.get(((group, key), epoch)) != name:
                self._violate("not_committed", f"{key} was given to {member_id} at {epoch}")

    def on_commit_acknowledged(self, group: str, key: PartitionKey, offset: int, by: str) -> None:
        """A member was answered that it is stored."""
        values = self.offsets.get((group, key), [])
        if not any(each.offset == offset and each.by == by for each in reversed(values)):
            self._violate("not_committed", f"{offset} of {key} in {group} by {by}")

    def on_fetched(self, group: str, key: PartitionKey, offset: int, sent_ns: int) -> None:
        """A reader was told: it was the committed one at some time since it asked."""
        values = self.offsets.get((group, key), [])
        possible = [-1] if not values or values[0].since_ns > sent_ns else []
        for at, each in enumerate(values):
            is_over = at + 1 < len(values) and values[at + 1].since_ns < sent_ns
            if not is_over:
                possible.append(each.offset)
        if offset not in possible:
            self._violate("wrong_fetch", f"{offset} of {key} in {group}, not of {possible[-5:]}")

    def excuse(self, member_id: str) -> None:
        """An operator removes it: it may begin to read, and read on, until it hears of that."""
        self._excused[member_id] = None

    def excuse_no_more(self, member_id: str) -> None:
        """It has heard."""
        self._excused.pop(member_id, None)

    def on_reading(self, group: str, member_id: str, keys: list[PartitionKey]) -> None:
        """A member begins to read, once the others have stopped whose time is over."""
        for key in keys:
            other = self._readers.get((group, key))
            if other not in (None, member_id) and other not in self._excused:
                if member_id in self._excused:
                    # What it is told was true before it was evicted, and came behind what the next
                    # owner was told; that one is to stay known as the reader.
                    continue
                self._violate("read_twice", f"{key} in {group}: {other} and {member_id}")
            self._readers[group, key] = member_id

    def on_stopped(self, group: str, member_id: str, keys: list[PartitionKey]) -> None:
        """A member has ended to read."""
        for key in keys:
            if self._readers.get((group, key)) == member_id:
                del self._readers[group, key]


def _with_epochs(topics: tuple[OwnedPartitionsValue, ...]) -> dict[PartitionKey, int]:
    return {
        PartitionKey(each.topic_id, PartitionId(number)): epoch
        for each in topics
        for number, epoch in zip(each.partitions, each.epochs, strict=True)
    }
