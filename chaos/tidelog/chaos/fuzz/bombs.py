"""Batches that are small and promise to become large.

Owns one way for each codec to ask a reader for more than its limits; made without ever holding what
they promise. The checksums are right: only the limits stop them.
"""

import struct
from typing import Final

import cramjam

from tidelog.chaos.fuzz.seal import seal_body
from tidelog.wire.batch import Codec

_MEBIBYTE: Final = 1024 * 1024
_PROMISED_MEBIBYTES: Final = 1_024
_ZSTD_BLOCK_BYTES: Final = 128 * 1024


def bombs() -> list[tuple[str, bytes]]:
    """Name and bytes of each."""
    zeros = bytes(_MEBIBYTE)
    lz4 = cramjam.lz4.Compressor(block_linked=False)
    lz4.compress(zeros)
    lz4_frame = bytes(lz4.finish())
    snappy_block = bytes(cramjam.snappy.compress_raw(zeros))
    bodies = [
        ("gzip members", Codec.GZIP, bytes(cramjam.gzip.compress(zeros)) * _PROMISED_MEBIBYTES),
        ("gzip, short of its length", Codec.GZIP, bytes(cramjam.gzip.compress(zeros * 64))),
        ("lz4 frames", Codec.LZ4, lz4_frame * 256),
        ("snappy stream", Codec.SNAPPY, _xerial([snappy_block] * 65)),
        ("snappy length", Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + snappy_block[3:]),
        ("snappy block length", Codec.SNAPPY, _xerial([b"\xff\xff\xff\xff\x0f"])),
        ("zstd repeated blocks", Codec.ZSTD, _zstd(None, window=0x58)),
        ("zstd content size", Codec.ZSTD, _zstd(2**40, window=None)),
        ("zstd lying content size", Codec.ZSTD, _zstd(1_000, window=None)),
        ("zstd window", Codec.ZSTD, _zstd(None, window=0xF8)),
    ]
    return [
        (name, seal_body(body, codec=codec, record_count=1_000)) for name, codec, body in bodies
    ]


def header_bomb(codec: Codec) -> bytes:
    """One record whose headers cost sixty times their bytes in memory."""
    count = 8 * _MEBIBYTE
    headers = b"\x00\x01" * count
    record = b"\x00\x00\x00\x01\x01" + _varint(count) + headers
    body = _varint(len(record)) + record
    compressed = {
        Codec.GZIP: cramjam.gzip.compress,
        Codec.ZSTD: cramjam.zstd.compress,
    }[codec](body)
    return seal_body(bytes(compressed), codec=codec, record_count=1)


def _varint(number: int) -> bytes:
    rest = 2 * number
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest % 128 + 128)
        rest //= 128
    return bytes((*encoded, rest))


def _xerial(blocks: list[bytes]) -> bytes:
    framed = b"".join(struct.pack(">I", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def _zstd(content_bytes: int | None, *, window: int | None) -> bytes:
    """A frame of blocks that each repeat one byte 131,072 times and take four bytes."""
    head = b"\x28\xb5\x2f\xfd"
    if content_bytes is None:
        assert window is not None, "a frame says its content's size or a window"
        head += bytes((0x00, window))
    else:
        head += b"\xe0" + content_bytes.to_bytes(8, "little")
    count = _PROMISED_MEBIBYTES * _MEBIBYTE // _ZSTD_BLOCK_BYTES
    blocks = [
        (_ZSTD_BLOCK_BYTES << 3 | 1 << 1 | int(index == count - 1)).to_bytes(3, "little") + b"\x00"
        for index in range(count)
    ]
    return head + b"".join(blocks)
