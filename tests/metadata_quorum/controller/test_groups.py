"""Decisions of any size become entries of bounded size that take effect together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.records.entries import (
    BeginRecord,
    EndRecord,
    MetadataRecord,
    TopicRecord,
    decode_entry,
)
from tidelog.metadata_quorum.controller.groups import encode_group
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId


def topic(number: int, name: str = "t") -> TopicRecord:
    """A record of some 60 bytes and its name."""
    return TopicRecord(topic_id=TopicId(number.to_bytes(16, "big")), name=name)


def test_what_fits_into_one_entry_needs_no_marks() -> None:
    records = (topic(1), topic(2))
    (entry,) = encode_group(records, name="two")
    assert decode_entry(entry) == records


def test_a_record_that_fits_into_no_entry_is_refused() -> None:
    with pytest.raises(TidelogError) as caught:
        encode_group((topic(1, "x" * 2_000),), name="create", bytes_max=1_000)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "1000" in caught.value.happened
    assert caught.value.tried == "create"


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60),
    bytes_max=st.integers(500, 3_000),
)
def test_no_entry_is_too_large_and_no_record_is_lost(sizes: list[int], bytes_max: int) -> None:
    records: tuple[MetadataRecord, ...] = tuple(
        topic(number, "x" * size) for number, size in enumerate(sizes)
    )
    entries = encode_group(records, name="many", bytes_max=bytes_max)
    assert all(len(entry) <= bytes_max for entry in entries)
    found = [record for entry in entries for record in decode_entry(entry)]
    if len(entries) == 1:
        assert tuple(found) == records
    else:
        assert found == [BeginRecord(name="many"), *records, EndRecord()]
