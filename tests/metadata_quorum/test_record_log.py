"""Framing of the metadata log: every cut is a torn tail, every flip before the end corruption."""

import pytest

from tidelog.metadata_quorum import record_log
from tidelog.wire.errors import ErrorCode, TidelogError

PAYLOADS = [b"first", b"the second entry", b"x"]
LOG = b"".join(record_log.frame(payload) for payload in PAYLOADS)
ENDS = [0, 15, 41, 52]
"""Where each entry ends: ten bytes of head and the payload."""


def test_the_format_is_pinned() -> None:
    assert record_log.frame(b"abc").hex() == "544d00000003" + "8f337f99" + "616263"


@pytest.mark.parametrize("length", range(len(LOG) + 1))
def test_a_log_cut_anywhere_keeps_its_whole_entries(length: int) -> None:
    scanned = record_log.scan(LOG[:length], file_name="log")
    whole = max(place for place, end in enumerate(ENDS) if end <= length)
    assert list(scanned.payloads) == PAYLOADS[:whole]
    assert scanned.valid_bytes == ENDS[whole]


@pytest.mark.parametrize("position", range(ENDS[2]))
def test_a_flipped_byte_with_a_whole_entry_behind_is_corruption(position: int) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x10
    with pytest.raises(TidelogError) as caught:
        record_log.scan(bytes(damaged), file_name="the log")
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert "the log" in caught.value.tried
    entry = max(end for end in ENDS if end <= position)
    assert f"byte {entry} " in caught.value.happened


@pytest.mark.parametrize("position", range(ENDS[2], ENDS[3]))
def test_a_damaged_last_entry_is_a_torn_tail(position: int) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x10
    scanned = record_log.scan(bytes(damaged), file_name="log")
    assert scanned.valid_bytes == ENDS[2]


def test_zeros_behind_the_last_entry_are_a_torn_tail() -> None:
    assert record_log.scan(LOG + bytes(100), file_name="log").valid_bytes == len(LOG)
