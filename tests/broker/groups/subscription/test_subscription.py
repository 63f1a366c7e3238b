"""What one stream of the easy path decides, told step by step."""

import msgspec
import pytest

from tidelog.broker.groups.subscription.core import invariants, limits
from tidelog.broker.groups.subscription.core.messages import (
    Begin,
    Bounds,
    Effect,
    EndStream,
    FindPositions,
    Position,
    SendAcknowledged,
    SendAssignment,
    SendCommit,
    SendHeartbeat,
    SendRecords,
    StartAt,
)
from tidelog.broker.groups.subscription.core.subscription import Subscription
from tidelog.wire.batch import DecodedRecord
from tidelog.wire.calls.groups import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AssignedPartition,
    CommitAnswer,
    HeartbeatAnswer,
)
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, ReadPlace, TidelogError
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId

TOPIC = TopicId(bytes(16))
P0, P1 = (PartitionKey(TOPIC, PartitionId(number)) for number in (0, 1))
BEGIN = Begin(
    group="g",
    topics=("t",),
    topic_pattern="",
    start_at=StartAt.EARLIEST,
    credit_records=100,
    acknowledge_timeout_ms=10_000,
    group_instance_id="",
    rack="",
    principal="",
    client_id="c",
    address="a:1",
)
STORED = CommitAnswer(errors=(None,))
READ_UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def refused(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="test", happened="so it was told")


def assigned(*keys: PartitionKey, epoch: int = 1, idle: bool = False) -> HeartbeatAnswer:
    return HeartbeatAnswer(
        member_epoch=epoch,
        heartbeat_interval_ms=1_000,
        session_timeout_ms=6_000,
        assignment=tuple(AssignedPartition(key, epoch, "t") for key in keys),
        is_idle=idle,
    )


def records(first: int, count: int) -> list[DecodedRecord]:
    return [(offset, 1, 0, None, b"v", ()) for offset in range(first, first + count)]


class Stream:
    """A subscription, and what it wanted last of each kind."""

    def __init__(self, begin: Begin = BEGIN) -> None:
        self.core = Subscription(begin, "m", 0)
        self.now_ms = 0
        self.told: list[Effect] = []

    def take(self, effects: list[Effect]) -> list[Effect]:
        invariants.check(self.core)
        self.told += effects
        return effects

    def last(self, kind: type[Effect]) -> Effect:
        return next(each for each in reversed(self.told) if isinstance(each, kind))

    def count(self, kind: type[Effect]) -> int:
        return sum(isinstance(each, kind) for each in self.told)

    def pass_time(self, duration_ms: int) -> list[Effect]:
        self.now_ms += duration_ms
        return self.take(self.core.tick(self.now_ms))

    def answer(self, outcome: HeartbeatAnswer | TidelogError) -> list[Effect]:
        sent = self.last(SendHeartbeat)
        assert isinstance(sent, SendHeartbeat)
        return self.take(self.core.on_heartbeat(sent.request, outcome, self.now_ms))

    def committed(self, outcome: CommitAnswer | TidelogError = STORED) -> list[Effect]:
        sent = self.last(SendCommit)
        assert isinstance(sent, SendCommit)
        return self.take(self.core.on_committed(sent.request, outcome, self.now_ms))

    def found(
        self, committed: int = 0, start: int = 0, end: int = 100, stable: int = 100
    ) -> list[Effect]:
        asked = self.last(FindPositions)
        assert isinstance(asked, FindPositions)
        bounds = Bounds(
            committed_offset=Offset(committed),
            log_start_offset=Offset(start),
            high_watermark=Offset(end),
            last_stable_offset=Offset(stable),
        )
        return self.take(
            self.core.on_positions(asked.keys, dict.fromkeys(asked.keys, bounds), self.now_ms)
        )

    def brought(
        self, key: PartitionKey, first: int, count: int, *, passed: int = 0
    ) -> list[Effect]:
        """A read of so many records, and behind them offsets that are of no reader."""
        return self.take(
            self.core.on_records(
                key,
                first,
                records(first, count),
                Offset(first + count + passed),
                Offset(100),
                Offset(100),
                self.now_ms,
            )
        )

    def wanted(self) -> dict[PartitionKey, int]:
        """What reads would begin for now."""
        return self.core.readable() if self.core.may_read else {}

    def acknowledge(self, *places: tuple[int, int], correlation_id: int = 1) -> list[Effect]:
        positions = [
            Position("t", PartitionId(partition), Offset(offset)) for partition, offset in places
        ]
        return self.take(self.core.on_acknowledge(positions, correlation_id, self.now_ms))


def reading(*keys: PartitionKey, begin: Begin = BEGIN) -> Stream:
    """A member that owns partitions and knows where to begin."""
    stream = Stream(begin)
    stream.pass_time(0)
    stream.answer(assigned(*keys))
    stream.found()
    return stream


def failures(stream: Stream) -> list[tuple[int, ErrorCode]]:
    told = stream.last(SendAcknowledged)
    assert isinstance(told, SendAcknowledged)
    return [(partition, error.code) for _, partition, error in told.failures]


def test_it_joins_then_looks_where_to_begin_then_reads() -> None:
    stream = Stream()
    (joined,) = stream.pass_time(0)
    assert isinstance(joined, SendHeartbeat)
    assert joined.request.member_epoch == JOINING_EPOCH
    assert joined.request.subscription is not None
    assert joined.request.owned == ()
    stream.answer(assigned(P0, P1))
    assert stream.wanted() == {}
    assert stream.count(SendAssignment) == 0
    stream.found(committed=7)
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert told.assigned == (
        Position("t", PartitionId(0), Offset(7)),
        Position("t", PartitionId(1), Offset(7)),
    )
    assert stream.wanted() == {P0: 7, P1: 7}
    assert stream.count(SendCommit) == 0, "it was committed before"


@pytest.mark.parametrize(
    ("start_at", "start"), [(StartAt.EARLIEST, 20), (StartAt.LATEST, 100), (StartAt.NONE, None)]
)
@pytest.mark.parametrize(("committed", "nearest"), [(-1, None), (10, 20), (101, 100)])
def test_without_a_usable_offset_it_begins_as_near_as_can_be_and_commits_that_first(
    start_at: StartAt, start: int | None, committed: int, nearest: int | None
) -> None:
    """Where nothing was committed the client says where; else nothing kept is passed over."""
    if start is not None and nearest is not None:
        start = nearest
    stream = Stream(msgspec.structs.replace(BEGIN, start_at=start_at))
    stream.pass_time(0)
    stream.answer(assigned(P0))
    stream.found(committed=committed, start=20)
    if start is None:
        ended = stream.last(EndStream)
        assert isinstance(ended, EndStream)
        assert ended.error.code is ErrorCode.NO_OFFSET_FOR_PARTITION
        return
    assert stream.wanted() == {}, "nothing is read before the beginning is committed"
    sent = stream.last(SendCommit)
    assert isinstance(sent, SendCommit)
    assert [each.committed_offset for each in sent.request.offsets] == [start]
    stream.committed()
    assert stream.wanted() == {P0: start}
    assert stream.count(SendAcknowledged) == 0


@pytest.mark.parametrize(
    ("isolation", "start"), [(READ_UNCOMMITTED, 100), (IsolationLevel.READ_COMMITTED, 60)]
)
def test_the_latest_record_of_a_reader_of_committed_ones_lies_before_what_is_open(
    isolation: IsolationLevel, start: int
) -> None:
    begin = msgspec.structs.replace(BEGIN, start_at=StartAt.LATEST, isolation=isolation)
    stream = Stream(begin)
    stream.pass_time(0)
    stream.answer(assigned(P0))
    stream.found(committed=-1, stable=60)
    stream.committed()
    assert stream.wanted() == {P0: start}


def committed_offsets(stream: Stream) -> list[int]:
    """Of all commits so far."""
    return [
        offset.committed_offset
        for each in stream.told
        if isinstance(each, SendCommit)
        for offset in each.request.offsets
    ]


def test_what_is_of_no_reader_is_committed_once_the_client_has_done_with_what_is_before_it() -> (
    None
):
    stream = reading(P0)
    stream.brought(P0, 0, 3, passed=2)
    assert committed_offsets(stream) == [], "the client has yet to acknowledge"
    stream.acknowledge((0, 3))
    assert committed_offsets(stream) == [3]
    stream.committed()
    assert committed_offsets(stream) == [3, 5]
    stream.committed()
    assert stream.core.is_settled
    assert stream.count(SendAcknowledged) == 1, "nobody asked for the second one"


def test_a_marker_that_comes_later_is_committed_without_the_client() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 3)
    stream.acknowledge((0, 3))
    stream.committed()
    stream.brought(P0, 3, 0, passed=1)
    assert committed_offsets(stream) == [3, 4]
    stream.committed()
    stream.brought(P0, 4, 2)
    stream.acknowledge((0, 6))
    assert committed_offsets(stream) == [3, 4, 6]


def test_a_place_behind_a_marker_that_is_not_stored_is_not_sent_again_and_again() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 0, passed=1)
    stream.committed(CommitAnswer(errors=(refused(ErrorCode.UNKNOWN_TOPIC_ID),)))
    assert committed_offsets(stream) == [1]
    assert stream.core.is_settled


def test_credit_and_order_hold_whatever_reads_bring() -> None:
    stream = reading(P0, P1, begin=msgspec.structs.replace(BEGIN, credit_records=5))
    stream.brought(P0, 0, 4)
    stream.brought(P1, 0, 4)
    sent = [each for each in stream.told if isinstance(each, SendRecords)]
    assert [(each.partition, len(each.records)) for each in sent] == [(0, 4), (1, 1)]
    assert stream.wanted() == {}, "no credit, nothing is read"
    assert stream.core.readable() == {P0: 4}, "what is under way goes on"
    stream.brought(P0, 0, 4)
    assert stream.count(SendRecords) == 2, "a read from before is thrown away"
    stream.take(stream.core.on_credit(10, stream.now_ms))
    last = stream.last(SendRecords)
    assert isinstance(last, SendRecords)
    assert [record[0] for record in last.records] == [1, 2, 3]
    assert stream.wanted() == {P0: 4, P1: 4}
    (ended,) = stream.core.on_credit(limits.CREDIT_MAX, stream.now_ms)
    assert isinstance(ended, EndStream)


@pytest.mark.parametrize("credit", [1, 3, 5, 7, 100])
@pytest.mark.parametrize("fitting", [1, 2, 3])
def test_partitions_are_read_in_turn_when_a_read_has_no_room_for_all(
    credit: int, fitting: int
) -> None:
    keys = [PartitionKey(TOPIC, PartitionId(number)) for number in range(4)]
    stream = reading(*keys, begin=msgspec.structs.replace(BEGIN, credit_records=credit))
    counts = [0] * len(keys)
    while min(counts) < 50:
        for key, offset in list(stream.wanted().items())[:fitting]:
            stream.brought(key, offset, 5)
        stream.take(stream.core.on_credit(credit, stream.now_ms))
        for each in stream.told:
            if isinstance(each, SendRecords):
                counts[each.partition] += len(each.records)
        stream.told.clear()
        assert max(counts) - min(counts) <= 10, f"more than two reads apart: {counts}"


def test_a_read_that_brought_no_record_was_a_turn_as_well() -> None:
    stream = reading(P0, P1)
    stream.take(
        stream.core.on_records(P0, 0, [], Offset(50), Offset(100), Offset(100), stream.now_ms)
    )
    assert list(stream.wanted().items()) == [(P1, 0), (P0, 50)]


def test_a_partition_that_is_taken_away_is_given_up_when_all_is_acknowledged() -> None:
    stream = reading(P0, P1)
    stream.brought(P0, 0, 3)
    stream.pass_time(1_000)
    stream.answer(assigned(P1))
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert [each.partition for each in told.revoked] == [0]
    stream.pass_time(1_000)
    beat = stream.last(SendHeartbeat)
    assert isinstance(beat, SendHeartbeat)
    assert beat.request.owned == (P0, P1) or beat.request.owned is None, "it owns both still"
    stream.answer(assigned(P1))
    stream.acknowledge((0, 2))
    stream.committed()
    stream.acknowledge((0, 3), correlation_id=2)
    beats = stream.count(SendHeartbeat)
    stream.committed()
    assert stream.count(SendHeartbeat) == beats + 1, "it reports at once"
    beat = stream.last(SendHeartbeat)
    assert isinstance(beat, SendHeartbeat)
    assert beat.request.owned == (P1,)
    assert failures(stream) == []
    stream.acknowledge((0, 3), correlation_id=3)
    assert failures(stream) == [(0, ErrorCode.STALE_ASSIGNMENT)]


def test_a_partition_of_which_nothing_was_sent_is_given_up_at_once() -> None:
    stream = reading(P0, P1)
    stream.pass_time(1_000)
    stream.answer(assigned(P1))
    stream.pass_time(0)
    beat = stream.last(SendHeartbeat)
    assert isinstance(beat, SendHeartbeat)
    assert beat.request.owned == (P1,)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_is_none_any_more_forgets_everything_and_joins_again(
    code: ErrorCode,
) -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 3)
    stream.acknowledge((0, 1))
    late = stream.last(SendCommit)
    assert isinstance(late, SendCommit)
    stream.pass_time(1_000)
    stream.answer(refused(code))
    assert failures(stream) == [(0, ErrorCode.STALE_ASSIGNMENT)]
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert told.assigned == ()
    joined = stream.last(SendHeartbeat)
    assert isinstance(joined, SendHeartbeat)
    assert joined.request.member_epoch == JOINING_EPOCH
    assert joined.request.heartbeat_sequence == 3
    assert stream.core.on_committed(late.request, STORED, stream.now_ms) == []
    assert stream.wanted() == {}


def test_a_silence_of_the_coordinator_ends_the_membership() -> None:
    stream = reading(P0)
    stream.pass_time(1_000)
    stream.answer(refused(ErrorCode.UNAVAILABLE))
    stream.pass_time(1_000)
    assert stream.wanted() == {P0: 0}, "another heartbeat is under way"
    stream.pass_time(4_000)
    assert stream.wanted() == {}, "it may have been removed"
    stream.answer(assigned(P0, epoch=1))
    assert stream.wanted() == {}, "an answer from before it was lost says nothing"
    stream.pass_time(limits.RETRY_MS)
    joined = stream.last(SendHeartbeat)
    assert isinstance(joined, SendHeartbeat)
    assert joined.request.member_epoch == JOINING_EPOCH


def test_its_session_counts_from_when_the_heartbeat_left_not_from_when_the_answer_came() -> None:
    stream = reading(P0)
    stream.pass_time(1_000)
    stream.now_ms += 4_000
    stream.answer(assigned(P0))
    stream.pass_time(1_000)
    stream.pass_time(900)
    assert stream.wanted() == {P0: 0}, "6.9 s: within the session from 1 s on"
    stream.pass_time(100)
    assert stream.wanted() == {}, "7 s: the coordinator may have given it to another"
    stream.brought(P0, 0, 1)
    assert stream.count(SendRecords) == 0


def test_an_answer_that_took_longer_than_the_session_gives_nothing() -> None:
    stream = Stream()
    stream.pass_time(0)
    stream.now_ms += 6_000
    stream.answer(assigned(P0))
    assert stream.count(FindPositions) == 0, "the coordinator may have removed it by now"
    joined = stream.last(SendHeartbeat)
    assert isinstance(joined, SendHeartbeat)
    assert joined.request.member_epoch == JOINING_EPOCH
    assert stream.count(SendHeartbeat) == 2


def test_a_client_that_acknowledges_nothing_for_too_long_ends_its_stream() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 2)
    stream.acknowledge((0, 1))
    stream.committed()
    effects: list[Effect] = []
    for _ in range(10):
        effects = stream.pass_time(1_000)
        if any(isinstance(each, SendHeartbeat) for each in effects):
            stream.answer(
                HeartbeatAnswer(
                    member_epoch=1, heartbeat_interval_ms=1_000, session_timeout_ms=6_000
                )
            )
    (ended,) = effects
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.DEADLINE_EXCEEDED
    assert stream.pass_time(1_000) == []


@pytest.mark.parametrize("phase", ["join", "position", "beginning"])
def test_a_stream_that_cannot_begin_says_in_time_what_is_missing(phase: str) -> None:
    stream = Stream()
    missing = TidelogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, tried="ask", happened="2 is dead")
    stream.pass_time(0)
    if phase != "join":
        stream.answer(assigned(P0))
    if phase == "beginning":
        stream.found(committed=-1)
    while stream.count(EndStream) == 0:
        assert stream.now_ms <= limits.NOT_READY_MS, "nothing was told for too long"
        if phase == "join":
            stream.answer(missing)
        elif phase == "position":
            asked = stream.last(FindPositions)
            assert isinstance(asked, FindPositions)
            stream.take(stream.core.on_positions(asked.keys, missing, stream.now_ms))
        else:
            stream.committed(missing)
        before = stream.count(SendHeartbeat)
        stream.pass_time(limits.RETRY_MS)
        if phase != "join" and stream.count(SendHeartbeat) > before:
            stream.answer(assigned(P0))
    assert stream.now_ms == limits.NOT_READY_MS
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.retriable
    assert "2 is dead" in ended.error.happened


def test_a_partition_that_a_transaction_holds_ends_its_stream_after_a_while_by_name() -> None:
    """Trap 16: the others are read meanwhile, and nobody waits for ever without a word."""
    stream = Stream()
    stream.pass_time(0)
    stream.answer(assigned(P0, P1))
    held = TidelogError(
        ErrorCode.CONCURRENT_TRANSACTIONS, tried="read", happened="transaction `pay` has sent it"
    )
    bounds = Bounds(
        committed_offset=Offset(5),
        log_start_offset=Offset(0),
        high_watermark=Offset(9),
        last_stable_offset=Offset(9),
    )
    while stream.count(EndStream) == 0:
        assert stream.now_ms <= limits.UNDECIDED_MS + limits.NOT_READY_MS, "it waits for ever"
        asked = stream.last(FindPositions)
        assert isinstance(asked, FindPositions)
        assert asked.request is not None
        assert asked.request.require_stable
        found = {key: held if key == P0 else bounds for key in asked.keys}
        before = stream.count(SendHeartbeat)
        stream.take(stream.core.on_positions(asked.keys, found, stream.now_ms))
        stream.pass_time(limits.RETRY_MS)
        if stream.count(SendHeartbeat) > before:
            stream.answer(assigned(P0, P1))
        if stream.count(EndStream) == 0:
            assert stream.wanted().keys() == {P1}, "the other one is read meanwhile"
    assert stream.now_ms >= limits.UNDECIDED_MS
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert "transaction `pay`" in ended.error.happened


def test_a_stream_whose_coordinator_does_not_even_refuse_ends_as_well() -> None:
    stream = Stream()
    stream.pass_time(0)
    (ended,) = stream.pass_time(limits.NOT_READY_MS)
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_that_waits_for_others_is_not_ended() -> None:
    stream = Stream()
    stream.pass_time(0)
    stream.answer(assigned())
    for _ in range(2 * limits.NOT_READY_MS // 1_000):
        stream.pass_time(1_000)
        stream.answer(assigned())
    assert stream.count(EndStream) == 0


def test_a_stream_that_lost_its_membership_has_as_long_to_join_again() -> None:
    stream = reading(P0)
    stream.pass_time(7_000)
    assert stream.wanted() == {}, "its session is over"
    stream.answer(refused(ErrorCode.UNAVAILABLE))
    stream.pass_time(limits.NOT_READY_MS - 1)
    assert stream.count(EndStream) == 0
    stream.pass_time(1)
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.retriable


def test_a_log_that_was_trimmed_below_the_reader_is_begun_anew() -> None:
    stream = reading(P0)
    effects = stream.core.on_read_failed(P0, 0, refused(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    stream.take(effects)
    stream.found(committed=0, start=50)
    stream.committed()
    assert stream.wanted() == {P0: 50}
    (ended,) = stream.core.on_read_failed(P0, 50, refused(ErrorCode.CORRUPT_BATCH), 0)
    assert isinstance(ended, EndStream)


@pytest.mark.parametrize(
    ("group", "way"), [("g", "AlterGroupOffsets"), ("", "FetchRecords")], ids=["group", "none"]
)
def test_what_cannot_be_read_is_named_with_a_way_to_go_on(group: str, way: str) -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, group=group))
    if group:
        stream.pass_time(0)
        stream.answer(assigned(P1))
    else:
        stream.take(stream.core.on_topics({P1: "t"}, 0))
    stream.found(committed=7 if group else -1, start=7)
    damage = TidelogError(
        ErrorCode.CORRUPT_BATCH,
        tried="read",
        happened="so it is",
        hint="Go on at offset 9.",
        go_on_at=ReadPlace("", 0, 9),
    )
    stream.take(stream.core.on_read_failed(P1, 7, damage, 0))
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.CORRUPT_BATCH
    assert "t-1 from offset 7" in ended.error.tried
    assert "so it is" in ended.error.happened
    assert "Go on at offset 9." in ended.error.hint
    assert ended.error.go_on_at == ReadPlace("t", 1, 9)
    assert way in ended.error.hint


@pytest.mark.parametrize("start_at", [StartAt.EARLIEST, StartAt.LATEST])
@pytest.mark.parametrize(
    ("group", "start", "end", "goes_on"),
    [
        ("g", 50, 100, 50),
        ("g", 0, 3, 2),
        ("g", 0, 100, 2),
        ("g", 0, 1, 1),
        ("", 50, 100, 50),
        ("", 0, 3, 3),
        ("", 0, 100, 5),
    ],
)
def test_a_log_that_changed_under_the_reader_is_read_on_as_near_as_can_be(
    start_at: StartAt, group: str, start: int, end: int, goes_on: int
) -> None:
    """Of a group from what it has committed, 2, on; else from where it was, 5."""
    stream = Stream(msgspec.structs.replace(BEGIN, group=group, start_at=start_at))
    if group:
        stream.pass_time(0)
        stream.answer(assigned(P0))
    else:
        stream.take(stream.core.on_topics({P0: "t"}, 0))
    stream.found(committed=2 if group else -1, start=2, end=2)
    stream.brought(P0, 2, 3)
    gone = refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    stream.take(stream.core.on_read_failed(P0, 5, gone, 0))
    commits = stream.count(SendCommit)
    stream.found(committed=2 if group else -1, start=start, end=end)
    if group and goes_on != 2:
        stream.committed()
    assert stream.count(SendCommit) - commits == (bool(group) and goes_on != 2)
    assert stream.wanted() == {P0: goes_on}
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert told.assigned == (Position("t", PartitionId(0), Offset(goes_on)),), (
        "the client is told where it goes on"
    )


@pytest.mark.parametrize(("instance", "epoch"), [("", LEAVING_EPOCH), ("i", AWAY_EPOCH)])
def test_it_leaves_for_good_or_for_a_while(instance: str, epoch: int) -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, group_instance_id=instance))
    assert stream.core.departure() is None, "nobody has heard of it"
    stream.pass_time(0)
    departure = stream.core.departure()
    assert departure is not None
    assert departure.member_epoch == epoch


def test_the_first_joining_takes_the_place_of_an_earlier_stream_and_a_later_one_does_not() -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, group_instance_id="i"))
    stream.pass_time(0)
    first = stream.last(SendHeartbeat)
    stream.answer(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    stream.pass_time(limits.RETRY_MS)
    again = stream.last(SendHeartbeat)
    stream.answer(assigned(P0))
    stream.pass_time(1_000)
    stays = stream.last(SendHeartbeat)
    stream.answer(refused(ErrorCode.UNKNOWN_MEMBER))
    joins = stream.last(SendHeartbeat)
    told = [
        each.request for each in (first, again, stays, joins) if isinstance(each, SendHeartbeat)
    ]
    assert [each.takes_over for each in told] == [True, True, False, False]
    assert told[-1].member_epoch == JOINING_EPOCH
    stream.answer(refused(ErrorCode.INSTANCE_ID_IN_USE))
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.INSTANCE_ID_IN_USE


def test_without_a_group_nothing_is_committed() -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, group=""))
    stream.take(stream.core.on_topics({P0: "t"}, 0))
    stream.found(committed=-1)
    stream.brought(P0, 0, 2)
    stream.acknowledge((0, 2))
    assert failures(stream) == []
    assert stream.count(SendCommit) == 0
    assert stream.core.departure() is None
    stream.take(stream.core.on_topics({}, 0))
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert told.assigned == ()


def test_where_reading_begins_is_looked_up_again_when_it_was_not_stored_in_time() -> None:
    stream = reading(P1)
    stream.pass_time(1_000)
    stream.answer(assigned(P0, P1))
    stream.found(committed=-1)
    assert stream.wanted() == {P1: 0}, "where P0 begins is on its way to be stored"
    asked = stream.count(FindPositions)
    for _ in range(limits.NOT_STORED_MS // 1_000):
        stream.pass_time(1_000)
        stream.answer(assigned(P0, P1))
    stream.pass_time(limits.RETRY_MS)
    assert stream.count(FindPositions) == asked + 1, "nobody would ever ask about P0 again"
    stream.found(committed=0)
    assert stream.wanted() == {P0: 0, P1: 0}
