"""A group's coordinator in memory that keeps the contract's promises, in a few lines.

For tests of the member alone. Time is what the test says.
"""

from tests.client.support.engine_world import failure
from tidelog.client.engine.group.messages import (
    AssignedPartition,
    CommittedOffset,
    GroupPartition,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

MS = 1_000_000


class Member:
    """As the coordinator knows it."""

    def __init__(self, session_ns: int) -> None:
        self.epoch = 0
        self.previous_epoch = -1
        self.topics: tuple[str, ...] = ()
        self.assigned: dict[PartitionKey, int] = {}
        """With partition_assignment_epoch; what is being given up is among them."""
        self.target: set[PartitionKey] = set()
        self.last_told: dict[PartitionKey, int] | None = None
        self.seen_ns = 0
        self.session_ns = session_ns


class FakeCoordinator:
    """Of one group."""

    def __init__(self, *, session_ms: int = 45_000, interval_ms: int = 3_000) -> None:
        self.session_ms = session_ms
        self.interval_ms = interval_ms
        self.partitions: dict[PartitionKey, GroupPartition] = {}
        self.members: dict[str, Member] = {}
        self.group_epoch = 0
        self.committed: dict[PartitionKey, OffsetToCommit] = {}
        self.released: list[tuple[str, PartitionKey]] = []
        """Who reported what as given up, in order."""
        self.stale = 0

    def create(self, partitions: list[GroupPartition]) -> None:
        """A topic came, or has more partitions."""
        self.partitions.update((each.key, each) for each in partitions)
        self._rebalance()

    def owner(self, key: PartitionKey) -> str | None:
        """Who may read it."""
        owners = [name for name, member in self.members.items() if key in member.assigned]
        assert len(owners) <= 1, f"{key} has the owners {owners}"
        return owners[0] if owners else None

    def heartbeat(self, name: str, asked: Heartbeat, now_ns: int) -> HeartbeatAnswer:
        self.expire(now_ns)
        if asked.member_epoch < 0:
            if asked.member_epoch == -1 and self.members.pop(name, None) is not None:
                self._rebalance()
            return HeartbeatAnswer(member_epoch=asked.member_epoch)
        refused = self._admit(name, asked, now_ns)
        if refused is not None:
            return HeartbeatAnswer(error=refused)
        member = self.members[name]
        member.seen_ns = now_ns
        if asked.owned is not None:
            owned = {each.key for each in asked.owned}
            for key in [found for found in member.assigned if found not in owned]:
                if key not in member.target or asked.member_epoch == 0:
                    del member.assigned[key]
                    self.released.append((name, key))
        if asked.subscription is not None and asked.subscription.topics != member.topics:
            member.topics = asked.subscription.topics
            self._rebalance()
        return self._reconciled(member, asked)

    def _admit(self, name: str, asked: Heartbeat, now_ns: int) -> TidelogError | None:
        member = self.members.get(name)
        if asked.member_epoch == 0:
            if member is None:
                self.members[name] = Member(self.session_ms * MS)
            else:
                member.epoch, member.last_told = 0, None
            return None
        if member is None:
            return failure(ErrorCode.UNKNOWN_MEMBER)
        if asked.member_epoch == member.epoch:
            return None
        owned = {each.key for each in asked.owned or ()}
        is_repetition = asked.member_epoch == member.previous_epoch and asked.owned is not None
        if is_repetition and owned <= member.assigned.keys():
            member.last_told = None
            return None
        return failure(ErrorCode.FENCED_MEMBER_EPOCH)

    def _reconciled(self, member: Member, asked: Heartbeat) -> HeartbeatAnswer:
        given_up = [key for key in member.assigned if key not in member.target]
        if not given_up and member.epoch != self.group_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.group_epoch
        if not given_up:
            for key in sorted(member.target - member.assigned.keys()):
                if self.owner(key) is None:
                    member.assigned[key] = member.epoch
        told = {key: epoch for key, epoch in member.assigned.items() if key in member.target}
        assignment = None
        if told != member.last_told or asked.owned is not None:
            member.last_told = told
            assignment = tuple(
                AssignedPartition(
                    topic_partition=self.partitions[key].topic_partition,
                    topic_id=key.topic_id,
                    partition_assignment_epoch=epoch,
                )
                for key, epoch in sorted(told.items())
            )
        return HeartbeatAnswer(
            member_epoch=max(1, member.epoch),
            heartbeat_interval_ms=self.interval_ms,
            session_timeout_ms=self.session_ms,
            assignment=assignment,
            is_idle=not member.target and len(self.members) > len(self.partitions),
        )

    def commit(
        self, name: str, epoch: int, offsets: tuple[OffsetToCommit, ...], now_ns: int
    ) -> tuple[TidelogError | None, list[TidelogError | None]]:
        self.expire(now_ns)
        member = self.members.get(name)
        if name and member is None:
            return failure(ErrorCode.UNKNOWN_MEMBER), []
        if not name and self.members:
            return failure(ErrorCode.UNKNOWN_MEMBER), []
        if member is not None and epoch > member.epoch:
            return failure(ErrorCode.FENCED_MEMBER_EPOCH), []
        results: list[TidelogError | None] = []
        for each in offsets:
            if member is not None:
                given = member.assigned.get(each.key)
                if given is None or not given <= epoch:
                    self.stale += 1
                    results.append(failure(ErrorCode.STALE_ASSIGNMENT))
                    continue
            self.committed[each.key] = each
            results.append(None)
        return None, results

    def look_up(self, partitions: tuple[GroupPartition, ...]) -> tuple[CommittedOffset, ...]:
        found = []
        for each in partitions:
            stored = self.committed.get(each.key)
            found.append(
                CommittedOffset(
                    topic_partition=each.topic_partition,
                    topic_id=each.topic_id,
                    committed_offset=Offset(-1 if stored is None else stored.committed_offset),
                    leader_epoch=LeaderEpoch(-1 if stored is None else stored.leader_epoch),
                    metadata="" if stored is None else stored.metadata,
                )
            )
        return tuple(found)

    def expire(self, now_ns: int) -> None:
        """Whoever was silent for too long is removed."""
        silent = [
            name
            for name, member in self.members.items()
            if now_ns > member.seen_ns + member.session_ns
        ]
        for name in silent:
            del self.members[name]
        if silent:
            self._rebalance()

    def _rebalance(self) -> None:
        """Everybody gets as many, and keeps what it has as far as that goes."""
        self.group_epoch += 1
        names = sorted(name for name, member in self.members.items() if member.topics)
        for member in self.members.values():
            member.target = set()
        wanted = {
            key: [name for name in names if each.topic_partition.topic in self.members[name].topics]
            for key, each in sorted(self.partitions.items())
        }
        read = sum(1 for wishing in wanted.values() if wishing)
        most = -(-read // max(1, len(names)))
        left = []
        for key, wishing in wanted.items():
            holder = next((name for name in wishing if key in self.members[name].assigned), None)
            if holder is not None and len(self.members[holder].target) < most:
                self.members[holder].target.add(key)
            elif wishing:
                left.append((key, wishing))
        for key, wishing in left:
            least = min(wishing, key=lambda name: (len(self.members[name].target), name))
            self.members[least].target.add(key)
