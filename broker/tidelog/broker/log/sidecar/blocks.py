"""Blocks of a sidecar that are read one by one: the frame of index and digests. Pure.

    u32 length of the payload | u32 number of the block | payload | zeros | u32 CRC-32C    = 4096

All but the last of a section are full; the last one ends with its payload. The checksum is bound to
the segment and the section: a block of another file, or another block of this one, is refused.
It must never be believed before `open_block` has looked at it.
"""

import struct
from typing import Final

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.contents import Section
from tidelog.wire.batch import checksum
from tidelog.wire.batch.checksum import extend_checksum
from tidelog.wire.errors import ErrorCode, TidelogError

BLOCK_BYTES: Final = 4096
PAYLOAD_BYTES_MAX: Final = 4080

_HEAD: Final = struct.Struct(">II")
_SUM: Final = struct.Struct(">I")
_SEED: Final = struct.Struct(">16sIqI8s")
_PADDING_BYTES: Final = BLOCK_BYTES - PAYLOAD_BYTES_MAX - _HEAD.size - _SUM.size
_FRAME_BYTES: Final = _HEAD.size + _SUM.size


def block_seed(key: SegmentKey, section_name: str) -> int:
    """What the checksums of the section's blocks start from."""
    partition = key.partition
    name = section_name.encode()
    assert len(name) <= 8, f"a section of blocks has a short name: {section_name}"
    return checksum(
        _SEED.pack(partition.topic_id, partition.partition, key.base_offset, key.generation, name)
    )


def frame_blocks(seed: int, payload: bytes) -> bytes:
    """The payload of a whole section, cut into blocks."""
    pieces = []
    for number, start in enumerate(range(0, len(payload), PAYLOAD_BYTES_MAX)):
        part = payload[start : start + PAYLOAD_BYTES_MAX]
        padding = bytes(_PADDING_BYTES) if len(part) == PAYLOAD_BYTES_MAX else b""
        body = _HEAD.pack(len(part), number) + part + padding
        pieces += [body, _SUM.pack(extend_checksum(seed, body))]
    return b"".join(pieces)


def block_count(section: Section) -> int:
    """How many blocks the section has."""
    return -(-section.length_bytes // BLOCK_BYTES)


def block_range(section: Section, number: int) -> tuple[int, int]:
    """Byte position in the sidecar and length of a block."""
    assert 0 <= number < block_count(section), f"{section.name} has no block {number}"
    start = number * BLOCK_BYTES
    length_bytes = min(BLOCK_BYTES, section.length_bytes - start)
    return section.byte_position + start, length_bytes


def open_block(
    key: SegmentKey, section: Section, number: int, data: bytes, *, entry_bytes: int
) -> bytes:
    """The payload of the block whose bytes are `data`; whole entries, at least one."""
    position, length_bytes = block_range(section, number)
    if len(data) != length_bytes:
        raise corrupt_sidecar(key, position, f"{len(data)} of {length_bytes} bytes are there")
    if length_bytes <= _FRAME_BYTES:
        raise corrupt_sidecar(key, position, f"a block of {length_bytes} bytes cannot be")
    body = data[: -_SUM.size]
    (stored,) = _SUM.unpack_from(data, len(body))
    if extend_checksum(block_seed(key, section.name), body) != stored:
        raise corrupt_sidecar(
            key, position, f"block {number} of its {section.name} contradicts its checksum"
        )
    payload_bytes, stored_number = _HEAD.unpack_from(body)
    padding_bytes = _PADDING_BYTES if length_bytes == BLOCK_BYTES else 0
    if stored_number != number or payload_bytes != length_bytes - _FRAME_BYTES - padding_bytes:
        raise corrupt_sidecar(
            key, position, f"block {stored_number} of {payload_bytes} bytes lies there"
        )
    if payload_bytes % entry_bytes:
        raise corrupt_sidecar(key, position, f"{payload_bytes} bytes are no whole entries")
    return body[_HEAD.size : _HEAD.size + payload_bytes]


def corrupt_sidecar(key: SegmentKey, byte_position: int, happened: str) -> TidelogError:
    """The sidecar is damaged: it can be made again from its segment."""
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=f"read {key.sidecar_path}",
        happened=f"damage at byte {byte_position}: {happened}",
        hint="Nothing is lost: it is made again from its segment.",
    )
