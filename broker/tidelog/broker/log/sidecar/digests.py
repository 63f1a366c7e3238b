"""Digests of a sealed segment: a checksum for each 64 KiB of it. Pure.

A batch's own checksum leaves out its base offset, length and leader epoch, and says nothing of
where it belongs. A digest covers every byte and is bound to topic id, partition and byte position,
so that bytes that were misdirected on their way to the disk are found as well.

    digests    blocks of u32 each: CRC-32C over topic id, partition, byte position, the bytes
"""

import struct
import sys
from array import array
from typing import Final

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.blocks import (
    BLOCK_BYTES,
    PAYLOAD_BYTES_MAX,
    block_count,
    block_seed,
    corrupt_sidecar,
    frame_blocks,
    open_block,
)
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES, Section
from tidelog.wire.batch import checksum
from tidelog.wire.batch.checksum import extend_checksum
from tidelog.wire.ids import PartitionKey

DIGESTS: Final = "digests"
ENTRY_BYTES: Final = 4
DIGESTS_PER_BLOCK: Final = PAYLOAD_BYTES_MAX // ENTRY_BYTES

_PLACE: Final = struct.Struct(">16sIq")


def digest_start(key: PartitionKey, byte_position: int) -> int:
    """What a digest is before any byte; extend it with the bytes."""
    assert byte_position % DIGEST_BYTES == 0, f"no digest begins at byte {byte_position}"
    return checksum(_PLACE.pack(key.topic_id, key.partition, byte_position))


def digest_of(key: PartitionKey, byte_position: int, data: bytes) -> int:
    """The digest of the bytes from there on: 64 KiB of them, fewer at the segment's end."""
    assert len(data) <= DIGEST_BYTES, f"a digest covers {DIGEST_BYTES} bytes, not {len(data)}"
    return extend_checksum(digest_start(key, byte_position), data)


def digest_count(size_bytes: int) -> int:
    """How many digests a segment of this size has."""
    return -(-size_bytes // DIGEST_BYTES)


class DigestStream:
    """Digests of bytes that come in pieces."""

    __slots__ = ("_digests", "_filled_bytes", "_key", "_position", "_running")

    def __init__(self, key: PartitionKey) -> None:
        self._key = key
        self._digests = array("I")
        self._position = 0
        self._filled_bytes = 0
        self._running = 0

    def feed(self, data: bytes) -> None:
        """The next bytes of the segment."""
        start = 0
        while start < len(data):
            if not self._filled_bytes:
                self._running = digest_start(self._key, self._position)
            part = data[start : start + DIGEST_BYTES - self._filled_bytes]
            self._running = extend_checksum(self._running, part)
            self._filled_bytes += len(part)
            start += len(part)
            if self._filled_bytes == DIGEST_BYTES:
                self._take()

    @property
    def digests(self) -> list[int]:
        """Those that are finished."""
        return list(self._digests)

    def finish(self) -> list[int]:
        """The digests of all."""
        if self._filled_bytes:
            self._take()
        return list(self._digests)

    def _take(self) -> None:
        self._digests.append(self._running)
        self._position += self._filled_bytes
        self._filled_bytes = 0


def encode_digests(key: SegmentKey, digests: list[int]) -> bytes:
    """The bytes of the section digests."""
    return frame_blocks(block_seed(key, DIGESTS), struct.pack(f">{len(digests)}I", *digests))


def decode_digest_block(
    key: SegmentKey, section: Section, number: int, data: bytes
) -> "array[int]":
    """The digests of one block: number k of it covers the segment from byte
    (number × `DIGESTS_PER_BLOCK` + k) × `DIGEST_BYTES` on."""
    digests = array("I", open_block(key, section, number, data, entry_bytes=ENTRY_BYTES))
    assert digests.itemsize == ENTRY_BYTES, "an unsigned int has four bytes"
    if sys.byteorder == "little":
        digests.byteswap()
    return digests


def decode_digests(key: SegmentKey, section: Section, data: bytes, *, size_bytes: int) -> list[int]:
    """All digests of a segment of that size; `data` are the bytes of the whole section."""
    digests: list[int] = []
    for number in range(block_count(section)):
        start = number * BLOCK_BYTES
        digests += decode_digest_block(key, section, number, data[start : start + BLOCK_BYTES])
    if len(digests) != digest_count(size_bytes):
        raise corrupt_sidecar(
            key, section.byte_position, f"{len(digests)} digests for {size_bytes} bytes"
        )
    return digests
