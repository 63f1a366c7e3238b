"""Compression of a batch's records, over cramjam.

Owns how each codec is framed and how much output is admitted. What a batch decompresses to is
bounded before anything of it is parsed: the output goes into a buffer of bounded size, and the
decompressor stops where that ends, so that a bomb costs its cap and not what it promises.
"""

from collections.abc import Callable
from typing import Final

import cramjam

from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch
from tidelog.wire.batch.layout import Buffer, Codec
from tidelog.wire.batch.limits import Limits
from tidelog.wire.batch.snappy import compress_snappy, decompress_snappy

_FIRST_GUESS_RATIO: Final = 8
_FIRST_GUESS_BYTES_MIN: Final = 64 * 1024
_GROWTH: Final = 8
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""How cramjam says that the output buffer ended before the output; a test watches the words."""

_ZSTD_LEVEL: Final = 3


def compress(codec: Codec, body: bytes) -> bytes:
    """The body as the codec frames it."""
    match codec:
        case Codec.NONE:
            return body
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(body))
        case Codec.SNAPPY:
            return compress_snappy(body)
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(body))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(body, level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, limits: Limits, tried: str) -> bytes:
    """What was compressed; `tried` says in an error which batch this is."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _decompress_into(cramjam.gzip.decompress_into, data, limits, tried)
        case Codec.SNAPPY:
            return decompress_snappy(data, limits, tried)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, data, limits, tried)
        case Codec.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, data, limits, tried)


def _decompress_into(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limits: Limits, tried: str
) -> bytes:
    cap = limits.decompressed_bytes_cap(len(data))
    room = min(cap, max(_FIRST_GUESS_RATIO * len(data), _FIRST_GUESS_BYTES_MIN))
    while True:
        output = bytearray(room)
        try:
            size_bytes = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise CorruptBatch(tried=tried, happened=f"decompression failed: {error}") from None
        else:
            return bytes(memoryview(output)[:size_bytes])
        if room >= cap:
            raise BatchTooLarge(
                tried=tried,
                happened=f"{len(data)} compressed bytes become more than {cap}",
            )
        room = min(cap, _GROWTH * room)
