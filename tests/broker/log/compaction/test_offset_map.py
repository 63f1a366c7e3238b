"""The map of keys: what it knows, what it refuses, what it costs."""

import gc
import tracemalloc
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.log.compaction.offset_map import (
    DIGEST_BYTES,
    ENTRY_BYTES,
    NOT_KNOWN,
    OffsetMap,
)


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1), max_size=20))
def test_the_last_offset_of_each_key_is_known(batches: list[list[bytes]]) -> None:
    offsets, expected, offset = OffsetMap(1 << 20), dict[bytes, int](), 0
    for keys in batches:
        numbers = list(range(offset, offset + len(keys)))
        assert offsets.note(keys, numbers)
        expected.update(zip(keys, numbers, strict=True))
        offset += len(keys)
    assert offsets.latest(list(expected)) == list(expected.values())
    assert offsets.latest([b"never noted", bytes(99)]) == [NOT_KNOWN, NOT_KNOWN]


def test_a_digest_is_never_taken_for_a_key() -> None:
    long_key = b"k" * DIGEST_BYTES
    digest = blake2b(long_key, digest_size=DIGEST_BYTES).digest()
    offsets = OffsetMap(1 << 20)
    offsets.note([long_key], [1])
    assert offsets.latest([digest, digest[:-1], long_key, long_key[:-1]]) == [-1, -1, 1, -1]


def test_keys_that_do_not_fit_are_refused_together_and_known_ones_always_fit() -> None:
    offsets = OffsetMap(3 * ENTRY_BYTES)
    assert offsets.note([b"a", b"b"], [0, 1])
    assert not offsets.note([b"c", b"d"], [2, 3])
    assert offsets.latest([b"c", b"d"]) == [-1, -1]
    assert offsets.note([b"a", b"b", b"a", b"c", b"c"], [4, 5, 6, 7, 8])
    assert offsets.latest([b"a", b"b", b"c"]) == [6, 5, 8]
    assert offsets.note([b"b"] * 9, list(range(9, 18)))
    assert not offsets.note([b"d"], [18])


def test_an_empty_map_takes_any_batch() -> None:
    offsets = OffsetMap(1)
    assert offsets.note([b"a", b"b"], [0, 1])
    assert not offsets.note([b"c"], [2])


@pytest.mark.slow
def test_an_entry_costs_no_more_than_its_name_says() -> None:
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        offsets = OffsetMap(1 << 40)
        for start in range(0, 400_000, 1_000):
            numbers = list(range(start, start + 1_000))
            offsets.note([b"%060d" % number for number in numbers], numbers)
            _, peak = tracemalloc.get_traced_memory()
            # The keys of the batch itself are not the map's.
            if start >= 10_000:
                assert peak - before - 200_000 <= ENTRY_BYTES * len(offsets)
    finally:
        tracemalloc.stop()
