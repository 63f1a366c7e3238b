"""A stored batch whose body contradicts its header: readers of plain records learn how to go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.services.records.handler import decoded_records
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ReadPlace, TidelogError

GOLDEN = Path(__file__).parents[3] / "proto" / "golden" / "refused.json"
BODIES = (
    "record_too_long",
    "byte_after_the_records",
    "offset_delta_repeats",
    "endless_number",
    "not_gzip",
    "gzip_bomb",
)
FIRST = 40


def at(offset: int, batch: bytes) -> bytes:
    """As a leader stores it."""
    return offset.to_bytes(8, "big") + batch[8:]


def stored(name: str) -> tuple[dict[str, Any], bytes, int]:
    """The golden case, the bytes of a good batch, it, and a good one; and where the last begins."""
    case = next(each for each in json.loads(GOLDEN.read_text()) if each["name"] == name)
    good = encode_batch([(1, b"k", b"v", ())])
    bad = at(FIRST + 1, bytes.fromhex(case["bytes"]))
    behind = read_header(bad).next_offset
    return case, at(FIRST, good) + bad + at(behind, good), behind


@pytest.mark.parametrize("name", BODIES)
def test_the_records_before_it_come_then_the_error_says_where_to_go_on(name: str) -> None:
    case, data, behind = stored(name)
    records, next_offset = decoded_records(data, FIRST, 100)
    assert [record[0] for record in records] == [FIRST]
    assert next_offset == FIRST + 1
    with pytest.raises(TidelogError) as caught:
        decoded_records(data, next_offset, 100)
    assert caught.value.code.name == case["code"]
    assert f"offsets {FIRST + 1} to {behind - 1}" in caught.value.tried
    assert f"go on at offset {behind}" in caught.value.hint.lower()
    assert caught.value.go_on_at == ReadPlace("", 0, behind)
