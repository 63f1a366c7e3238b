"""Plain records out of stored batches: what is asked for is read, and no more of a batch."""

import random
from typing import Any

import pytest

from tidelog.broker.services.records.handler import decoded_records
from tidelog.wire.batch import (
    HEADER_BYTES,
    Codec,
    DecodedRecord,
    RecordTuple,
    decode_batch,
    encode_batch,
    iterate_headers,
    stamp,
)
from tidelog.wire.batch import decode as batch_decode
from tidelog.wire.errors import TidelogError

RECORDS_MAX = 262_144


def batches(numbers: random.Random, count: int) -> tuple[bytes, int]:
    """One after the other, of all shapes, and the offset after the last."""
    data, offset = bytearray(), 100
    for _ in range(count):
        records: list[RecordTuple] = []
        is_uniform = numbers.random() < 0.4
        for _ in range(numbers.choice((1, 2, 30, 300, 700))):
            size = 3 if is_uniform else numbers.choice((0, 1, 70, 200))
            headers = () if is_uniform else (("h", b"v"),) * numbers.choice((0, 0, 2))
            records.append((1_000, None, numbers.randbytes(size), headers))
        codec = numbers.choice((Codec.NONE, Codec.GZIP))
        batch = bytearray(encode_batch(records, codec=codec))
        stamp(batch, 0, base_offset=offset, leader_epoch=1)
        data += batch
        offset += len(records)
    return bytes(data), offset


def all_of(data: bytes) -> list[DecodedRecord]:
    return [
        record
        for position, _ in iterate_headers(data, is_compacted=True)
        for record in decode_batch(data, position, is_compacted=True)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_from_every_offset_any_number_of_records_is_what_the_batches_hold(seed: int) -> None:
    numbers = random.Random(seed)
    data, end = batches(numbers, 6)
    every = all_of(data)
    for _ in range(40):
        offset = numbers.randrange(90, end + 5)
        count = numbers.choice((1, 2, 255, 256, 257, 1_000))
        wanted = [record for record in every if record[0] >= offset][:count]
        records, next_offset = decoded_records(data, offset, count)
        assert records == wanted
        assert next_offset == (wanted[-1][0] + 1 if wanted else max(offset, end))


@pytest.mark.parametrize("offset", [0, 100_000, RECORDS_MAX - 10])
def test_few_records_of_a_dense_batch_are_read_without_the_others(
    offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = batch_decode._read_into
    counts: list[int] = []

    def counted(records: list[DecodedRecord], *rest: Any) -> Any:
        place = read(records, *rest)
        counts.append(len(records))
        return place

    monkeypatch.setattr(batch_decode, "_read_into", counted)
    data = encode_batch([(0, None, None, ())] * RECORDS_MAX, codec=Codec.GZIP)
    records, next_offset = decoded_records(data, offset, 10)
    assert [record[0] for record in records] == list(range(offset, offset + 10))
    assert next_offset == offset + 10
    assert sum(counts) <= 22


def test_records_before_damage_are_read_and_damage_where_the_answer_begins_is_an_error() -> None:
    whole, _ = batches(random.Random(1), 1)
    damaged = bytearray(encode_batch([(0, None, b"x" * 50, ())] * 10))
    damaged[HEADER_BYTES + 20] ^= 1
    stamp(damaged, 0, base_offset=100 + len(all_of(whole)), leader_epoch=1)
    records, next_offset = decoded_records(whole + bytes(damaged), 0, 10_000)
    assert records == all_of(whole)
    with pytest.raises(TidelogError):
        decoded_records(whole + bytes(damaged), next_offset, 10)
