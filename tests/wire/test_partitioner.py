"""A key goes where Kafka's Java client would send it."""

import warnings

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.partitioner import coordinator_partition, murmur2, partition_for_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner import murmur2 as kafka_python_murmur2

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"1": -1993445489,
    b"12": 126087238,
    b"123": -267702483,
    b"1234": -1614185708,
    b"12345": -1188365604,
}
"""What Kafka's own tests expect, as Java's signed numbers."""


@pytest.mark.parametrize("key", KNOWN)
def test_hashes_are_those_of_kafkas_own_tests(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] % 2**32


@given(key=st.binary(max_size=300))
def test_hashes_are_those_of_two_other_implementations(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32
    assert murmur2(key) == kafka_python_murmur2(key) % 2**32


@given(key=st.binary(max_size=100), count=st.integers(1, 100_000))
def test_a_partition_is_the_positive_hash_modulo_the_count(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count


def test_a_coordinator_is_found_by_the_name_in_utf_8() -> None:
    assert coordinator_partition("größe", 16) == partition_for_key("größe".encode(), 16)


def test_a_topic_without_partitions_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        partition_for_key(b"key", 0)
