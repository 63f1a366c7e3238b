"""What leader and follower tell each other of a log start's epoch, also brokers that know none."""

import pytest

from tests.broker.support.copy_log import key_of
from tidelog.broker.replication.shared.messages import (
    NO_EPOCH,
    FetchAnswer,
    FetchAsk,
    FollowerPosition,
    PartitionNews,
)
from tidelog.broker.replication.tasks.wire import (
    decode_answer,
    decode_ask,
    encode_answer,
    encode_ask,
)
from tidelog.v1 import replica_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

KEY = key_of(3)


def position(start_epoch: int) -> FollowerPosition:
    return FollowerPosition(
        key=KEY,
        leader_epoch=LeaderEpoch(5),
        log_end_offset=Offset(9),
        flushed_offset=Offset(8),
        last_epoch=LeaderEpoch(4),
        log_start_offset=Offset(7),
        log_start_epoch=LeaderEpoch(start_epoch),
    )


def ask(start_epoch: int) -> FetchAsk:
    return FetchAsk(session_id=1, session_sequence=2, positions=(position(start_epoch),))


def answer(start_epoch: int, *, is_head_missing: bool = False) -> FetchAnswer:
    error = (
        TidelogError(ErrorCode.UNAVAILABLE, tried="copy", happened="no")
        if is_head_missing
        else None
    )
    news = PartitionNews(
        key=KEY,
        error=error,
        leader_epoch=LeaderEpoch(5),
        high_watermark=Offset(9),
        log_start_offset=Offset(7),
        log_start_epoch=LeaderEpoch(start_epoch),
        is_head_missing=is_head_missing,
    )
    return FetchAnswer(session_id=1, session_sequence=2, answer_sequence=3, partitions=(news,))


@pytest.mark.parametrize("start_epoch", [NO_EPOCH, 0, 4])
def test_an_epoch_comes_as_it_was_told_and_none_is_not_the_first(start_epoch: int) -> None:
    (told,) = decode_ask(encode_ask(ask(start_epoch))).positions
    assert told.log_start_epoch == start_epoch
    (news,) = decode_answer(encode_answer(answer(start_epoch))).partitions
    assert (news.log_start_epoch, news.is_head_missing) == (start_epoch, False)


def test_that_the_head_is_missing_comes_with_where_the_leaders_log_begins() -> None:
    (news,) = decode_answer(encode_answer(answer(4, is_head_missing=True))).partitions
    assert (news.log_start_offset, news.is_head_missing) == (7, True)
    assert news.error is not None


def test_a_broker_of_an_earlier_version_tells_nobodys_word() -> None:
    earlier = replica_pb2.ReplicaFetchRequest(session_id=1, session_sequence=2)
    earlier.positions.add(
        topic_id=KEY.topic_id, partition=3, log_end_offset=9, log_start_offset=7, last_epoch=-1
    )
    (told,) = decode_ask(earlier.SerializeToString()).positions
    assert (told.log_start_offset, told.log_start_epoch) == (7, NO_EPOCH)
    response = replica_pb2.ReplicaFetchResponse(session_id=1)
    response.partitions.add(topic_id=KEY.topic_id, partition=3, log_start_offset=7)
    (news,) = decode_answer(response.SerializeToString()).partitions
    assert (news.log_start_offset, news.log_start_epoch, news.is_head_missing) == (7, -1, False)


def test_an_epoch_below_zero_is_none() -> None:
    request = replica_pb2.ReplicaFetchRequest(session_id=1, session_sequence=2)
    request.positions.add(topic_id=KEY.topic_id, partition=3, log_start_epoch=-7, last_epoch=-1)
    (told,) = decode_ask(request.SerializeToString()).positions
    assert told.log_start_epoch == NO_EPOCH


def test_a_position_has_the_bytes_that_it_had_in_the_first_release_that_told_epochs() -> None:
    golden = "280130023a230a10747474747474747474747474747474741003180a201228103008380e4001a00108"
    assert encode_ask(ask(4)).hex() == golden


def test_news_have_the_bytes_that_they_had_in_the_first_release_that_told_epochs() -> None:
    golden = "080110021803221d0a10747474747474747474747474747474741003200a3812400ea00108"
    assert encode_answer(answer(4)).hex() == golden
