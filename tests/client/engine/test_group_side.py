"""Where a member's partitions begin, when the topic or the assignment changes meanwhile."""

import time

import msgspec
import pytest

from tests.client.engine.test_engine_consumer import World
from tests.client.support.engine_world import failure, view
from tidelog.client import TopicPartition
from tidelog.client.arguments.options import ConsumerOptions
from tidelog.client.engine.fetch.messages import MetadataArrived
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.group.messages import (
    Assign,
    AssignedPartition,
    CommittedOffset,
    CommitWanted,
    GroupMessage,
    GroupNews,
    LookupWanted,
    Lost,
    OffsetsFound,
    Reconciled,
    Revoke,
)
from tidelog.client.reading.group_options import settings_of
from tidelog.client.reading.group_side import OUTSIDE, GroupSide, Standing, UserHooks
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import Offset, TopicId

OLD, NEW = b"1" * 16, b"2" * 16
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Listener:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, names: set[TopicPartition]) -> None:
        self.heard.append(("assigned", names))

    def on_partitions_revoked(self, names: set[TopicPartition]) -> None:
        self.heard.append(("revoked", names))

    def on_partitions_lost(self, names: set[TopicPartition]) -> None:
        self.heard.append(("lost", names))


class Side:
    """The user's side of a member that knows the old topic; nothing runs below it."""

    def __init__(self, reset: OffsetSpec | None = OffsetSpec.EARLIEST) -> None:
        self.core = World(reset).core
        self.posted: list[GroupMessage] = []
        options = ConsumerOptions(bootstrap_servers="a:1", group_id="g")
        hooks = UserHooks(
            note_position=lambda: None,
            put_back_chunk_of=lambda _: None,
            forget_chunk=lambda: None,
        )
        settings = settings_of(options)
        self.group = GroupSide(options, settings, self.core, self.posted.append, hooks)
        self.know(OLD, 1)

    def know(self, topic_id: bytes, version: int) -> None:
        found = view({"t": [(1, 0), (1, 0)]}, version)
        topics = tuple(msgspec.structs.replace(each, topic_id=topic_id) for each in found.topics)
        found = msgspec.structs.replace(found, topics=topics)
        self.core.step(MetadataArrived(view=found), time.monotonic_ns())

    def subscribe(self) -> None:
        self.group.subscribe(Subscription(topics=("t",)), None)

    def hear(self, news: GroupNews) -> None:
        self.group.receive(news)
        for told in self.group.attend(time.monotonic_ns()):
            told()

    def assign(self, name: TopicPartition, topic_id: bytes = OLD) -> None:
        self.hear(Assign(number=1, partitions=(part(name, topic_id),)))

    @property
    def looked_up(self) -> LookupWanted:
        return next(each for each in reversed(self.posted) if isinstance(each, LookupWanted))

    def found(self, offset: int) -> None:
        """Of all that was looked up last."""
        asked = self.looked_up
        offsets = tuple(
            CommittedOffset(
                topic_partition=each.topic_partition,
                topic_id=each.topic_id,
                committed_offset=Offset(offset),
            )
            for each in asked.partitions
        )
        self.hear(OffsetsFound(number=asked.number, is_last=True, offsets=offsets))

    def state(self, name: TopicPartition) -> PartitionState:
        return self.core.partitions[name]


def part(name: TopicPartition, topic_id: bytes = OLD) -> AssignedPartition:
    return AssignedPartition(
        topic_partition=name, topic_id=TopicId(topic_id), partition_assignment_epoch=1
    )


@pytest.mark.parametrize("before", [(), ((NEW, 2),), ((OLD, 1),)])
def test_what_a_group_committed_of_a_topic_made_again_counts_though_metadata_were_old(
    before: tuple[tuple[bytes, int], ...],
) -> None:
    """Those that arrive before the offset may be new, or of a broker that lags."""
    side = Side()
    side.subscribe()
    side.assign(T0, NEW)
    for each in before:
        side.know(*each)
    side.found(50)
    side.know(NEW, 2)
    assert (side.state(T0).position, side.state(T0).is_held) == (50, False)


@pytest.mark.parametrize("reset", [OffsetSpec.EARLIEST, None])
def test_metadata_of_a_broker_that_lags_do_not_take_back_where_the_group_begins(
    reset: OffsetSpec | None,
) -> None:
    side = Side(reset)
    side.subscribe()
    side.assign(T0, NEW)
    side.found(50)
    side.know(OLD, 1)
    side.know(NEW, 2)
    assert (side.state(T0).position, side.state(T0).is_held) == (50, False)
    assert side.core.take_error() is None
    side.know(b"3" * 16, 3)
    assert side.state(T0).position is None, "made again once more"


def test_nobody_is_told_that_a_topic_was_made_again_whose_partitions_came_after_that() -> None:
    side = Side(None)
    side.subscribe()
    side.assign(T0, NEW)
    side.know(NEW, 2)
    assert side.core.take_error() is None


def test_an_offset_of_the_topic_that_was_deleted_says_nothing_of_its_namesake() -> None:
    side = Side()
    side.group.assign([T0], time.monotonic_ns())
    side.group.settle()
    assert side.looked_up.partitions[0].topic_id == OLD
    side.know(NEW, 2)
    side.found(50)
    assert side.state(T0).position is None
    assert side.looked_up.partitions[0].topic_id == NEW, "it is asked again, of the new topic"
    side.found(3)
    assert (side.state(T0).position, side.state(T0).is_held) == (3, False)


def test_what_is_taken_away_stays_held_when_its_topic_is_made_again() -> None:
    side = Side()
    side.subscribe()
    side.assign(T0)
    side.found(3)
    side.state(T0).move_to(7)
    side.hear(Revoke(number=2, partitions=(part(T0),)))
    assert any(isinstance(each, CommitWanted) for each in side.posted), "it is waited for"
    side.know(NEW, 2)
    assert side.state(T0).is_held


def test_what_is_taken_away_stays_held_when_it_is_told_where_it_begins() -> None:
    side = Side()
    side.subscribe()
    side.assign(T1)
    side.found(3)
    side.state(T1).move_to(7)
    side.assign(T0)
    side.hear(Revoke(number=3, partitions=(part(T0), part(T1))))
    assert any(isinstance(each, CommitWanted) for each in side.posted), "it is waited for"
    side.found(50)
    assert side.state(T0).is_held


def test_a_loss_that_comes_while_the_user_attends_makes_void_what_was_told_before_it() -> None:
    """Told on another thread, it is taken up by the user's: after what that is in the middle of."""
    side, told = Side(), Listener()
    side.group.subscribe(Subscription(topics=("t",)), told)
    side.group.receive(Assign(number=1, partitions=(part(T0),)))
    attending = side.group.attend(time.monotonic_ns())
    assigned = next(attending)
    side.group.receive(Assign(number=2, partitions=(part(T1),)))
    side.group.receive(Lost(number=3, error=failure(ErrorCode.UNKNOWN_MEMBER)))
    assigned()
    for each in attending:
        each()
    assert told.heard == [("assigned", {T0}), ("lost", {T0})], "T1 was never the member's"
    assert [each.number for each in side.posted if isinstance(each, Reconciled)] == [1, 3]
    assert not side.group.has_moves
    assert not side.core.partitions


def test_the_lease_ends_the_delivery_at_once_and_the_epoch_goes_with_it() -> None:
    side = Side()
    side.subscribe()
    assert not side.group.may_deliver(5)
    side.group.standing = Standing(lease_until_ns=7, member_epoch=3)
    assert side.group.may_deliver(6)
    assert side.group.metadata().member_epoch == 3
    assert not side.group.may_deliver(7)
    side.group.standing = OUTSIDE
    assert not side.group.may_deliver(0)
    assert side.group.metadata().member_epoch == 0


def test_what_was_sought_in_a_topic_that_nobody_knows_yet_is_not_committed_by_the_way() -> None:
    """Nothing of it was read; without the topic's id the whole commit would be refused."""
    side = Side()
    unknown = TopicPartition("later", 0)
    side.core.assign([T0, unknown], time.monotonic_ns())
    side.core.seek(T0, 3)
    side.core.seek(unknown, 4)
    assert side.group.offsets.commit_delivered() is not None
    (wanted,) = (each for each in side.posted if isinstance(each, CommitWanted))
    assert [(each.topic_partition, each.topic_id) for each in wanted.offsets] == [(T0, OLD)]
    side.core.assign([unknown], time.monotonic_ns())
    assert side.group.offsets.commit_delivered() is None
