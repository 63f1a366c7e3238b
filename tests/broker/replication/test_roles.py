"""What each replica is by the image, and who is told."""

from typing import Any, cast

import msgspec

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.shared.messages import Followed
from tidelog.broker.replication.tasks.in_sync_keeper import InSyncKeeper
from tidelog.broker.replication.tasks.roles import RoleKeeper
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

KEY = PartitionKey(TopicId(bytes(16)), PartitionId(0))
BASE = Image()
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class Told:
    """Owner, keeper of in-sync sets and fetchers: what each of them was told, in order."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.followed: dict[PartitionKey, Followed] = {}

    def take(self) -> list[str]:
        words, self.words = self.words, []
        return words


class Owner:
    def __init__(self, told: Told) -> None:
        self._told = told

    def lead(self, log: PartitionLog, leader_epoch: int, **how: Any) -> None:
        del log
        assert how == {"others": (), "in_sync_count": 1, "is_sole": True}
        self._told.words.append(f"lead alone at {leader_epoch}")

    def follow(self, log: PartitionLog, leader_epoch: int) -> None:
        del log
        self._told.words.append(f"follow at {leader_epoch}")


class InSync:
    def __init__(self, told: Told) -> None:
        self._told = told
        self.held: dict[PartitionKey, None] = {}

    def on_image(self, image: Image) -> None:
        del image

    def lead(self, log: PartitionLog, owner: object, led: Any, *, is_flush_sync: bool) -> None:
        del owner, is_flush_sync
        self.held[log.key] = None
        self._told.words.append(f"lead at {led.leader_epoch}.{led.partition_epoch} {led.in_sync}")

    def resign(self, key: PartitionKey) -> None:
        if key in self.held:
            del self.held[key]
            self._told.words.append("resign")


class World:
    """Broker 1 and one replica."""

    def __init__(self) -> None:
        self.told = Told()
        self.log = PartitionLog(KEY, LeaderEpoch(0))
        self.owner = cast("DirectoryOwner", Owner(self.told))
        self.roles = RoleKeeper(
            ONE, cast("InSyncKeeper", InSync(self.told)), lambda all_: self.follow(dict(all_))
        )
        self.now = PartitionImage(
            partition=PartitionId(0),
            leader_id=ONE,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=(ONE, TWO, THREE),
            in_sync_replicas=(ONE, TWO, THREE),
        )
        self.roles.on_image(BASE)
        self.roles.settle()
        self.told.take()

    def follow(self, followed: dict[PartitionKey, Followed]) -> None:
        self.told.followed = followed
        self.told.words.append("pull" if followed else "pull nothing")

    def image(self, leader: int | None = None, **changes: Any) -> list[str]:
        """What is told when the partition becomes so."""
        known = self.now
        if leader is not None:
            changes["leader_id"] = BrokerId(leader)
            changes["leader_epoch"] = LeaderEpoch(known.leader_epoch + 1)
        changes.setdefault("partition_epoch", PartitionEpoch(known.partition_epoch + 1))
        self.now = msgspec.structs.replace(known, **changes)
        self.roles.on_image(BASE)
        self.roles.take(self.log, self.owner, self.now, is_flush_sync=True)
        self.roles.settle()
        return self.told.take()


def test_a_leader_resigns_before_it_follows_and_is_told_to_follow_before_anything_is_pulled() -> (
    None
):
    world = World()
    assert world.image() == ["lead at 0.1 (1, 2, 3)"]
    assert world.image(2) == ["resign", "follow at 1", "pull"]
    assert world.told.followed[KEY].leader_id == TWO
    assert world.image(1) == ["lead at 2.3 (1, 2, 3)", "pull nothing"]


def test_within_an_epoch_a_leader_hears_of_its_set_and_a_follower_of_nothing() -> None:
    world = World()
    world.image()
    assert world.image(in_sync_replicas=(ONE, TWO)) == ["lead at 0.2 (1, 2)"]
    world.image(2)
    assert world.image(in_sync_replicas=(TWO, THREE)) == ["pull"]
    assert world.told.followed[KEY].partition_epoch == 4


def test_one_of_several_that_is_left_alone_and_does_not_lead_waits_for_nobody_of_before() -> None:
    world = World()
    world.image()
    alone = {"replicas": (ONE,), "in_sync_replicas": (ONE,)}
    assert world.image(NO_LEADER, **alone) == ["resign", "follow at 1"]
    assert world.image(NO_LEADER) == [], "it is told once"
    assert world.image(1) == ["lead alone at 3"]


def test_where_nobody_leads_nobody_is_pulled_from() -> None:
    world = World()
    world.image(2)
    assert world.image(NO_LEADER) == ["follow at 2", "pull nothing"]


def test_an_only_replica_keeps_its_role_while_nobody_leads() -> None:
    world = World()
    alone = {"replicas": (ONE,), "in_sync_replicas": (ONE,)}
    assert world.image(1, **alone) == ["lead alone at 1"]
    assert world.image(NO_LEADER) == []
    assert world.image(1) == ["lead alone at 3"]
    assert world.image() == []


def test_an_only_replica_that_gets_company_and_loses_it_again() -> None:
    world = World()
    world.image(1, replicas=(ONE,), in_sync_replicas=(ONE,))
    assert world.image(replicas=(ONE, TWO)) == ["lead at 1.2 (1,)"]
    assert world.image(replicas=(ONE,)) == ["resign", "lead alone at 1"]


def test_only_one_out_of_sync_may_give_up_what_was_committed() -> None:
    world = World()
    world.image(2, is_recovered_unclean=True, in_sync_replicas=(TWO,))
    assert world.told.followed[KEY].is_unclean
    world.image(in_sync_replicas=(TWO, ONE))
    assert not world.told.followed[KEY].is_unclean


def test_a_copy_from_before_an_unclean_election_may_give_up_what_was_committed_then() -> None:
    world = World()
    out_of_sync = {"in_sync_replicas": (TWO,), "unclean_epoch": LeaderEpoch(1)}
    world.image(2, **out_of_sync)
    assert world.told.followed[KEY].is_unclean, "it holds nothing of that epoch"
    world.log.leader_epochs.note(0, 0)
    world.image(2, **out_of_sync)
    assert world.told.followed[KEY].is_unclean
    world.image(in_sync_replicas=(TWO, ONE))
    assert not world.told.followed[KEY].is_unclean
    world.log.leader_epochs.note(1, 5)
    world.image(2, **out_of_sync)
    assert not world.told.followed[KEY].is_unclean, "it went on from what was left"


def test_a_log_that_has_stopped_pulls_nothing() -> None:
    world = World()
    world.image(2)
    world.log.failure = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="rotten")
    world.roles.take(world.log, world.owner, world.now, is_flush_sync=True)
    world.roles.settle()
    assert world.told.take() == ["pull nothing"]


def test_a_replica_that_is_gone_is_neither_led_nor_pulled() -> None:
    world = World()
    world.image()
    world.roles.drop(KEY)
    assert world.told.take() == ["resign"]
    world.image(2)
    world.roles.drop(KEY)
    world.roles.settle()
    assert world.told.take() == ["pull nothing"]
    assert world.image() == ["follow at 1", "pull"], "it comes back"


def test_the_fetchers_look_again_when_the_cluster_s_settings_change() -> None:
    world = World()
    world.image(2)
    settings = BASE.cluster_configuration.updated({"reassignment.throttle.bytes.per.second": "5"})
    world.roles.on_image(Image(cluster_configuration=settings))
    world.roles.settle()
    assert world.told.take() == ["pull"]


def test_a_log_that_is_opened_again_takes_its_role_up_without_resigning() -> None:
    world = World()
    world.image()
    world.roles.stand_by(KEY)
    world.roles.settle()
    assert world.told.take() == [], "who was asked for still counts"
    assert world.image() == ["lead at 0.2 (1, 2, 3)"]
    world.image(2)
    world.roles.stand_by(KEY)
    world.roles.settle()
    assert world.told.take() == ["pull nothing"]
    world.log = PartitionLog(KEY, LeaderEpoch(1))
    assert world.image() == ["follow at 1", "pull"]
