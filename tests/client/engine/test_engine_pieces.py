"""A large answer is taken apart between batches; what the user is given does not depend on it."""

import msgspec
import pytest

from tests.client.engine.test_engine_consumer import T0, World, part
from tidelog.client.engine.fetch.answer import PIECE_BYTES
from tidelog.client.engine.fetch.messages import Fetched, PartitionBatches
from tidelog.client.reading.consumer_parts import split
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode

LARGE = PIECE_BYTES
SMALL = 1_000


def answer_of(sizes: list[int], base_offset: int = 0) -> tuple[list[bytes], PartitionBatches]:
    """A batch of two records for each size, and the answer that holds them as a view."""
    batches = [
        encode_batch([(0, None, bytes(size // 2), ())] * 2, base_offset=base_offset + 2 * number)
        for number, size in enumerate(sizes)
    ]
    whole = part(b"".join(batches), base_offset)
    return batches, msgspec.structs.replace(whole, batches=memoryview(bytes(whole.batches)))


def take_all(world: World) -> list[Fetched]:
    found = []
    while (fetched := world.core.take()) is not None:
        world.core.partitions[T0].hand_over(fetched.next_offset)
        found.append(fetched)
    return found


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([LARGE, LARGE, LARGE], [1, 1, 1]),
        ([SMALL, SMALL, LARGE, SMALL], [3, 1]),
        ([LARGE, SMALL, SMALL], [1, 2]),
        ([SMALL] * 300, [122, 122, 56]),
    ],
)
def test_every_batch_is_handed_over_once_and_in_order(sizes: list[int], counts: list[int]) -> None:
    world = World()
    world.read_from(0)
    batches, answer = answer_of(sizes)
    world.answer(answer)
    pieces = take_all(world)
    assert [len(split(piece)) for piece in pieces] == counts
    assert [each.data for piece in pieces for each in split(piece)] == batches
    ends = [piece.next_offset for piece in pieces]
    assert [piece.first_offset for piece in pieces] == [0, *ends[:-1]]
    assert ends[-1] == 2 * len(sizes) == world.core.partitions[T0].position
    world.tick()
    assert world.core.links[1].buffered_bytes == 0


def test_a_large_batch_is_given_to_the_user_as_it_was_copied_once() -> None:
    world = World()
    world.read_from(0)
    world.answer(answer_of([LARGE, LARGE])[1])
    for piece in take_all(world):
        (batch,) = split(piece)
        assert batch.data is piece.data


@pytest.mark.parametrize("place", [100, LARGE + 200, 2 * LARGE + 300])
def test_nothing_of_an_answer_is_handed_over_if_a_byte_of_any_piece_is_wrong(place: int) -> None:
    world = World()
    world.read_from(0)
    _, answer = answer_of([LARGE, LARGE, LARGE])
    changed = bytearray(answer.batches)
    changed[place] ^= 1
    world.answer(msgspec.structs.replace(answer, batches=memoryview(bytes(changed))))
    assert world.core.take() is None
    error = world.core.take_error()
    assert error is not None
    assert error.code is ErrorCode.CORRUPT_BATCH
    assert world.core.partitions[T0].fetch_offset == 0
    assert world.core.links[1].buffered_bytes == 0


def test_batches_below_the_position_go_with_the_one_that_holds_it() -> None:
    world = World()
    world.read_from(5)
    batches, answer = answer_of([LARGE, LARGE, LARGE, LARGE])
    world.answer(answer)
    first, second = take_all(world)
    assert (first.first_offset, first.next_offset) == (5, 6)
    assert [each.data for each in split(first)] == [batches[2]]
    assert (second.first_offset, second.data) == (6, batches[3])


def test_a_seek_makes_every_piece_void() -> None:
    world = World()
    world.read_from(0)
    world.answer(answer_of([LARGE, LARGE, LARGE])[1])
    assert world.core.take() is not None
    world.core.seek(T0, 1)
    world.tick()
    assert world.core.take() is None
    assert world.core.links[1].buffered_bytes == 0
