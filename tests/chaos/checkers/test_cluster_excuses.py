"""What the cluster suite excuses: with flush=replicated the loss of all who were sure, no more."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica
from tidelog.chaos.checkers.cluster.board import PartitionBoard, Position
from tidelog.chaos.checkers.history.history import Excuse, History
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.plan import Plan, draw_plan
from tidelog.chaos.sim.cluster.watch import ClusterWatch
from tidelog.chaos.sim.world.world import World
from tidelog.metadata.image.image import BrokerImage, Image, PartitionImage, TopicImage
from tidelog.metadata.image.map import ImageMap
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.server.node.view import NodeView
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

TOPIC_ID = TopicId(bytes(range(16)))
KEY = PartitionKey(TOPIC_ID, PartitionId(0))
COMMITTED = 10


def plan_of_three() -> Plan:
    for seed in range(100):
        plan = draw_plan(Seeds(seed), replication_max=3)
        if len(plan.nodes) == 3:
            return plan
    raise AssertionError("many plans have three nodes")


class ShownNode(ClusterNode):
    """Of which nothing is seen but the metadata and the replica that it shows."""

    shown: Image | None = None
    shown_replica: Replica | None = None

    def replicas(self) -> Iterator[Replica]:
        """At most one."""
        if self.shown_replica is not None:
            yield self.shown_replica

    @property
    def view(self) -> NodeView:
        return NodeView(directories=(), replicas=None, is_recovered=False, image=self.shown)


def registered(number: int) -> BrokerImage:
    return BrokerImage(
        broker_id=BrokerId(number),
        epoch=BrokerEpoch(number),
        incarnation=bytes(16),
        listeners={},
        host_name="",
        rack="",
        is_fenced=False,
    )


class Scene:
    """Three nodes that hold one partition, and what each of them has flushed."""

    def __init__(
        self,
        flushed: dict[int, int],
        *,
        flush: str = "replicated",
        in_sync: tuple[int, ...] = (1, 2),
        eligible: tuple[int, ...] = (),
    ) -> None:
        world, plan = World(1), plan_of_three()
        world.close()
        self.history = History()
        self.nodes = {n.node_id: ShownNode(world, plan, n, ()) for n in plan.nodes}
        self.watch = ClusterWatch(list(self.nodes.values()), self.history)
        partition = PartitionImage(
            partition=PartitionId(0),
            leader_id=BrokerId(1),
            leader_epoch=LeaderEpoch(1),
            partition_epoch=PartitionEpoch(1),
            replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
            in_sync_replicas=tuple(BrokerId(each) for each in in_sync),
            eligible_replicas=tuple(BrokerId(each) for each in eligible),
        )
        self.topic = topic = TopicImage(
            topic_id=TOPIC_ID,
            name="t",
            configuration={"flush": flush, "min.insync.replicas": "2"},
            is_internal=False,
            partitions=(partition,),
        )
        self.board = PartitionBoard(KEY, topic, partition)
        self.board.committed = COMMITTED
        self.board.positions = {
            node_id: Position(flushed_offset=offset) for node_id, offset in flushed.items()
        }
        self.watch.board.partitions[KEY] = self.board

    def crash(self, *node_ids: int) -> Excuse | None:
        for node_id in node_ids:
            self.watch.on_crash(self.nodes[node_id])
        return self.board.excuse

    def lose_in_sync(self) -> list[str]:
        """The third node shows that nobody is in sync since the first two were."""
        return self.show(in_sync_replicas=(), last_known_eligible=(BrokerId(1), BrokerId(2)))

    def show(self, **changes: Any) -> list[str]:
        """The third node shows that the partition has become so; what is found then."""
        changed = msgspec.structs.replace(self.board.image, **changes)
        topic = msgspec.structs.replace(self.topic, partitions=(changed,))
        self.nodes[3].shown = Image(version=1, topics=ImageMap.of({TOPIC_ID: topic}))
        self.watch.look()
        return [text.partition(":")[0] for text in self.watch.board.violations]


def test_one_crashed_machine_of_two_in_sync_excuses_nothing() -> None:
    assert Scene({1: 3, 2: 3}).crash(1) is None


def test_the_crash_of_all_that_were_in_sync_excuses_the_loss() -> None:
    scene = Scene({1: 3, 2: 3})
    assert scene.crash(1, 2) is Excuse.LOST
    scene.watch.settle()
    assert scene.history.excuses == {scene.board.name: Excuse.LOST}


def test_what_one_of_them_had_flushed_is_not_lost() -> None:
    assert Scene({1: 3, 2: COMMITTED}).crash(1, 2) is None


def test_an_eligible_replica_has_to_hold_it_as_well() -> None:
    assert Scene({1: 3, 2: 3, 3: 3}, in_sync=(1,), eligible=(2, 3)).crash(1, 2) is None
    assert Scene({1: 3, 2: 3, 3: 3}, in_sync=(1,), eligible=(2, 3)).crash(1, 2, 3) is Excuse.LOST


def test_with_flush_sync_no_crash_excuses_anything() -> None:
    assert Scene({1: 3, 2: 3}, flush="sync").crash(1, 2, 3) is None


def test_a_rotten_copy_does_not_stand_in_for_a_lost_one() -> None:
    scene = Scene({1: 3, 2: COMMITTED})
    scene.board.damaged[2] = None
    assert scene.crash(1) is Excuse.LOST


def test_a_disk_is_wiped_only_if_somebody_else_is_sure_to_hold_everything() -> None:
    scene = Scene({1: COMMITTED, 2: 3}, in_sync=(1, 2))
    assert scene.watch.is_spare(scene.nodes[1])
    assert scene.crash(2) is None
    assert not scene.watch.is_spare(scene.nodes[1]), "the other one has lost records"
    assert scene.watch.is_spare(scene.nodes[2])


def test_a_wiped_copy_does_not_stand_in_for_a_lost_one() -> None:
    scene = Scene({1: 3, 2: COMMITTED})
    scene.watch.on_wipe(scene.nodes[2])
    assert scene.crash(1) is Excuse.LOST


def with_brokers(scene: Scene) -> Scene:
    """Metadata name the brokers, as they have to before a directory goes back."""
    newest = scene.watch.board.newest
    brokers = {BrokerId(number): registered(number) for number in (1, 2)}
    scene.watch.board.newest = msgspec.structs.replace(newest, brokers=ImageMap.of(brokers))
    return scene


def test_an_old_copy_does_not_stand_in_for_a_lost_one_and_the_last_copy_excuses_the_loss() -> None:
    scene = with_brokers(Scene({1: COMMITTED, 2: COMMITTED}))
    scene.watch.on_rollback(scene.nodes[2])
    assert scene.board.excuse is None
    assert list(scene.board.old_copies) == [2]
    scene.watch.on_rollback(scene.nodes[1])
    assert scene.board.excuse is Excuse.LOST


@pytest.mark.parametrize(("went_back", "kept"), [((1, 2), 0), ((2,), 4)])
def test_an_old_copy_that_leads_keeps_nothing_however_long_it_is_and_whatever_crashes_after(
    went_back: tuple[int, ...], kept: int
) -> None:
    scene = with_brokers(Scene({1: 3, 2: COMMITTED}))
    for node_id in went_back:
        scene.watch.on_rollback(scene.nodes[node_id])
    scene.board.image = msgspec.structs.replace(
        scene.board.image, in_sync_replicas=(), last_known_eligible=(BrokerId(1), BrokerId(2))
    )
    assert scene.crash(1, 2) is Excuse.LOST
    scene.board.see_leader(1, 4)
    assert scene.board.loss is not None
    assert scene.board.loss.kept == kept, "what it holds there may never have been committed"


@pytest.mark.parametrize(
    ("crashed", "wiped", "found"),
    [
        ((1, 2), (), []),
        ((1,), (2,), []),
        ((), (1, 2), []),
        ((1,), (), ["lost_in_sync"]),
        ((), (2,), ["lost_in_sync"]),
    ],
)
def test_a_crash_or_a_replaced_disk_of_each_explains_that_nobody_is_in_sync(
    crashed: tuple[int, ...], wiped: tuple[int, ...], found: list[str]
) -> None:
    scene = Scene({1: 3, 2: 3})
    scene.crash(*crashed)
    for node_id in wiped:
        scene.watch.on_wipe(scene.nodes[node_id])
    assert scene.lose_in_sync() == found


@pytest.mark.parametrize(("flushed", "found"), [(COMMITTED, []), (9, ["left_alone"])])
def test_the_replica_that_is_left_alone_has_flushed_what_is_committed(
    flushed: int, found: list[str]
) -> None:
    alone = (BrokerId(2),)
    scene = Scene({1: COMMITTED, 2: flushed})
    assert scene.show(replicas=alone, in_sync_replicas=alone, leader_id=BrokerId(2)) == found
    lost = Scene({1: 3, 2: flushed})
    lost.board.lose(0, sure=())
    assert lost.show(replicas=alone, in_sync_replicas=alone, leader_id=BrokerId(2)) == []


def test_what_another_node_shows_counts_before_any_replica_is_looked_at() -> None:
    scene = Scene({1: COMMITTED, 2: COMMITTED})
    scene.show(in_sync_replicas=(BrokerId(1),))
    assert scene.board.image.in_sync_replicas == (1,)


def only_replica(scene: Scene) -> Replica:
    """Of the first node; nobody else has the partition."""
    alone = (BrokerId(1),)
    scene.show(replicas=alone, in_sync_replicas=alone)
    return shown_replica(scene)


def shown_replica(scene: Scene) -> Replica:
    """Of the first node, which leads at epoch 1."""
    log = PartitionLog(KEY, LeaderEpoch(1))
    log.log_end_offset = log.flushed_offset = log.high_watermark = Offset(COMMITTED)
    replica = Replica(
        log=log,
        settings=TopicSettings(is_flush_sync=False),
        topic_name="t",
        directory=cast(LogDirectory, None),
        leader_epoch=LeaderEpoch(1),
    )
    scene.nodes[1].shown_replica = replica
    return replica


def test_what_an_only_replica_commits_after_it_heard_that_it_leads_no_more_may_be_lost_too() -> (
    None
):
    scene = Scene({1: COMMITTED})
    replica = only_replica(scene)
    scene.watch.look()
    scene.nodes[1].shown_replica = msgspec.structs.replace(replica, is_led=False)
    scene.watch.look()
    replica.log.log_end_offset = replica.log.high_watermark = Offset(COMMITTED + 2)
    scene.watch.look()
    assert scene.crash(1) is Excuse.LOST


def test_what_it_holds_uncommitted_excuses_nothing() -> None:
    scene = Scene({1: COMMITTED})
    replica = only_replica(scene)
    scene.watch.look()
    replica.log.log_end_offset = Offset(COMMITTED + 2)
    scene.watch.look()
    assert scene.crash(1) is None


@pytest.mark.parametrize(("epochs", "found"), [(1, ["watermark_below_minimum"]), (2, [])])
def test_a_leader_may_have_gone_by_a_set_that_came_with_the_newest_one(
    epochs: int, found: list[str]
) -> None:
    scene = Scene({1: COMMITTED})
    log = shown_replica(scene).log
    scene.watch.look()
    log.log_end_offset = log.flushed_offset = log.high_watermark = Offset(COMMITTED + 2)
    epoch = PartitionEpoch(scene.board.image.partition_epoch + epochs)
    assert scene.show(in_sync_replicas=(BrokerId(1),), partition_epoch=epoch) == found


@pytest.mark.parametrize("is_seen_between", [True, False])
def test_what_a_leader_has_written_since_its_election_is_nothing_that_a_loss_has_left(
    *, is_seen_between: bool
) -> None:
    scene = Scene({1: 6, 2: 6})
    replica = shown_replica(scene)
    log = replica.log
    log.log_end_offset = log.flushed_offset = log.high_watermark = Offset(6)
    scene.nodes[1].shown_replica = msgspec.structs.replace(replica, is_led=False)
    scene.watch.look()
    assert scene.crash(1, 2) is Excuse.LOST
    scene.nodes[1].shown_replica = replica
    log.led_from = Offset(6)
    if is_seen_between:
        scene.watch.look()
    log.log_end_offset = log.flushed_offset = log.high_watermark = Offset(9)
    scene.watch.look()
    assert scene.board.loss is not None
    assert scene.board.loss.kept == 6
