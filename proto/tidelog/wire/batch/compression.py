"""Compression of a batch's records, over cramjam.

Owns how each codec is framed and how much output is admitted. What a batch decompresses to is
bounded before anything of it is parsed: the output goes into a buffer of bounded size, and the
decompressor stops where that ends, so that a bomb costs its cap and not what it promises.
"""

from collections.abc import Callable
from typing import Final

import cramjam

from tidelog.wire.batch.errors import BatchTooLarge, CorruptBatch
from tidelog.wire.batch.layout import Codec
from tidelog.wire.batch.limits import Limits
from tidelog.wire.batch.snappy import compress_snappy, decompress_snappy
from tidelog.wire.batch.zstd import check_zstd_frame

_GUESSED_RATIO: Final = 8
_GUESSED_BYTES_MIN: Final = 64 * 1024
_GROWTH: Final = 8
_OUTPUT_FULL: Final = "failed to write whole buffer"
"""How cramjam says that the output buffer ended before the output; a test watches the words."""

_LZ4_LEVEL: Final = 1
"""The fast mode, which is what lz4 is chosen for; cramjam's own default costs six times as much."""

_ZSTD_LEVEL: Final = 3
_GZIP_LENGTH_BYTES: Final = 4
"""A gzip stream ends with its length, modulo 2³², lowest byte first."""


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
            # Kafka's Java clients refuse blocks that refer to the ones before them.
            compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, block_linked=False)
            compressor.compress(body)
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(body, level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: bytes, limits: Limits, tried: str) -> bytes:
    """What was compressed; `tried` says in an error which batch this is."""
    cap = limits.decompressed_bytes_cap(len(data))
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            ending = int.from_bytes(data[-_GZIP_LENGTH_BYTES:], "little")
            return _decompress_into(cramjam.gzip.decompress_into, data, ending, cap, tried)
        case Codec.SNAPPY:
            return decompress_snappy(data, cap, tried)
        case Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, data, 0, cap, tried)
        case Codec.ZSTD:
            declared = check_zstd_frame(data, cap, tried) or 0
            return _decompress_into(cramjam.zstd.decompress_into, data, declared, cap, tried)


def _decompress_into(
    decompress_into: Callable[[bytes, bytearray], int],
    data: bytes,
    expected_bytes: int,
    cap: int,
    tried: str,
) -> bytes:
    """Decompresses into a buffer of what is expected, and of more, up to the cap, if that fills."""
    guess = max(_GUESSED_RATIO * len(data), _GUESSED_BYTES_MIN)
    room = min(cap, expected_bytes or guess)
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
                tried=tried, happened=f"{len(data)} compressed bytes become more than {cap}"
            )
        room = min(cap, max(_GROWTH * room, guess))
