"""The consumer's core: positions, sessions, credit, and what of an answer still counts."""

from tests.client.support.engine_world import MS, TOPIC_ID, failure, view
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk, TopicSettings
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import (
    ConsumerEffect,
    ConsumerMessage,
    FetchAnswered,
    FetchMetadata,
    MetadataArrived,
    OffsetsArrived,
    OpenStream,
    PartitionBatches,
    QueryOffsets,
    SendFetch,
    StreamBroken,
    StreamOpened,
)
from tidelog.client.engine.fetch.settings import ConsumerSettings
from tidelog.client.engine.invariants import check_consumer
from tidelog.client.errors import LogTruncationError, PeerError
from tidelog.client.types.records import TopicPartition
from tidelog.wire.batch import checksum, encode_batch, fetch_sum
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.calls.offsets import OffsetAnswer, OffsetSpec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

T0 = TopicPartition("t", 0)
WINDOW_BYTES = 10_000


def batch(base_offset: int, count: int = 1, leader_epoch: int = 0) -> bytes:
    """Sealed records from an offset on."""
    records = [(0, None, b"v" * 100, ())] * count
    return encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


def part(
    data: bytes, base_offset: int, *, partition: int = 0, sum_change: int = 0
) -> PartitionBatches:
    """An answer's part with a fitting sum."""
    sum_ = fetch_sum(TopicId(TOPIC_ID), partition, base_offset, checksum(data))
    return PartitionBatches(
        topic_id=TOPIC_ID,
        partition=PartitionId(partition),
        batches=data,
        fetch_sum=sum_ ^ sum_change,
        high_watermark=Offset(1_000),
        log_start_offset=Offset(0),
    )


class World:
    """A core on a clock that only the test moves."""

    def __init__(
        self,
        reset: OffsetSpec | None = OffsetSpec.EARLIEST,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.now_ns = 1_000_000_000
        metadata = MetadataCache()
        backoff = Backoff(initial_ms=100, max_ms=1_000)
        desk = TopicDesk(
            TopicSettings(max_age_ms=300_000, bootstrap_timeout_ms=5_000), metadata, backoff
        )
        self.core = ConsumerCore(
            ConsumerSettings(
                reset=reset,
                window_bytes=WINDOW_BYTES,
                grant_bytes=1_000,
                partition_bytes_max=0,
                verify=True,
                isolation=isolation,
            ),
            metadata,
            desk,
            backoff,
        )

    def step(self, message: ConsumerMessage) -> list[ConsumerEffect]:
        return self._checked(self.core.step(message, self.now_ns))

    def tick(self, duration_ms: int = 0) -> list[ConsumerEffect]:
        self.now_ns += duration_ms * MS
        return self._checked(self.core.tick(self.now_ns))

    def _checked(self, effects: list[ConsumerEffect]) -> list[ConsumerEffect]:
        check_consumer(self.core)
        return effects

    def read_from(self, offset: int, *, stream: int = 1) -> SendFetch:
        """Assign, find the topic, seek, open the stream."""
        self.core.assign([T0], self.now_ns)
        assert isinstance(self.tick()[0], FetchMetadata), "an unknown topic is asked for"
        self.core.seek(T0, offset)
        (opening,) = self.step(MetadataArrived(view=view({"t": [(1, 3)]})))
        assert isinstance(opening, OpenStream), "the leader's stream is opened"
        (sent,) = self.step(StreamOpened(broker_id=1, stream=stream))
        assert isinstance(sent, SendFetch), "positions follow at once"
        return sent

    def answer(
        self, *parts: PartitionBatches, epoch: int = 1, stream: int = 1, broker_id: int = 1
    ) -> list[ConsumerEffect]:
        return self.step(
            FetchAnswered(
                broker_id=broker_id,
                stream=stream,
                session_epoch=epoch,
                size_bytes=0,
                partitions=parts,
            )
        )


def test_positions_are_sent_once_with_the_whole_window_as_credit() -> None:
    world = World()
    sent = world.read_from(5)
    assert [position.fetch_offset for position in sent.positions] == [5]
    assert sent.positions[0].leader_epoch == 3
    assert (sent.credit_bytes, sent.session_epoch) == (WINDOW_BYTES, 1)
    assert world.tick(1) == []


def test_a_partition_without_position_asks_its_leader_first() -> None:
    world = World()
    world.core.assign([T0], world.now_ns)
    world.tick()
    (query,) = world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    assert isinstance(query, QueryOffsets)
    assert query.queries[0].spec is OffsetSpec.EARLIEST
    answer = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(42))
    world.step(OffsetsArrived(query=query, answers=(answer,)))
    assert world.core.partitions[T0].position == 42


def test_without_reset_policy_a_missing_position_is_an_error() -> None:
    world = World(reset=None)
    world.core.assign([T0], world.now_ns)
    world.tick()
    world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.NO_OFFSET_FOR_PARTITION


def test_what_was_read_is_handed_over_and_its_bytes_are_granted_again() -> None:
    world = World()
    world.read_from(5)
    data = batch(5, count=10)
    world.answer(part(data, 5))
    fetched = world.core.take()
    assert fetched is not None
    assert (fetched.first_offset, fetched.next_offset) == (5, 15)
    (grant,) = world.tick()
    assert isinstance(grant, SendFetch)
    assert (grant.credit_bytes, grant.positions) == (len(data), ())
    assert grant.session_epoch == 1, "credit alone begins no session epoch"


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    world = World()
    world.read_from(5)
    world.core.seek(T0, 100)
    (moved,) = world.tick()
    assert isinstance(moved, SendFetch)
    assert moved.session_epoch == 2
    world.answer(part(batch(5), 5), epoch=1)
    assert world.core.take() is None
    assert world.core.intake.batches_dropped == 1
    world.answer(part(batch(100), 100), epoch=2)
    fetched = world.core.take()
    assert fetched is not None
    assert fetched.first_offset == 100


def test_a_seek_makes_void_what_waits_for_the_user() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5), 5))
    world.core.seek(T0, 5)
    assert world.core.take() is None
    check_consumer(world.core)


def test_a_wrong_sum_is_told_and_the_bytes_are_asked_for_again() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5), 5, sum_change=1))
    assert world.core.take() is None
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.CORRUPT_BATCH
    (again,) = world.tick()
    assert isinstance(again, SendFetch)
    assert [position.fetch_offset for position in again.positions] == [5]


def test_bytes_of_another_partition_do_not_pass_for_this_one() -> None:
    world = World()
    world.read_from(5)
    data = batch(5)
    sum_ = fetch_sum(TopicId(TOPIC_ID), 1, 5, checksum(data))
    world.answer(
        PartitionBatches(topic_id=TOPIC_ID, partition=PartitionId(0), batches=data, fetch_sum=sum_)
    )
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.CORRUPT_BATCH


def test_a_broken_stream_is_opened_again_and_reading_goes_on_behind_what_came() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=3, leader_epoch=7), 5))
    world.step(StreamBroken(broker_id=1, stream=1, error=failure(ErrorCode.UNAVAILABLE)))
    opening = [found for found in world.tick(200) if isinstance(found, OpenStream)]
    assert [found.stream for found in opening] == [2]
    (sent,) = world.step(StreamOpened(broker_id=1, stream=2))
    assert isinstance(sent, SendFetch)
    assert sent.positions[0].fetch_offset == 8
    assert sent.positions[0].last_fetched_epoch == 7
    assert sent.credit_bytes < WINDOW_BYTES, "what waits for the user still counts"
    assert world.core.take() is not None


def test_an_offset_out_of_range_falls_back_to_the_reset_policy() -> None:
    world = World()
    world.read_from(5)
    refused = PartitionBatches(
        topic_id=TOPIC_ID, partition=PartitionId(0), error=failure(ErrorCode.OFFSET_OUT_OF_RANGE)
    )
    world.answer(refused)
    assert world.core.partitions[T0].position is None
    assert world.core.take_error() is None


def test_without_reset_policy_an_offset_out_of_range_is_told() -> None:
    world = World(reset=None)
    world.read_from(5)
    refused = PartitionBatches(
        topic_id=TOPIC_ID, partition=PartitionId(0), error=failure(ErrorCode.OFFSET_OUT_OF_RANGE)
    )
    world.answer(refused)
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def cut_at(end_offset: int, leader_epoch: int) -> PartitionBatches:
    """The broker's log parts from the reader's past."""
    found = Divergence(leader_epoch=LeaderEpoch(leader_epoch), end_offset=Offset(end_offset))
    return PartitionBatches(topic_id=TOPIC_ID, partition=PartitionId(0), divergence=found)


def test_a_truncated_log_moves_the_reader_back_to_where_both_agree() -> None:
    world = World()
    world.read_from(50)
    world.answer(cut_at(40, 2))
    assert world.core.partitions[T0].position == 40
    assert world.core.recovery.truncations == 1
    assert world.core.take_error() is None


def test_without_reset_policy_a_truncation_is_told_at_each_poll_until_a_seek() -> None:
    world = World(reset=None)
    world.read_from(50)
    world.answer(cut_at(40, 2))
    for session_epoch in (3, 5):
        error = world.core.take_error()
        assert isinstance(error, LogTruncationError)
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (error.topic_partition, error.offset, error.divergent_offset) == (T0, 50, 40)
        assert world.core.partitions[T0].position == 50, "the user decides"
        (again,) = world.tick()
        assert isinstance(again, SendFetch)
        assert again.session_epoch == session_epoch
        world.answer(cut_at(40, 2), epoch=session_epoch)
    world.core.seek(T0, 40)
    assert world.core.take_error() is None
    (moved,) = world.tick()
    assert isinstance(moved, SendFetch)
    assert [position.fetch_offset for position in moved.positions] == [40]


def test_records_of_a_lost_epoch_are_read_again_where_an_older_one_wrote_on() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=5, leader_epoch=4), 5))
    world.answer(part(batch(10, count=5, leader_epoch=6), 10))
    for _ in range(2):
        fetched = world.core.take()
        assert fetched is not None
        world.core.partitions[T0].hand_over(fetched.next_offset)
    # The log goes on with epoch 4 up to 30: what was read from 10 to 15 is another history.
    (moved,) = world.answer(cut_at(30, 4))
    assert world.core.partitions[T0].position == 10
    assert isinstance(moved, SendFetch)
    assert [each.last_fetched_epoch for each in moved.positions] == [4]


def test_a_truncation_of_what_the_user_has_not_had_yet_is_nobodys_business() -> None:
    world = World(reset=None)
    world.read_from(5)
    world.answer(part(batch(5, count=5, leader_epoch=4), 5))
    world.answer(cut_at(7, 4))
    assert world.core.partitions[T0].position == 5
    assert world.core.take() is None, "what was fetched may be void"
    assert world.core.take_error() is None
    assert world.core.recovery.truncations == 0


def test_a_divergence_that_contradicts_itself_does_not_turn_in_circles() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=5, leader_epoch=4), 5))
    world.answer(cut_at(99, 4))
    assert world.tick() == [], "it waits before it asks again"
    (again,) = [found for found in world.tick(200) if isinstance(found, SendFetch)]
    assert [each.last_fetched_epoch for each in again.positions] == [-1]


def test_batches_whose_leader_epoch_falls_are_not_of_this_log() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=5, leader_epoch=4), 5))
    world.answer(part(batch(10, leader_epoch=3), 10))
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.CORRUPT_BATCH
    assert world.core.partitions[T0].fetch_offset == 10


def test_what_came_before_an_offset_out_of_range_is_handed_over_first() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=5), 5))
    refused = PartitionBatches(
        topic_id=TOPIC_ID, partition=PartitionId(0), error=failure(ErrorCode.OFFSET_OUT_OF_RANGE)
    )
    world.answer(refused)
    assert world.tick(10_000) == [], "nothing is asked for meanwhile"
    fetched = world.core.take()
    assert fetched is not None
    world.core.partitions[T0].hand_over(fetched.next_offset)
    (again,) = world.tick()
    assert isinstance(again, SendFetch)
    assert [position.fetch_offset for position in again.positions] == [10]
    world.answer(refused, epoch=2)
    assert world.core.partitions[T0].position is None, "now the reset policy decides"


def test_a_broker_that_names_a_time_is_not_asked_before_it() -> None:
    world = World()
    world.read_from(5)
    busy = PeerError(
        ErrorCode.RESOURCE_EXHAUSTED, tried="fetch", happened="busy", retry_after_ms=5_000
    )
    world.answer(PartitionBatches(topic_id=TOPIC_ID, partition=PartitionId(0), error=busy))
    assert [type(found) for found in world.tick(4_900)] == [FetchMetadata], "others are asked"
    assert [type(found) for found in world.tick(200)] == [SendFetch]


def test_what_is_put_back_is_read_again_behind_the_epoch_that_is_known() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5, count=5, leader_epoch=4), 5))
    assert world.core.take() is not None
    world.core.put_back(T0, 8)
    (moved,) = world.tick()
    assert isinstance(moved, SendFetch)
    (position,) = moved.positions
    assert (position.fetch_offset, position.last_fetched_epoch) == (8, 4)


def test_a_seek_with_an_epoch_lets_the_broker_look_for_a_truncation() -> None:
    world = World()
    world.read_from(5)
    world.core.seek(T0, 7, 2)
    (moved,) = world.tick()
    assert isinstance(moved, SendFetch)
    assert [each.last_fetched_epoch for each in moved.positions] == [2]


def test_a_paused_partition_keeps_what_it_has_and_asks_for_nothing() -> None:
    world = World()
    world.read_from(5)
    world.answer(part(batch(5), 5))
    world.core.pause(T0)
    (stopped,) = world.tick()
    assert isinstance(stopped, SendFetch)
    assert stopped.removed == ((TOPIC_ID, 0),)
    assert world.core.take() is None
    world.core.resume(T0)
    assert world.core.take() is not None


def test_older_metadata_never_replaces_newer() -> None:
    world = World()
    world.read_from(5)
    world.step(MetadataArrived(view=view({"t": [(2, 9)]}, version=5)))
    world.step(MetadataArrived(view=view({"t": [(1, 3)]}, version=4)))
    leader = world.core.metadata.leader("t", 0)
    assert leader is not None
    assert (leader[0].broker_id, leader[1]) == (2, 9)


def test_a_topic_known_from_another_call_is_asked_for_again_when_its_leader_changed() -> None:
    world = World()
    world.core.metadata.apply(view({"t": [(1, 3)]}), world.now_ns)
    world.core.assign([T0], world.now_ns)
    world.core.seek(T0, 5)
    world.tick()
    world.step(StreamOpened(broker_id=1, stream=1))
    refused = PartitionBatches(
        topic_id=TOPIC_ID,
        partition=PartitionId(0),
        batches=b"",
        fetch_sum=0,
        high_watermark=Offset(-1),
        log_start_offset=Offset(-1),
        error=failure(ErrorCode.FENCED_LEADER_EPOCH),
    )
    answer = FetchAnswered(
        broker_id=1, stream=1, session_epoch=1, size_bytes=0, partitions=(refused,)
    )
    effects = [*world.step(answer), *world.tick(1_500)]
    asked = [found for found in effects if isinstance(found, FetchMetadata)]
    assert [found.topics for found in asked] == [("t",)]


def test_what_is_put_back_is_the_next_again_and_costs_no_credit() -> None:
    world = World()
    world.read_from(0)
    world.answer(part(batch(0, 4), 0))
    world.answer(part(batch(4), 4))
    fetched = world.core.take()
    assert fetched is not None
    world.core.ready.put_back(fetched, 2)
    check_consumer(world.core)
    again = world.core.take()
    assert again is not None
    assert (again.first_offset, again.data) == (2, fetched.data)
    world.core.ready.put_back(again, 2)
    world.core.seek(T0, 5)
    check_consumer(world.core)
    assert world.core.take() is None, "a seek makes void what was put back"
    world.core.ready.put_back(again, 2)
    assert world.core.take() is None, "and what is put back after it"


def test_an_offset_that_is_answered_late_releases_nothing_that_a_group_holds() -> None:
    world = World()
    world.core.assign([T0], world.now_ns)
    world.tick()
    (query,) = world.step(MetadataArrived(view=view({"t": [(1, 0)]})))
    assert isinstance(query, QueryOffsets)
    world.core.hold(T0)
    answer = OffsetAnswer(topic_id=TOPIC_ID, partition=PartitionId(0), offset=Offset(42))
    world.step(OffsetsArrived(query=query, answers=(answer,)))
    assert world.core.partitions[T0].position == 42
    assert world.core.partitions[T0].is_held, "it is being taken away: nothing of it is delivered"
