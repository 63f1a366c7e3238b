"""Which copies of an acknowledged batch the cluster suite counts, and what excuses missing ones.

A batch lies on the disks of three nodes, one of them answers its producer, and the watch says what
is wrong with that.
"""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from tests.chaos.checkers.test_cluster_excuses import plan_of_three
from tests.chaos.checkers.test_cluster_invariants import KEY, partition, topic
from tidelog.broker.log.names import directory_name, segment_name
from tidelog.chaos.checkers.cluster.board import LATELY_NS, ClusterBoard, PartitionBoard
from tidelog.chaos.sim.base.places import Caller
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.cluster.taps import AnswersWatch
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.log_client import PRODUCE
from tidelog.metadata.image.image import PartitionImage
from tidelog.ports.network import Listener
from tidelog.v1 import produce_pb2
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import BrokerId, PartitionKey

WRITTEN, DURABLE = "written", "durable"
MS = 1_000_000
JUST_IN_TIME_NS, TOO_LATE_NS = 4_999 * MS, 5_001 * MS
"""From the loss of a copy to the answer that still counts on it, and to the one that must not."""
OFFSET = 7
RECORDS = [(0, None, b"promised", ())]


class KnowingNode(ClusterNode):
    """It has heard what it is told here."""

    own: PartitionImage | None = None

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        assert key == KEY, "there is one partition"
        return self.own


class Scene:
    """Three nodes that listen, and one producer."""

    def __init__(self, world: World) -> None:
        plan = plan_of_three()
        self.world = world
        self.nodes = {each.node_id: KnowingNode(world, plan, each, ()) for each in plan.nodes}
        self.board = ClusterBoard()
        self.watch = AnswersWatch(list(self.nodes.values()), self.board)
        self.producer = world.machine("producer").start("producer", _idle)
        for node in self.nodes.values():
            process = node.machine.start(node.name, _idle)
            world.fabric.bind(process, Listener(name="client", bind=node.address), {})

    def verdict(
        self,
        copies: Mapping[int, str],
        *,
        flush: str,
        replicas: tuple[int, ...] = (1, 2, 3),
        answering: int = 1,
        alone_ago_ns: int = 2 * LATELY_NS,
        in_sync_alone_ns: int | None = None,
        minimum: int = 2,
        decided_start: int = 0,
        gone_ago_ns: Mapping[int, int] | None = None,
    ) -> str:
        """Of an acknowledgement of two copies: the kind of what is wrong; "" if nothing is."""
        image = msgspec.structs.replace(
            partition(), replicas=tuple(BrokerId(each) for each in replicas)
        )
        board = self.board.partitions[KEY] = PartitionBoard(
            KEY, topic(image, flush=flush, minimum=minimum), image
        )
        board.decided_start = decided_start
        now_ns = self.world.loop.now_ns
        for node_id, ago_ns in (gone_ago_ns or {}).items():
            board.gone_ns[node_id] = now_ns - ago_ns
        board.alone_until_ns = now_ns - alone_ago_ns
        if in_sync_alone_ns is not None:
            own = self.nodes[answering].own = partition(in_sync=(answering,), leader=answering)
            board.see_own(answering, own, now_ns - in_sync_alone_ns)
        for node_id, state in copies.items():
            store(self.nodes[node_id].machine.medium(), is_durable=state == DURABLE)
        self._acknowledge(self._exchange(answering))
        assert self.watch.acknowledged == 1
        assert len(self.board.violations) <= 1
        return "".join(text.partition(":")[0] for text in self.board.violations)

    def lost(self, times: dict[int, int], node_id: int, ago_ns: int) -> None:
        """One of the two dictionaries hears what befell a node, and how long ago."""
        times[node_id] = self.world.loop.now_ns - ago_ns

    def _exchange(self, answering: int) -> Exchange:
        caller = Caller(self.producer, "producer:40001", "producer")
        return self.world.fabric.open(caller, self.nodes[answering].address, PRODUCE, 1_000)

    def _acknowledge(self, exchange: Exchange) -> None:
        sent = produce_pb2.PartitionBatch(
            topic_id=KEY.topic_id, partition=KEY.partition, batch=encode_batch(RECORDS)
        )
        request = produce_pb2.ProduceRequest(batches=[sent], acks=produce_pb2.ACKS_ALL)
        said = produce_pb2.PartitionAcknowledgement(topic_id=KEY.topic_id, base_offset=OFFSET)
        answer = produce_pb2.ProduceResponse(acknowledgements=[said])
        self.watch(exchange, "request", request.SerializeToString())
        self.watch(exchange, "reply", answer.SerializeToString())


async def _idle(ports: object) -> None:
    """A process of which only the name matters."""
    del ports


def store(medium: Medium, *, is_durable: bool) -> None:
    """The batch as a broker keeps it, flushed with its names or not."""
    segment, directory = Inode(), Directory()
    segment.write(encode_batch(RECORDS, base_offset=OFFSET, leader_epoch=1))
    medium.change_names(NameChange(added=(medium.root, directory_name(KEY), directory)))
    medium.change_names(NameChange(added=(directory, segment_name(0), segment)))
    if is_durable:
        segment.cover(segment.made)
        for each in (medium.root, directory):
            medium.cover_names(each, each.made)


@pytest.fixture
def scene() -> Iterator[Scene]:
    world = World(1)
    yield Scene(world)
    world.close()


# -- copies that are there ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flush", "second", "verdict"),
    [
        ("sync", DURABLE, ""),
        ("sync", WRITTEN, "not_flushed"),
        ("replicated", WRITTEN, ""),
        ("replicated", None, "not_copied"),
    ],
)
def test_a_promise_of_two_copies_needs_both_as_the_topic_wants_them(
    scene: Scene, flush: str, second: str | None, verdict: str
) -> None:
    copies = {1: DURABLE} if second is None else {1: DURABLE, 2: second}
    assert scene.verdict(copies, flush=flush) == verdict


@pytest.mark.parametrize(("decided_start", "verdict"), [(OFFSET, "not_flushed"), (OFFSET + 1, "")])
def test_a_batch_that_is_told_to_be_there_may_have_been_deleted_since(
    scene: Scene, decided_start: int, verdict: str
) -> None:
    assert scene.verdict({}, flush="sync", decided_start=decided_start) == verdict


@pytest.mark.parametrize(
    ("ago_ns", "verdict"), [(JUST_IN_TIME_NS, ""), (TOO_LATE_NS, "not_copied")]
)
def test_an_only_replica_that_got_others_was_enough_a_moment_ago_and_not_longer(
    scene: Scene, ago_ns: int, verdict: str
) -> None:
    assert scene.verdict({1: DURABLE}, flush="replicated", alone_ago_ns=ago_ns) == verdict


def test_of_an_only_replica_its_own_copy_counts_alone(scene: Scene) -> None:
    copies = {1: WRITTEN, 2: DURABLE, 3: DURABLE}
    assert scene.verdict(copies, flush="replicated", replicas=(1,)) == "not_flushed"


@pytest.mark.parametrize(
    ("copies", "alone_ns", "verdict"),
    [
        ({1: WRITTEN}, TOO_LATE_NS, "not_flushed"),
        ({1: WRITTEN, 2: DURABLE}, TOO_LATE_NS, "not_flushed"),
        ({1: DURABLE}, TOO_LATE_NS, ""),
        ({1: WRITTEN}, JUST_IN_TIME_NS, ""),
        ({1: WRITTEN}, None, ""),
    ],
)
def test_of_a_leader_that_has_long_been_in_sync_alone_its_own_durable_copy_counts(
    scene: Scene, copies: dict[int, str], alone_ns: int | None, verdict: str
) -> None:
    said = scene.verdict(copies, flush="replicated", minimum=1, in_sync_alone_ns=alone_ns)
    assert said == verdict


# -- copies that are gone ----------------------------------------------------------------------


@pytest.mark.parametrize(("flush", "kind"), [("sync", "not_flushed"), ("replicated", "not_copied")])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_disk_that_was_replaced_had_its_copy_a_moment_ago_and_not_longer(
    scene: Scene, flush: str, kind: str, is_late: bool
) -> None:
    scene.lost(scene.watch.wiped_ns, 2, TOO_LATE_NS if is_late else JUST_IN_TIME_NS)
    assert scene.verdict({1: DURABLE}, flush=flush) == (kind if is_late else "")


@pytest.mark.parametrize(("flush", "kind"), [("sync", "not_flushed"), ("replicated", "not_copied")])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_copy_whose_file_was_taken_away_counts_a_moment_longer_and_for_one_copy(
    scene: Scene, flush: str, kind: str, is_late: bool
) -> None:
    gone = {2: TOO_LATE_NS if is_late else JUST_IN_TIME_NS}
    said = scene.verdict({1: DURABLE}, flush=flush, gone_ago_ns=gone)
    assert said == (kind if is_late else "")


def test_a_copy_that_was_taken_away_does_not_stand_for_another_one(scene: Scene) -> None:
    assert scene.verdict({}, flush="sync", gone_ago_ns={2: 0}) == "not_flushed"


def test_a_replaced_disk_stands_for_one_copy_only(scene: Scene) -> None:
    scene.lost(scene.watch.wiped_ns, 2, 0)
    assert scene.verdict({}, flush="sync") == "not_flushed"


def test_a_copy_that_came_back_to_a_replaced_disk_is_not_counted_twice(scene: Scene) -> None:
    scene.lost(scene.watch.wiped_ns, 1, 0)
    assert scene.verdict({1: DURABLE}, flush="sync") == "not_flushed"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_crash_takes_what_is_merely_written(scene: Scene, is_late: bool) -> None:
    scene.lost(scene.watch.crashed_ns, 2, TOO_LATE_NS if is_late else JUST_IN_TIME_NS)
    assert scene.verdict({1: WRITTEN}, flush="replicated") == ("not_copied" if is_late else "")


def test_a_crash_takes_nothing_durable(scene: Scene) -> None:
    scene.lost(scene.watch.crashed_ns, 2, 0)
    assert scene.verdict({1: DURABLE}, flush="sync") == "not_flushed"


@pytest.mark.parametrize(("crashed_ago_ns", "wiped_ago_ns"), [(0, TOO_LATE_NS), (TOO_LATE_NS, 0)])
def test_the_later_of_a_crash_and_a_replaced_disk_took_the_copy(
    scene: Scene, crashed_ago_ns: int, wiped_ago_ns: int
) -> None:
    scene.lost(scene.watch.crashed_ns, 2, crashed_ago_ns)
    scene.lost(scene.watch.wiped_ns, 2, wiped_ago_ns)
    assert scene.verdict({1: WRITTEN}, flush="replicated") == ""


# -- one replica is left -----------------------------------------------------------------------


@pytest.mark.parametrize(("copy", "verdict"), [(DURABLE, ""), (WRITTEN, "not_flushed")])
def test_the_only_replica_promises_what_is_durable(scene: Scene, copy: str, verdict: str) -> None:
    assert scene.verdict({1: copy}, flush="replicated", replicas=(1,)) == verdict


@pytest.mark.parametrize(("is_wiped", "verdict"), [(True, ""), (False, "not_flushed")])
def test_the_only_replica_loses_its_copy_with_its_disk_and_not_by_a_crash(
    scene: Scene, is_wiped: bool, verdict: str
) -> None:
    watch = scene.watch
    scene.lost(watch.wiped_ns if is_wiped else watch.crashed_ns, 1, 0)
    assert scene.verdict({}, flush="replicated", replicas=(1,)) == verdict


@pytest.mark.parametrize(("copies", "verdict"), [({2: WRITTEN}, ""), ({}, "not_copied")])
def test_who_has_not_heard_that_another_one_was_left_alone_promises_what_is_written(
    scene: Scene, copies: dict[int, str], verdict: str
) -> None:
    assert scene.verdict(copies, flush="replicated", replicas=(1,), answering=2) == verdict


@pytest.mark.parametrize(("copy", "verdict"), [(DURABLE, ""), (WRITTEN, "not_flushed")])
def test_with_flush_sync_a_copy_has_to_be_durable_whoever_answers(
    scene: Scene, copy: str, verdict: str
) -> None:
    assert scene.verdict({2: copy}, flush="sync", replicas=(1,), answering=2) == verdict
