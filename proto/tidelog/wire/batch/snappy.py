"""Snappy as Kafka's clients frame it: the xerial stream, or one raw block.

Owns the framing; cramjam does the raw blocks. A raw block declares its decompressed length, which
is checked against what is still admitted before the block is touched.
"""

import struct
from typing import Final

import cramjam

from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch

_MAGIC: Final = b"\x82SNAPPY\x00"
_STREAM_HEADER: Final = _MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, lowest version that a reader needs."""

_LENGTH: Final = struct.Struct(">I")
_BLOCK_BYTES: Final = 32 * 1024


def compress_snappy(body: bytes) -> bytes:
    """The xerial stream: header, then blocks of 32 KiB, each compressed and prefixed by length."""
    parts = [_STREAM_HEADER]
    for start in range(0, len(body), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(body[start : start + _BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress_snappy(data: bytes, cap: int, tried: str) -> bytes:
    """Reads both framings; they are told apart by the stream's magic."""
    view = memoryview(data)
    if not data.startswith(_MAGIC):
        return _decompress_block(view, cap, tried)
    blocks: list[bytes] = []
    admitted = cap
    position = len(_STREAM_HEADER)
    if position > len(view):
        raise CorruptBatch(tried=tried, happened="its snappy stream header is cut off")
    while position < len(view):
        if position + _LENGTH.size > len(view):
            raise CorruptBatch(tried=tried, happened="the length of a snappy block is cut off")
        (block_bytes,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if position + block_bytes > len(view):
            raise CorruptBatch(tried=tried, happened="a snappy block is cut off")
        block = _decompress_block(view[position : position + block_bytes], admitted, tried)
        blocks.append(block)
        admitted -= len(block)
        position += block_bytes
    return b"".join(blocks)


def _decompress_block(block: memoryview, cap: int, tried: str) -> bytes:
    declared = _declared_bytes(block, tried)
    if declared > cap:
        raise BatchTooLarge(
            tried=tried,
            happened=f"a snappy block declares {declared} bytes, {cap} are admitted",
        )
    output = bytearray(declared)
    try:
        size_bytes = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(tried=tried, happened=f"decompression failed: {error}") from None
    if size_bytes != declared:
        raise CorruptBatch(
            tried=tried, happened=f"a snappy block of {declared} bytes gave {size_bytes}"
        )
    return bytes(output)


def _declared_bytes(block: memoryview, tried: str) -> int:
    """The block's first bytes: its decompressed length, seven bits a byte, not zigzag."""
    declared = 0
    for index, byte in enumerate(block[:5]):
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return declared
    raise CorruptBatch(tried=tried, happened="a snappy block does not say its length")
