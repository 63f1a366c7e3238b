"""Reads on leaders and followers: who serves what, who names whom, what is answered at once."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

import pytest

from tests.broker.support.log_shelf import TOPIC, LogShelf, batch_at
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.fetch.handler import FetchHandler, FetchRequest, PartitionBatches
from tidelog.broker.services.fetch.places import ReadPlaces, parting_of
from tidelog.broker.services.fetch.stream import FetchSession, FetchStreamRequest
from tidelog.broker.services.fetch.wire import envelope_message
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.metadata.image.image import BrokerImage, Image, ImageMap, PartitionImage, TopicImage
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import RequestContext
from tidelog.ports.request_context import NO_DEADLINE_NS
from tidelog.wire.calls.fetch import Divergence, FetchPosition
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
)

CONTEXT = RequestContext(
    principal="somebody", listener="client", client_id="", address="", deadline_ns=NO_DEADLINE_NS
)
HERE = 1
EPOCH = 6
INDEX = 77


def broker(number: int, rack: str, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=BrokerId(number),
        epoch=BrokerEpoch(number),
        incarnation=bytes(16),
        listeners={},
        host_name="h",
        rack=rack,
        is_fenced=is_fenced,
    )


class Node:
    """One partition on broker 1, led by whom the test says, in a cluster of three racks."""

    def __init__(self, *, leader: int = HERE, in_sync: Sequence[int] = (1, 2, 3)) -> None:
        self.shelf = LogShelf()
        self.log = self.shelf.log
        self.reader = LogReader(self.shelf)
        self.brokers = [broker(1, "a"), broker(2, "b"), broker(3, "c")]
        self.watchers: dict[Callable[[PartitionKey], None], None] = {}
        self.doubters: list[Callable[[TidelogError], None]] = []
        self.is_heard = True
        self.questions = 0
        self.quorum_failure: TidelogError | None = None
        self.led_next: int | None = None
        """Who leads by the metadata that have not come yet."""
        self.set_role(leader, in_sync)

    def set_role(self, leader: int, in_sync: Sequence[int] = (1, 2, 3), epoch: int = EPOCH) -> None:
        """The image says so, and the replica follows."""
        self.leader, self.in_sync = leader, in_sync
        self.log.leader_epoch = LeaderEpoch(epoch)
        for watcher in list(self.watchers):
            watcher(self.shelf.key)

    def name_of(self, topic_id: bytes, partition: int) -> str:
        del topic_id
        return f"t-{partition}"

    # As much of the metadata as is asked for.

    def image(self) -> Image:
        everybody = tuple(BrokerId(each) for each in (1, 2, 3))
        partition = PartitionImage(
            partition=PartitionId(0),
            leader_id=BrokerId(self.leader),
            leader_epoch=self.log.leader_epoch,
            partition_epoch=PartitionEpoch(1),
            replicas=everybody,
            in_sync_replicas=tuple(BrokerId(each) for each in self.in_sync),
        )
        topic = TopicImage(
            topic_id=TOPIC, name="t", configuration={}, is_internal=False, partitions=(partition,)
        )
        return Image(
            brokers=ImageMap.of({each.broker_id: each for each in self.brokers}),
            topics=ImageMap.of({TOPIC: topic}),
        )

    async def wait_version(self, version: int) -> Image:
        raise AssertionError(f"nobody waits for version {version} here")

    # As much of the replicas and their directory.

    def told(self, key: PartitionKey, error: TidelogError) -> TidelogError:
        del key
        return error

    def get(self, topic_id: bytes, partition: int) -> Replica | None:
        del topic_id, partition
        return Replica(
            log=self.log,
            settings=TopicSettings(),
            topic_name="t",
            directory=cast(LogDirectory, self),
            is_led=self.leader == HERE,
        )

    def find(self, topic_id: bytes, partition: int, leader_epoch: int, *, tried: str) -> Replica:
        replica = self.get(topic_id, partition)
        assert replica is not None
        if not replica.is_led:
            raise TidelogError(ErrorCode.NOT_LEADER, tried=tried, happened="another one leads")
        if leader_epoch not in (-1, self.log.leader_epoch):
            raise TidelogError(ErrorCode.FENCED_LEADER_EPOCH, tried=tried, happened="it is over")
        return replica

    def watch(self, key: PartitionKey, watcher: Callable[[PartitionKey], None]) -> None:
        del key
        self.watchers[watcher] = None

    def unwatch(self, key: PartitionKey, watcher: Callable[[PartitionKey], None]) -> None:
        del key
        self.watchers.pop(watcher, None)

    def watch_doubt(self, doubter: Callable[[TidelogError], None]) -> None:
        self.doubters.append(doubter)

    def unwatch_doubt(self, doubter: Callable[[TidelogError], None]) -> None:
        self.doubters.remove(doubter)

    def reading(self, segment: SegmentKey) -> AbstractContextManager[None]:
        return self.shelf.reading(segment)

    def handler(self) -> FetchHandler:
        replicas = cast(Replicas, self)
        places = ReadPlaces(self, BrokerId(HERE))
        return FetchHandler(replicas, BrokerLimits(), self.leadership(), places)

    def leadership(self) -> Leadership:
        return Leadership(self.read_index, self.wait_applied, is_in_contact=lambda: self.is_heard)

    async def read_index(self, timeout_ms: int) -> int:
        del timeout_ms
        self.questions += 1
        if self.quorum_failure is not None:
            raise self.quorum_failure
        return INDEX

    async def wait_applied(self, version: int) -> None:
        assert version == INDEX, "the index that the quorum has named"
        if self.led_next is not None:
            self.set_role(self.led_next)

    def fetch(self, offset: int, *, rack: str = "", **fields: int) -> PartitionBatches | None:
        """A long poll that does not wait."""
        asked = FetchRequest([position(offset, **fields)], 0, 1, 0, rack)
        found = asyncio.run(self.handler().fetch(CONTEXT, asked))
        return found[0] if found else None


def position(
    offset: int, *, epoch: int = -1, last_epoch: int = -1, stays_here: int = 0
) -> FetchPosition:
    return FetchPosition(
        topic_id=TOPIC,
        partition=PartitionId(0),
        leader_epoch=LeaderEpoch(epoch),
        fetch_offset=Offset(offset),
        last_fetched_epoch=LeaderEpoch(last_epoch),
        stays_here=bool(stays_here),
    )


def parting(leader_epoch: int, end_offset: int) -> Divergence:
    return Divergence(LeaderEpoch(leader_epoch), Offset(end_offset))


def written(node: Node, *epochs: int, committed: int | None = None) -> Node:
    """A batch of two records of each epoch."""
    for epoch in epochs:
        node.shelf.append(batch_at(1, 2), epoch=epoch)
    node.shelf.commit(committed)
    return node


def test_a_position_above_a_new_leaders_watermark_waits_up_to_its_logs_end() -> None:
    node = written(Node(), 4, 5, 5, committed=2)
    for offset in (2, 4, 6):
        assert node.fetch(offset) is None, "it waits"
        assert node.handler().find(position(offset)).log is node.log, "plain records as well"
    beyond = node.fetch(7)
    assert beyond is not None
    assert beyond.error is not None
    assert beyond.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "from 0 to the high watermark 2, its end is 6" in beyond.error.happened
    node.shelf.commit()
    answer = node.fetch(4)
    assert answer is not None
    assert answer.batches


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (4, -1, None),
        (4, 4, None),
        (2, 3, None),
        (3, 3, (3, 2)),
        (6, 4, (4, 4)),
        (6, 6, None),
        (9, 6, (6, 8)),
        (6, 5, (4, 4)),
        (8, 7, (6, 8)),
        (99, 3, (3, 2)),
    ],
)
def test_a_reader_of_another_past_is_told_where_the_logs_part(
    offset: int, last_epoch: int, expected: tuple[int, int] | None
) -> None:
    # Epoch 3 wrote 0 and 1, epoch 4 wrote 2 and 3, epoch 6 the rest; 7 leads.
    node = written(Node(), 3, 4, 6, 6)
    node.set_role(HERE, epoch=7)
    parted = None if expected is None else parting(*expected)
    assert parting_of(node.log, offset, last_epoch) == parted
    answer = node.fetch(offset, last_epoch=last_epoch)
    if expected is not None:
        assert answer is not None
        assert answer.divergence == parted
        assert (answer.error, answer.batches) == (None, b"")
        message = envelope_message(answer)
        told = (message.divergence.leader_epoch, message.divergence.end_offset)
        assert told == expected


def test_an_epoch_that_was_trimmed_is_no_other_past() -> None:
    node = written(Node(), 3, 4, 6, 6)
    node.log.trim(Offset(4), node.log.leader_epoch)
    assert parting_of(node.log, 4, 4) is None
    assert parting_of(node.log, 4, 3) is None
    assert parting_of(node.log, 5, 3) == parting(-1, 4), "a record of epoch 3 cannot lie there"
    assert parting_of(Node().log, 0, 3) is None, "an empty log proves nothing"


@pytest.mark.parametrize(("offset", "last_epoch"), [(9, 6), (8, 5), (9, -1)])
def test_a_follower_that_may_only_lag_leaves_the_verdict_to_the_leader(
    offset: int, last_epoch: int
) -> None:
    node = written(Node(leader=2), 3, 4, 6, 6)
    answer = node.fetch(offset, last_epoch=last_epoch, rack="a", epoch=EPOCH)
    assert answer is not None
    assert answer.error is not None
    assert answer.error.code is ErrorCode.NOT_LEADER
    assert answer.leader_id == 2


def test_a_leader_that_was_not_told_yet_of_the_readers_epoch_tells_of_no_parting() -> None:
    node = written(Node(), 3, 4, 6, 6)
    answer = node.fetch(4, last_epoch=EPOCH + 1)
    assert answer is not None
    assert answer.error is not None
    assert answer.error.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_below_the_logs_start_no_past_is_looked_at() -> None:
    node = written(Node(), 3, 4, 6)
    node.log.trim(Offset(4), node.log.leader_epoch)
    answer = node.fetch(2, last_epoch=9)
    assert answer is not None
    assert answer.error is not None
    assert answer.error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_those_near_by_up_to_its_own_watermark() -> None:
    node = written(Node(leader=2), 3, 4, 6, committed=4)
    answer = node.fetch(0, rack="a", epoch=EPOCH)
    assert answer is not None
    assert answer.error is None
    assert answer.high_watermark == 4
    assert answer.preferred_replica == -1
    assert node.fetch(4, rack="a", epoch=EPOCH) is None, "what it does not know to be committed"


@pytest.mark.parametrize(
    ("rack", "in_sync", "epoch", "code"),
    [
        ("", (1, 2, 3), -1, ErrorCode.NOT_LEADER),
        ("a", (2, 3), EPOCH, ErrorCode.NOT_LEADER),
        ("a", (1, 2, 3), EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        ("a", (1, 2, 3), EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_follower_names_the_leader_to_those_whom_it_does_not_serve(
    rack: str, in_sync: tuple[int, ...], epoch: int, code: ErrorCode
) -> None:
    node = written(Node(leader=2, in_sync=in_sync), 3, 4, 6)
    answer = node.fetch(0, rack=rack, epoch=epoch)
    assert answer is not None
    assert answer.error is not None
    assert answer.error.code is code
    if code is ErrorCode.UNKNOWN_LEADER_EPOCH:
        assert answer.leader_id is None, "the client knows more than this broker"
        return
    assert (answer.leader_id, answer.leader_epoch) == (2, EPOCH)
    message = envelope_message(answer)
    assert (message.leader_id, message.leader_epoch) == (2, EPOCH)


def test_without_a_leader_nobody_is_named() -> None:
    node = written(Node(leader=-1), 3)
    answer = node.fetch(0)
    assert answer is not None
    assert answer.leader_id is None
    assert not envelope_message(answer).HasField("leader_id")


def test_a_long_poll_gets_batches_and_the_name_of_a_nearer_replica() -> None:
    node = written(Node(), 6)
    answer = node.fetch(0, rack="b")
    assert answer is not None
    assert answer.batches
    assert answer.preferred_replica == 2
    stays = node.fetch(0, rack="b", stays_here=1)
    assert stays is not None
    assert stays.preferred_replica == -1


@pytest.mark.parametrize(
    ("rack", "fenced", "in_sync", "expected"),
    [
        ("", 0, (1, 2, 3), -1),
        ("a", 0, (1, 2, 3), -1),
        ("b", 0, (1, 2, 3), 2),
        ("b", 2, (1, 2, 3), -1),
        ("b", 0, (1, 3), -1),
        ("nowhere", 0, (1, 2, 3), -1),
    ],
)
def test_only_a_replica_in_sync_and_in_the_clients_rack_is_nearer(
    rack: str, fenced: int, in_sync: tuple[int, ...], expected: int
) -> None:
    node = Node(in_sync=in_sync)
    node.brokers = [
        broker(each.broker_id, each.rack, is_fenced=each.broker_id == fenced)
        for each in node.brokers
    ]
    assert node.handler().nearer(position(0), rack) == expected


class Stream:
    """One fetch stream on the node."""

    def __init__(self, node: Node, rack: str = "") -> None:
        self.wakes = 0
        self.session = FetchSession(node.handler(), self._wake)
        self.rack = rack

    def _wake(self) -> None:
        self.wakes += 1

    def take(self, *positions: FetchPosition, credit: int = 0, epoch: int = 1) -> None:
        self.session.take(FetchStreamRequest(positions, [], credit, epoch, 0, self.rack))

    def answers(self) -> list[PartitionBatches]:
        """Everything that is sent now."""
        found: list[PartitionBatches] = []
        while self.session.has_work:
            answer = asyncio.run(self.session.next_answer(self.session.wanted_bytes()))
            if answer is None:
                break
            found += answer.partitions
        return found


@pytest.mark.parametrize("credit", [0, 100_000])
def test_a_parked_stream_is_told_at_once_when_the_role_changes(credit: int) -> None:
    node = written(Node(), 6)
    stream = Stream(node)
    stream.take(position(2, epoch=EPOCH), credit=credit)
    assert stream.answers() == []
    wakes = stream.wakes
    node.set_role(3, epoch=EPOCH + 1)
    assert stream.wakes > wakes, "nobody has to ask"
    (answer,) = stream.answers()
    assert answer.error is not None
    assert answer.error.code is ErrorCode.NOT_LEADER
    assert (answer.leader_id, answer.leader_epoch) == (3, EPOCH + 1)
    node.set_role(1, epoch=EPOCH + 2)
    assert stream.answers() == [], "it is read no more until it is named again"
    assert not node.watchers


DOUBT = TidelogError(ErrorCode.UNAVAILABLE, tried="wait", happened="no controller was heard")


@pytest.mark.parametrize("credit", [0, 100_000])
def test_a_parked_stream_is_told_once_that_its_broker_hears_from_no_controller(credit: int) -> None:
    node = written(Node(), 6)
    node.shelf.log.keep_uncommitted()
    stream = Stream(node)
    stream.take(position(2, epoch=EPOCH), credit=credit)
    assert stream.answers() == []
    wakes = stream.wakes
    for doubter in node.doubters:
        doubter(DOUBT)
    assert stream.wakes > wakes
    (answer,) = stream.answers()
    assert answer.error is not None
    assert answer.error.code is ErrorCode.UNAVAILABLE
    assert (answer.leader_id, answer.leader_epoch) == (None, -1), "it does not know who leads"
    stream.take(position(2, epoch=EPOCH), credit=credit, epoch=2)
    assert stream.answers() == [], "named again it is parked again"
    stream.session.close()
    assert not node.doubters
    assert not node.watchers


def test_a_reader_of_an_only_replica_is_not_disturbed_by_a_silent_controller() -> None:
    node = written(Node(), 6)
    assert not node.shelf.log.has_other_replicas
    stream = Stream(node)
    stream.take(position(2, epoch=EPOCH))
    for doubter in node.doubters:
        doubter(DOUBT)
    assert stream.answers() == []


def test_a_stream_of_an_older_epoch_is_told_although_the_leader_stays() -> None:
    node = written(Node(), 6)
    stream = Stream(node)
    stream.take(position(2, epoch=EPOCH))
    node.set_role(1, epoch=EPOCH + 1)
    (answer,) = stream.answers()
    assert answer.error is not None
    assert answer.error.code is ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.leader_id, answer.leader_epoch) == (1, EPOCH + 1)


def test_batches_wait_for_credit_where_errors_do_not() -> None:
    node = written(Node(), 6)
    stream = Stream(node)
    stream.take(position(0))
    assert not stream.session.has_work
    assert stream.answers() == []
    stream.take(credit=10)
    assert [bool(each.batches) for each in stream.answers()] == [True]


def test_a_stream_sends_its_reader_to_a_nearer_replica_and_reads_no_more() -> None:
    node = written(Node(), 6)
    stream = Stream(node, rack="c")
    stream.take(position(0), credit=100_000)
    (answer,) = stream.answers()
    assert (answer.preferred_replica, answer.batches) == (3, b"")
    stream.take(position(0, stays_here=1), epoch=2)
    (answer,) = stream.answers()
    assert (answer.preferred_replica, bool(answer.batches)) == (-1, True)


def test_a_follower_that_falls_out_of_sync_sends_its_readers_to_the_leader() -> None:
    node = written(Node(leader=2), 6)
    stream = Stream(node, rack="a")
    stream.take(position(2, epoch=EPOCH))
    assert stream.answers() == []
    node.set_role(2, in_sync=(2, 3))
    (answer,) = stream.answers()
    assert answer.error is not None
    assert answer.error.code is ErrorCode.NOT_LEADER
    assert answer.leader_id == 2


def test_a_stream_is_told_of_a_parting_once() -> None:
    node = written(Node(), 3, 6)
    stream = Stream(node)
    stream.take(position(9, last_epoch=5))
    assert [each.divergence for each in stream.answers()] == [parting(3, 2)]
    assert stream.answers() == []


def test_a_stream_that_has_read_into_a_newer_epoch_has_not_parted_from_the_log() -> None:
    node = written(Node(), 3, 4, 6)
    stream = Stream(node)
    stream.take(position(2, last_epoch=3), credit=100_000)
    assert all(each.batches for each in stream.answers())
    node.shelf.append(batch_at(1, 2), epoch=6)
    node.set_role(HERE)
    assert stream.answers() == []
