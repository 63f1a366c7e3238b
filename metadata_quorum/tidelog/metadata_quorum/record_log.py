"""How entries lie in the metadata log's file, and what a damaged tail means. Pure.

A frame: two bytes `TM`, the payload's length (u32, big-endian), CRC-32C over length and payload,
payload. Writes are one at a time and each is flushed before the next, so bytes behind a damaged
frame prove that it had been durable: that is corruption. A damaged frame with nothing valid behind
it is the write that a crash tore: it was never visible, and is cut off.
"""

import struct
from typing import Final

import msgspec

from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError

MAGIC: Final = b"TM"
_HEAD: Final = struct.Struct(">2sII")
HEAD_BYTES: Final = _HEAD.size
_LENGTH: Final = struct.Struct(">I")

PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Ten thousand partitions of one topic take about 2 MiB."""


class LogScan(msgspec.Struct, frozen=True, kw_only=True):
    """What a log's bytes hold: whole entries up to `valid_bytes`, then at most a torn tail."""

    payloads: tuple[bytes, ...]
    valid_bytes: int


def frame(payload: bytes) -> bytes:
    """The bytes to append for one entry."""
    assert 0 < len(payload) <= PAYLOAD_BYTES_MAX, f"an entry of {len(payload)} bytes"
    length = _LENGTH.pack(len(payload))
    return _HEAD.pack(MAGIC, len(payload), checksum(length + payload)) + payload


def scan(data: bytes, *, file_name: str) -> LogScan:
    """All whole entries; STORAGE_CORRUPT if something valid lies behind a damaged one."""
    payloads = []
    position = 0
    while (payload := _payload_at(data, position)) is not None:
        payloads.append(payload)
        position += HEAD_BYTES + len(payload)
    behind = _next_valid(data, position + 1)
    if behind is not None:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"read {file_name}",
            happened=f"the entry at byte {position} is damaged, the one at byte {behind} is whole",
        )
    return LogScan(payloads=tuple(payloads), valid_bytes=position)


def _payload_at(data: bytes, position: int) -> bytes | None:
    start = position + HEAD_BYTES
    if start > len(data):
        return None
    magic, length, stored = _HEAD.unpack_from(data, position)
    if magic != MAGIC or not 0 < length <= PAYLOAD_BYTES_MAX or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if checksum(_LENGTH.pack(length) + payload) == stored else None


def _next_valid(data: bytes, position: int) -> int | None:
    while (position := data.find(MAGIC, position)) >= 0:
        if _payload_at(data, position) is not None:
            return position
        position += 1
    return None
