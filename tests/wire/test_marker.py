"""The control batch that ends a transaction: its bytes, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.golden_vectors import FOLDER
from tidelog.wire.batch import CorruptBatch, RecordTuple, decode_batch, encode_batch, read_header
from tidelog.wire.batch.layout import Codec
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker, read_marker

NOW_MS = 1_790_000_000_000
GOOD: RecordTuple = (NOW_MS, bytes.fromhex("0000 0001"), bytes.fromhex("0000 00000005"), ())


@given(
    type_=st.sampled_from(MarkerType),
    coordinator_epoch=st.integers(0, 2**31 - 1),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)
def test_a_marker_is_read_as_it_was_written(
    type_: MarkerType, coordinator_epoch: int, producer_id: int, producer_epoch: int
) -> None:
    marker = Marker(type_, coordinator_epoch)
    data = encode_marker(
        marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=NOW_MS
    )
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_sequence, header.record_count, header.codec) == (-1, 1, Codec.NONE)
    assert read_marker(data, header) == marker
    assert read_marker(b"before" + data, read_header(b"before" + data, 6), 6) == marker


@pytest.mark.parametrize(
    ("type_", "key"), [(MarkerType.ABORT, "00000000"), (MarkerType.COMMIT, "00000001")]
)
def test_a_marker_has_the_bytes_that_kafka_gives_it(type_: MarkerType, key: str) -> None:
    data = encode_marker(Marker(type_, 5), producer_id=7, producer_epoch=3, timestamp_ms=NOW_MS)
    ((_, _, _, found_key, found_value, headers),) = decode_batch(data)
    assert found_key is not None
    assert found_value is not None
    assert (found_key.hex(), found_value.hex(), headers) == (key, "000000000005", ())


def control(*records: RecordTuple, **changed: object) -> bytes:
    """A control batch that is not necessarily a marker."""
    options: dict[str, object] = {
        "producer_id": 7,
        "producer_epoch": 3,
        "is_transactional": True,
        "is_control": True,
        **changed,
    }
    return encode_batch(list(records), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "happened"),
    [
        (control(GOOD, GOOD), "its header is not one of a marker"),
        (control(GOOD, base_sequence=0), "its header is not one of a marker"),
        (control(GOOD, is_transactional=False), "its header is not one of a marker"),
        (control(GOOD, codec=Codec.GZIP), "its header is not one of a marker"),
        (control((NOW_MS, None, GOOD[2], ())), "its record has headers, or no key or value"),
        (control((NOW_MS, GOOD[1], None, ())), "its record has headers, or no key or value"),
        (control((*GOOD[:3], (("a", b""),))), "its record has headers, or no key or value"),
        (control((NOW_MS, b"\0\0\0\1\0", GOOD[2], ())), "its key has 5 bytes, its value 6"),
        (control((NOW_MS, GOOD[1], b"\0\0\0", ())), "its key has 4 bytes, its value 3"),
        (control((NOW_MS, b"\0\1\0\1", GOOD[2], ())), "its versions are 1 and 0, not 0"),
        (control((NOW_MS, GOOD[1], b"\0\2\0\0\0\5", ())), "its versions are 0 and 2, not 0"),
        (control((NOW_MS, b"\0\0\0\2", GOOD[2], ())), "its type is 2, its coordinator's epoch 5"),
        (control((NOW_MS, GOOD[1], b"\0\0" + b"\xff" * 4, ())), "its coordinator's epoch -1"),
    ],
)
def test_what_is_no_marker_is_refused(data: bytes, happened: str) -> None:
    with pytest.raises(CorruptBatch) as raised:
        read_marker(data, read_header(data))
    assert happened in raised.value.happened


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        ("commit_marker", Marker(MarkerType.COMMIT, 7)),
        ("abort_marker", Marker(MarkerType.ABORT, 2**31 - 1)),
    ],
)
def test_the_golden_markers_are_read(name: str, marker: Marker) -> None:
    vectors = json.loads((FOLDER / "batches.json").read_text())
    (data,) = (bytes.fromhex(each["bytes"]) for each in vectors if each["name"] == name)
    assert read_marker(data, read_header(data)) == marker
