"""One partition's replicas while a decision is made about it: who may lead, who stays in sync.

Pure. Owns the rules that every change of a partition obeys, whatever caused it:

 1. The leader is in sync; its broker is registered and not fenced, and the directory that holds the
    replica is online. A broker that is stopping leads only where nobody else can.
 2. The in-sync set loses members only while one stays. It is empty only when no replica is known to
    hold every acknowledged record. `last_known_eligible` names those that did and came back without
    being sure to, until a leader that was elected since has been heard of: one that was dead by
    then is asked as they are.
 3. A replica that leaves the in-sync set while it is below `min.insync.replicas` stays eligible:
    the watermark cannot have moved past it. Nobody else is where a leader may move it: with
    `min.insync.replicas` or more in sync, also where that many are since it was lowered.
 4. A new leader, or none, raises the leader epoch by one; every change the partition epoch by one.
 5. A partition that went on from a replica that may lack acknowledged records is marked until every
    replica is in sync: then each has gone on from there, and nothing more may be cut off.
 6. Others go from beside an only replica once its leader has said that what is committed is on that
    one's disk: with flush=replicated it may be in memory alone, and was safe by being there twice.
    So do those that came by a move that is called off, unless nobody has counted on them. Where
    several stay, they go once `min.insync.replicas` of these are in sync, or all.
 7. A replica whose directory went back in time (`directory_epochs`) is neither in sync nor eligible
    until a leader has let it in again; its files stay as they are until one serves, and are then
    cut and filled as any follower's. A sole replica leads, and is marked (rule 5). Where nobody is
    sure to hold everything any more, all replicas are asked, those out of sync as well, and the
    longest log leads: an old copy of the last one in sync may lack what they still have.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from tidelog.metadata.eligibility import has_directory, is_able
from tidelog.metadata.image.image import NO_LEADER, BrokerImage, PartitionImage
from tidelog.metadata.records.entries import PartitionChangeRecord
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId

ValueT = TypeVar("ValueT")


class ReplicaView:
    """What the brokers are good for, as replicas of one partition."""

    __slots__ = ("_brokers", "_partition")

    def __init__(self, brokers: Mapping[BrokerId, BrokerImage], partition: PartitionImage) -> None:
        self._brokers = brokers
        self._partition = partition

    def is_alive(self, broker_id: BrokerId) -> bool:
        """It may go on leading if it leads: not fenced, and its directory is online."""
        broker = self._brokers.get(broker_id)
        is_unfenced = broker is not None and not broker.is_fenced
        return is_unfenced and has_directory(broker, self._partition.directory_of(broker_id))

    def is_usable(self, broker_id: BrokerId) -> bool:
        """It may be elected and come into sync: alive and not stopping."""
        return is_able(self._brokers.get(broker_id)) and self.is_alive(broker_id)


class PartitionState(msgspec.Struct, kw_only=True):
    """What a decision changes; `record` says what became different."""

    topic_id: TopicId
    before: PartitionImage
    leader_id: BrokerId
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...]
    last_known: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    directories: tuple[bytes, ...]
    is_recovered_unclean: bool
    called_off: tuple[BrokerId, ...]
    is_lossy: bool = False
    """Whoever leads from now on may lack acknowledged records that other copies hold."""
    is_renewed: bool = False
    """The partition epoch grows also if nothing else changes."""

    @classmethod
    def of(cls, topic_id: TopicId, partition: PartitionImage) -> "PartitionState":
        """As the image has it."""
        return cls(
            topic_id=topic_id,
            before=partition,
            leader_id=partition.leader_id,
            replicas=partition.replicas,
            in_sync=partition.in_sync_replicas,
            eligible=partition.eligible_replicas,
            last_known=partition.last_known_eligible,
            adding=partition.adding_replicas,
            removing=partition.removing_replicas,
            directories=partition.directories,
            is_recovered_unclean=partition.is_recovered_unclean,
            called_off=partition.called_off_replicas,
        )

    def preference(self) -> tuple[BrokerId, ...]:
        """Replicas in order of preference, those that go at the end."""
        staying = tuple(each for each in self.replicas if each not in self.removing)
        return staying + self.removing

    def set_in_sync(self, wanted: Collection[BrokerId], minimum: int) -> None:
        """Rule 3: whoever leaves while too few stay is eligible still. Rule 5: all are there."""
        left = [each for each in (*self.in_sync, *self.eligible) if each not in wanted]
        self.in_sync = tuple(each for each in self.replicas if each in wanted)
        if len(self.in_sync) >= minimum:
            self.eligible = ()
        else:
            self.eligible = tuple(each for each in self.replicas if each in left)
        if len(self.in_sync) == len(self.replicas):
            self.is_recovered_unclean = False

    def lose(self, lost: Collection[BrokerId]) -> None:
        """These replicas may lack acknowledged records now. A sole replica stays what it is."""
        held = (*self.in_sync, *self.eligible)
        gone = [each for each in held if each in lost]
        if not gone:
            return
        if len(self.replicas) == 1:
            self.recover_unclean()
            return
        self.in_sync = tuple(each for each in self.in_sync if each not in gone)
        self.eligible = tuple(each for each in self.eligible if each not in gone)
        if not self.in_sync:
            # All of them hold every acknowledged record: as good as in sync, and rule 2 is kept.
            self.in_sync, self.eligible = self.eligible, ()
        if self.leader_id in gone:
            self.leader_id = NO_LEADER
        # Each of them held everything; which of them still has the most is to be found out, should
        # nobody be left who is sure to: the leader of now may be as dead as they were.
        candidates = (*self.last_known, *gone)
        self.last_known = tuple(each for each in self.replicas if each in candidates)

    def recover_unclean(self) -> None:
        """The partition goes on from a log that may lack acknowledged records."""
        self.is_recovered_unclean = self.is_lossy = True

    def go_back(self, broker_id: BrokerId) -> None:
        """Rule 7: its directory holds what it held some time ago."""
        self.lose((broker_id,))
        is_somebody_sure = bool(self.in_sync or self.eligible)
        if not is_somebody_sure and broker_id in self.last_known:
            self.last_known = self.replicas

    def settle(self, view: ReplicaView, minimum: int) -> None:
        """Rules 1 to 3 for the brokers as they are now."""
        staying = [each for each in self.in_sync if view.is_usable(each)]
        if self.leader_id not in staying:
            self.leader_id = self._choose(staying, view)
        if self.leader_id == NO_LEADER:
            return
        if self.leader_id not in staying:
            staying.append(self.leader_id)
        if len(staying) != len(self.in_sync) or self.leader_id not in self.in_sync:
            self.set_in_sync(staying, minimum)
        self.leave_to_leader(minimum)

    def leave_to_leader(self, minimum: int) -> None:
        """Rule 3: who leads with enough in sync commits without the others from now on."""
        if self.leader_id != NO_LEADER and len(self.in_sync) >= minimum:
            self.eligible = ()

    def finish_reassignment(self, view: ReplicaView, minimum: int, *, is_flushed: bool) -> bool:
        """Let the replicas go that are to, if all that come are in sync and one can lead. Rule 6:
        `is_flushed` says that what is committed is on the disk of the one that stays."""
        if not self.adding and not self.removing:
            return False
        if any(each not in self.in_sync for each in self.adding):
            return False
        target = [each for each in self.replicas if each not in self.removing]
        if len(target) == 1 and not is_flushed:
            return False
        staying = [each for each in self.in_sync if each in target]
        leaders = [each for each in self.preference() if each in staying and view.is_usable(each)]
        if not leaders or not self.are_enough(target, minimum):
            return False
        self.drop_replicas(self.removing, staying, minimum)
        if self.leader_id not in leaders:
            self.leader_id = leaders[0]
        return True

    def are_enough(self, replicas: Collection[BrokerId], minimum: int) -> bool:
        """Whether of these alone as many are in sync as a commit counts on."""
        in_sync = [each for each in self.in_sync if each in replicas]
        return len(in_sync) >= min(minimum, len(replicas))

    def move_directory(self, broker_id: BrokerId, directory: bytes) -> None:
        """The broker keeps its replica there from now on."""
        place = self.replicas.index(broker_id)
        known = list(self.directories) or [b""] * len(self.replicas)
        known[place] = directory
        self.directories = tuple(known)

    def drop_replicas(
        self, dropped: Collection[BrokerId], staying: Collection[BrokerId], minimum: int
    ) -> None:
        """The dropped ones are no replicas any more; no reassignment is under way after it."""
        kept = [place for place, each in enumerate(self.replicas) if each not in dropped]
        if self.directories:
            self.directories = tuple(self.directories[place] for place in kept)
        self.replicas = tuple(self.replicas[place] for place in kept)
        self.adding = self.removing = self.called_off = ()
        self.eligible = tuple(each for each in self.eligible if each not in dropped)
        self.last_known = tuple(each for each in self.last_known if each not in dropped)
        self.set_in_sync(staying, minimum)
        self.eligible = tuple(each for each in self.eligible if each not in dropped)

    def record(self) -> PartitionChangeRecord | None:
        """What changed; None: nothing did."""
        if not (self.is_renewed or self._is_changed()):
            return None
        before = self.before
        has_new_leader = self.leader_id != before.leader_id
        leader_epoch = LeaderEpoch(before.leader_epoch + has_new_leader)
        changed = PartitionChangeRecord(
            topic_id=self.topic_id,
            partition=before.partition,
            partition_epoch=PartitionEpoch(before.partition_epoch + 1),
            leader_id=self.leader_id if has_new_leader else None,
            leader_epoch=leader_epoch if has_new_leader else None,
            replicas=_new(before.replicas, self.replicas),
            in_sync_replicas=_new(before.in_sync_replicas, self.in_sync),
            directories=_new(before.directories, self.directories),
            eligible_replicas=_new(before.eligible_replicas, self.eligible),
            last_known_eligible=_new(before.last_known_eligible, self.last_known),
            adding_replicas=_new(before.adding_replicas, self.adding),
            removing_replicas=_new(before.removing_replicas, self.removing),
            is_recovered_unclean=_new(before.is_recovered_unclean, self.is_recovered_unclean),
            called_off_replicas=_new(before.called_off_replicas, self.called_off),
            unclean_epoch=_new(before.unclean_epoch, leader_epoch) if self.is_lossy else None,
        )
        self._check()
        return changed

    def _is_changed(self) -> bool:
        before = self.before
        return not (
            self.leader_id == before.leader_id
            and self.in_sync == before.in_sync_replicas
            and self.eligible == before.eligible_replicas
            and self.last_known == before.last_known_eligible
            and self.replicas == before.replicas
            and self.directories == before.directories
            and self.adding == before.adding_replicas
            and self.removing == before.removing_replicas
            and self.is_recovered_unclean == before.is_recovered_unclean
            and self.called_off == before.called_off_replicas
        )

    def _choose(self, staying: Collection[BrokerId], view: ReplicaView) -> BrokerId:
        for candidate in self.preference():
            if candidate in staying:
                return candidate
        for candidate in self.preference():
            if candidate in self.eligible and view.is_usable(candidate):
                return candidate
        # A broker that is stopping goes on where nobody can follow it, until it has stopped.
        if self.leader_id in self.in_sync and view.is_alive(self.leader_id):
            return self.leader_id
        return NO_LEADER

    def _check(self) -> None:
        where = f"partition {self.topic_id.hex()}-{self.before.partition}"
        assert self.leader_id == NO_LEADER or self.leader_id in self.in_sync, (
            f"{where} is led by a broker that is not in sync"
        )
        assert self.in_sync or self.last_known, f"the in-sync set of {where} shrinks to nothing"
        assert all(each in self.replicas for each in (*self.in_sync, *self.eligible)), (
            f"{where} counts on a broker that is no replica"
        )


def _new(before: ValueT, after: ValueT) -> ValueT | None:
    return None if before == after else after
