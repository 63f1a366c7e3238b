"""What is cut out of a fetch answer by hand is what protobuf would have read."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.engine.fetch.messages import PartitionBatches
from tidelog.client.wire import calls as wire
from tidelog.client.wire.cut import CUT_BYTES, cut_answer
from tidelog.v1 import errors_pb2, fetch_pb2
from tidelog.wire.calls.fetch import Divergence
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset

_INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def parts(draw: st.DrawFn) -> fetch_pb2.PartitionBatches:
    """With any of its fields, and now and then with one that this release does not know."""
    part = fetch_pb2.PartitionBatches(
        topic_id=draw(st.binary(max_size=16)),
        partition=draw(st.integers(0, 2**32 - 1)),
        batches=bytes(draw(st.sampled_from([0, 127, CUT_BYTES]))),
        fetch_sum=draw(st.integers(0, 2**32 - 1)),
        high_watermark=draw(_INT64),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        preferred_replica=-1,
    )
    if draw(st.booleans()):
        part.divergence.leader_epoch, part.divergence.end_offset = 3, 77
    if draw(st.booleans()):
        part.leader_id = 0
        part.error.code = errors_pb2.ERROR_CODE_NOT_LEADER
    # A field of a later release, of each kind that protobuf has.
    later = draw(st.sampled_from([b"", b"\xfd\x01abcd", b"\xf9\x0112345678", b"\xf8\x01\x96\x01"]))
    part.MergeFromString(later)
    return part


@settings(max_examples=50)
@given(st.lists(parts(), max_size=3), st.integers(0, 2**64 - 1))
def test_a_large_answer_reads_as_protobuf_reads_it(
    sent: list[fetch_pb2.PartitionBatches], session_epoch: int
) -> None:
    data = fetch_pb2.FetchStreamResponse(
        partitions=sent, session_epoch=session_epoch
    ).SerializeToString()
    cut = cut_answer(data)
    assert len(cut.parts) == (len(sent) if len(data) >= CUT_BYTES else 0)
    found_epoch, found = wire.read_fetch_answer(data)
    assert found_epoch == session_epoch
    assert [bytes(part.batches) for part in found] == [part.batches for part in sent]
    assert [_envelope(part) for part in found] == [_sent(part) for part in sent]


def _envelope(part: PartitionBatches) -> tuple[object, ...]:
    return (
        part.topic_id,
        part.partition,
        part.fetch_sum,
        part.high_watermark,
        part.leader_epoch,
        part.preferred_replica,
        part.leader_id,
        part.divergence,
        None if part.error is None else part.error.code,
    )


def _sent(part: fetch_pb2.PartitionBatches) -> tuple[object, ...]:
    has_error, has_divergence = part.HasField("error"), part.HasField("divergence")
    return (
        part.topic_id,
        part.partition,
        part.fetch_sum,
        part.high_watermark,
        part.leader_epoch,
        -1,
        0 if has_error else None,
        Divergence(leader_epoch=LeaderEpoch(3), end_offset=Offset(77)) if has_divergence else None,
        ErrorCode.NOT_LEADER if has_error else None,
    )


def test_the_batches_of_a_large_answer_are_not_copied() -> None:
    batches = bytes(CUT_BYTES)
    data = fetch_pb2.FetchStreamResponse(
        partitions=[fetch_pb2.PartitionBatches(partition=4, batches=batches)]
    ).SerializeToString()
    _, (part,) = wire.read_fetch_answer(data)
    assert isinstance(part.batches, memoryview)
    assert part.batches.obj is data
    assert part.batches == batches


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a\xff\xff\xff\x7f" + bytes(CUT_BYTES), id="a length beyond the end"),
        pytest.param(b"\x0f" + bytes(CUT_BYTES), id="a kind that there is not"),
        pytest.param(b"\xff" * CUT_BYTES, id="a number without end"),
        pytest.param(b"\x0a\x05\x22\x7f" + bytes(CUT_BYTES), id="batches beyond their partition"),
        pytest.param(b"\x12\x80\x80\x04" + bytes(CUT_BYTES - 1), id="cut short"),
    ],
)
def test_what_is_no_answer_is_left_to_protobuf_which_refuses_it(data: bytes) -> None:
    assert cut_answer(data).rest is data
    with pytest.raises(DecodeError):
        wire.read_fetch_answer(data)
