"""Fetch answers put together by hand are protobuf's own, and large ones take turns of the loop."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.services.fetch.bytes import LARGE_BYTES, LoopTurns, answer_bytes, varint
from tidelog.v1 import fetch_pb2


@given(
    partitions=st.lists(st.tuples(st.integers(0, 1 << 31), st.binary(max_size=300)), max_size=5),
    throttle_ms=st.integers(0, 1 << 31),
)
def test_an_answer_is_what_protobuf_would_have_written(
    partitions: list[tuple[int, bytes]], throttle_ms: int
) -> None:
    expected = fetch_pb2.FetchResponse(throttle_ms=throttle_ms)
    parts = []
    for partition, batches in partitions:
        each = fetch_pb2.PartitionBatches(partition=partition, high_watermark=7)
        parts.append((each.SerializeToString(), batches))
        each.batches = batches
        expected.partitions.append(each)
    rest = fetch_pb2.FetchResponse(throttle_ms=throttle_ms).SerializeToString()
    data = answer_bytes(parts, rest)
    assert fetch_pb2.FetchResponse.FromString(data) == expected
    assert len(data) == expected.ByteSize()


@given(st.integers(0, 1 << 40))
def test_lengths_are_written_as_protobuf_reads_them(value: int) -> None:
    field = bytes([fetch_pb2.FetchStreamResponse.SESSION_EPOCH_FIELD_NUMBER << 3])
    assert fetch_pb2.FetchStreamResponse.FromString(field + varint(value)).session_epoch == value


def test_large_answers_are_made_one_in_a_turn_and_small_ones_at_once() -> None:
    async def run() -> None:
        turns, made = LoopTurns(), []
        turn = [0]

        async def make(length_bytes: int) -> None:
            await turns.wait(length_bytes)
            made.append((length_bytes, turn[0]))

        tasks = [asyncio.ensure_future(make(LARGE_BYTES)) for _ in range(4)]
        tasks += [asyncio.ensure_future(make(1)) for _ in range(4)]
        given_up = asyncio.ensure_future(make(LARGE_BYTES))
        await asyncio.sleep(0)
        given_up.cancel()
        while not all(task.done() for task in tasks):
            turn[0] += 1
            await asyncio.sleep(0)
        of_large = [when for length_bytes, when in made if length_bytes == LARGE_BYTES]
        assert len(set(of_large)) == 4
        assert {when for length_bytes, when in made if length_bytes == 1} == {0}
        await asyncio.wait_for(make(LARGE_BYTES), 5)

    asyncio.run(run())


@pytest.mark.parametrize("turns_before", range(6))
def test_a_turn_is_not_lost_with_the_one_who_is_cancelled_as_it_comes(turns_before: int) -> None:
    async def run() -> None:
        turns = LoopTurns()
        waiting = [asyncio.ensure_future(turns.wait(LARGE_BYTES)) for _ in range(3)]
        for _ in range(turns_before):
            await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait_for(turns.wait(LARGE_BYTES), 5)

    asyncio.run(run())
