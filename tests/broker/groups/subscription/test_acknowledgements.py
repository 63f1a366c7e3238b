"""Acknowledgements of one stream: their order, their answers, and what becomes of what is gone."""

import msgspec
import pytest

from tests.broker.groups.subscription.test_subscription import (
    BEGIN,
    P0,
    P1,
    STORED,
    Stream,
    assigned,
    failures,
    reading,
    refused,
)
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import (
    EndStream,
    SendAcknowledged,
    SendAssignment,
    SendCommit,
    SendHeartbeat,
)
from tidelog.wire.calls.groups import AssignedPartition, CommitAnswer
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId


def test_commits_go_one_after_the_other_and_are_tried_again() -> None:
    stream = reading(P0, P1)
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1), correlation_id=1)
    stream.acknowledge((0, 2), correlation_id=2)
    assert stream.count(SendCommit) == 1
    stream.committed(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert stream.count(SendAcknowledged) == 0
    stream.pass_time(limits.RETRY_MS)
    assert stream.count(SendCommit) == 2
    stream.committed()
    assert stream.count(SendCommit) == 3
    stream.committed(CommitAnswer(errors=(refused(ErrorCode.STALE_ASSIGNMENT),)))
    told = [each for each in stream.told if isinstance(each, SendAcknowledged)]
    assert [each.correlation_id for each in told] == [1, 2]
    assert failures(stream) == [(0, ErrorCode.STALE_ASSIGNMENT)]


def told_ids(stream: Stream) -> list[int]:
    """Acknowledgements in the order in which they were answered."""
    return [each.correlation_id for each in stream.told if isinstance(each, SendAcknowledged)]


def test_an_acknowledgement_with_nothing_to_store_waits_for_those_before_it() -> None:
    stream = reading(P0, P1)
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1), correlation_id=1)
    stream.acknowledge((7, 1), correlation_id=2)
    stream.acknowledge((0, 2), (7, 1), correlation_id=3)
    stream.acknowledge((0, 50), correlation_id=4)
    stream.acknowledge(correlation_id=5)
    assert told_ids(stream) == [], "the first one is still being stored"
    stream.committed()
    assert told_ids(stream) == [1, 2], "the third one is still being stored"
    stream.committed(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert told_ids(stream) == [1, 2]
    stream.pass_time(limits.RETRY_MS)
    stream.committed()
    assert told_ids(stream) == [1, 2, 3, 4, 5]
    stream.acknowledge(correlation_id=6)
    assert told_ids(stream)[-1] == 6, "nothing is before it"
    assert stream.core.is_settled


def test_acknowledgements_behind_a_slow_coordinator_are_stored_one_after_the_other() -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, acknowledge_timeout_ms=60_000))
    stream.pass_time(0)
    stream.answer(msgspec.structs.replace(assigned(P0), session_timeout_ms=45_000))
    stream.found()
    stream.brought(P0, 0, 5)
    for number in range(1, 6):
        stream.acknowledge((0, number), correlation_id=number)
    for number in range(1, 6):
        stream.pass_time(limits.NOT_STORED_MS // 2)
        stream.committed()
        assert told_ids(stream)[-1] == number
        assert failures(stream) == [], "it was slow, and there"


def test_what_a_coordinator_refuses_is_told_by_the_name_of_the_topic() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1))
    gone = TidelogError(
        ErrorCode.STALE_ASSIGNMENT, tried="commit", happened=f"{P0} is not owned any more"
    )
    stream.committed(CommitAnswer(errors=(gone,)))
    told = stream.last(SendAcknowledged)
    assert isinstance(told, SendAcknowledged)
    ((_, _, error),) = told.failures
    assert error.tried == "acknowledge records of t-0"
    assert error.happened == "t-0 is not owned any more"


def test_answers_keep_their_order_when_the_membership_is_lost() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1), correlation_id=1)
    stream.acknowledge((7, 1), correlation_id=2)
    stream.committed(refused(ErrorCode.UNKNOWN_MEMBER))
    stream.acknowledge((0, 2), correlation_id=3)
    assert told_ids(stream) == [1, 2, 3]


@pytest.mark.parametrize("is_lost", [False, True])
def test_acknowledgements_of_a_partition_that_is_gone_are_answered_in_turn(is_lost: bool) -> None:
    stream = reading(P0, P1)
    stream.brought(P0, 0, 2)
    stream.acknowledge((0, 2), correlation_id=1)
    stream.acknowledge((0, 2), correlation_id=2)
    stream.pass_time(1_000)
    stream.answer(assigned(P1))
    stream.committed()
    commits = stream.count(SendCommit)
    assert told_ids(stream) == [1, 2], "by then the partition was given up"
    assert failures(stream) == [(0, ErrorCode.STALE_ASSIGNMENT)]
    assert commits == 1, "there is nothing to ask for"
    if is_lost:
        stream.pass_time(1_000)
        stream.answer(refused(ErrorCode.UNKNOWN_MEMBER))
    assert stream.core.is_settled


@pytest.mark.slow
def test_positions_that_wait_to_be_stored_are_bounded_all_together() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 10)
    foreign = [(number, 1) for number in range(1, limits.POSITIONS_WAITING_MAX)]
    stream.acknowledge((0, 1), *foreign)
    (ended,) = stream.acknowledge((0, 2))
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "wait to be stored" in ended.error.happened


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [STORED, refused(ErrorCode.UNKNOWN_MEMBER)])
def test_positions_that_have_been_answered_make_room_for_others(
    outcome: CommitAnswer | TidelogError,
) -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 10)
    stream.acknowledge((0, 1), *[(number, 1) for number in range(1, limits.POSITIONS_WAITING_MAX)])
    stream.committed(outcome)
    effects = stream.acknowledge((0, 2))
    assert not any(isinstance(each, EndStream) for each in effects)


def test_an_acknowledgement_is_answered_in_time_also_when_nothing_can_be_stored() -> None:
    session = msgspec.structs.replace(assigned(P0), session_timeout_ms=45_000)
    stream = Stream(msgspec.structs.replace(BEGIN, acknowledge_timeout_ms=60_000))
    stream.pass_time(0)
    stream.answer(session)
    stream.found()
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1), correlation_id=1)
    stream.committed(refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    stream.pass_time(2_000)
    stream.acknowledge((0, 2), correlation_id=2)
    stream.acknowledge((7, 2), correlation_id=3)
    late = stream.last(SendCommit)
    assert isinstance(late, SendCommit)
    stream.pass_time(limits.NOT_STORED_MS - 2_001)
    assert told_ids(stream) == []
    stream.pass_time(1)
    assert told_ids(stream) == [1]
    assert failures(stream) == [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    stream.pass_time(2_000)
    assert told_ids(stream) == [1, 2, 3]
    stream.take(stream.core.on_committed(late.request, STORED, stream.now_ms))
    assert told_ids(stream) == [1, 2, 3], "whoever waited for it was told"
    stream.acknowledge((0, 2), correlation_id=4)
    stream.committed()
    assert failures(stream) == []
    assert stream.core.is_settled


def test_a_client_whose_acknowledgement_is_not_stored_yet_is_not_too_slow() -> None:
    begin = msgspec.structs.replace(BEGIN, acknowledge_timeout_ms=2_000)
    stream = reading(P0, begin=begin)
    stream.brought(P0, 0, 2)
    stream.acknowledge((0, 2))
    stream.pass_time(3_000)
    assert stream.count(EndStream) == 0
    stream.brought(P0, 2, 1)
    stream.pass_time(2_000)
    ended = stream.last(EndStream)
    assert isinstance(ended, EndStream)
    assert ended.error.code is ErrorCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("group", ["g", ""])
def test_a_deleted_topic_is_given_up_at_once_and_its_acknowledgements_fail_for_good(
    group: str,
) -> None:
    stream = Stream(msgspec.structs.replace(BEGIN, group=group))
    other = PartitionKey(TopicId(b"o" * 16), PartitionId(0))
    if group:
        stream.pass_time(0)
        stream.answer(
            msgspec.structs.replace(
                assigned(),
                assignment=(AssignedPartition(P0, 1, "t"), AssignedPartition(other, 1, "o")),
            )
        )
    else:
        stream.take(stream.core.on_topics({P0: "t", other: "o"}, 0))
    stream.found()
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1), correlation_id=1)
    stream.acknowledge((0, 2), correlation_id=2)
    stream.take(stream.core.on_deleted({other.topic_id}, stream.now_ms))
    told = stream.last(SendAssignment)
    assert isinstance(told, SendAssignment)
    assert [each.topic for each in told.revoked] == ["t"]
    assert stream.wanted() == {other: 0}
    if group:
        gone = TidelogError(ErrorCode.UNKNOWN_TOPIC_ID, tried="commit", happened="no such id")
        stream.committed(CommitAnswer(errors=(gone,)))
        assert failures(stream) == [(0, ErrorCode.STALE_ASSIGNMENT)]
        stream.pass_time(0)
        beat = stream.last(SendHeartbeat)
        assert isinstance(beat, SendHeartbeat)
        assert beat.request.owned == (other,), "it is reported at once"
    assert told_ids(stream) == [1, 2]
    stream.acknowledge((0, 5), correlation_id=3)
    last = stream.last(SendAcknowledged)
    assert isinstance(last, SendAcknowledged)
    ((_, _, error),) = last.failures
    assert (error.code, error.retriable) == (ErrorCode.STALE_ASSIGNMENT, False)
    assert "topic t was deleted" in error.happened
    stream.pass_time(20_000)
    assert not any(
        isinstance(each, EndStream) and each.error.code is ErrorCode.DEADLINE_EXCEEDED
        for each in stream.told
    ), "nothing of it is waited for"


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_is_given_up_between_two_heartbeats_is_reported_all_the_same(
    is_under_way: bool,
) -> None:
    stream = Stream()
    stream.pass_time(0)
    stream.answer(assigned(P0))
    if is_under_way:
        stream.pass_time(1_000)
    stream.take(stream.core.on_deleted((), stream.now_ms))
    if is_under_way:
        stream.answer(assigned())
    stream.pass_time(0)
    beat = stream.last(SendHeartbeat)
    assert isinstance(beat, SendHeartbeat)
    assert beat.request.owned == (), "the coordinator has given it P0 since it last said so"


def test_what_was_lost_in_silence_is_not_said_to_be_anothers() -> None:
    stream = reading(P0)
    stream.brought(P0, 0, 5)
    stream.acknowledge((0, 1))
    stream.pass_time(6_000)
    assert failures(stream) == [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
