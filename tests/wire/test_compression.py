"""Every codec both ways, every framing that is read, and bombs that stay small."""

import gzip
import os
import struct
import subprocess
import sys

import cramjam
import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.chaos.fuzz.batches import run_bombs
from tidelog.chaos.fuzz.bombs import bombs
from tidelog.chaos.fuzz.seal import seal_body
from tidelog.wire.batch import (
    BatchTooLarge,
    Codec,
    CorruptBatch,
    Limits,
    decode_records,
    encode_batch,
    read_header,
)
from tidelog.wire.batch.compression import compress, decompress
from tidelog.wire.batch.limits import DEFAULT_LIMITS

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
BODY = b"a body that repeats itself, a body that repeats itself " * 50
RECORDS = [(1_000, None, b"value %04d" % index, ()) for index in range(200)]


def unpack(codec: Codec, data: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    return decompress(codec, data, limits, "try")


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("body", [b"x", BODY, bytes(200_000), os.urandom(100_000)])
def test_a_body_comes_back(codec: Codec, body: bytes) -> None:
    assert unpack(codec, compress(codec, body)) == body


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("kept", [0, 1, 5, 12, 18, -1])
def test_a_body_that_is_cut_off_is_corrupt(codec: Codec, kept: int) -> None:
    with pytest.raises(CorruptBatch):
        unpack(codec, compress(codec, BODY)[:kept])


@pytest.mark.parametrize("codec", PACKED)
def test_bytes_of_no_codec_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        unpack(codec, b"these bytes were never compressed by anything")


@pytest.mark.parametrize("codec", PACKED)
def test_output_is_capped_in_size(codec: Codec) -> None:
    packed = compress(codec, BODY)
    assert unpack(codec, packed, Limits(decompressed_bytes_max=len(BODY))) == BODY
    with pytest.raises(BatchTooLarge):
        unpack(codec, packed, Limits(decompressed_bytes_max=len(BODY) - 1))


@pytest.mark.parametrize("codec", PACKED)
def test_output_is_capped_in_ratio(codec: Codec) -> None:
    packed = compress(codec, BODY)
    ratio = -(-len(BODY) // len(packed))
    fits = Limits(decompression_allowance_bytes=0, decompression_ratio_max=ratio)
    assert unpack(codec, packed, fits) == BODY
    tight = Limits(decompression_allowance_bytes=0, decompression_ratio_max=ratio - 1)
    with pytest.raises(BatchTooLarge):
        unpack(codec, packed, tight)
    allowed = Limits(decompression_allowance_bytes=len(BODY), decompression_ratio_max=1)
    assert unpack(codec, packed, allowed) == BODY


@pytest.mark.parametrize("codec", PACKED)
def test_what_a_reader_would_refuse_is_sealed_uncompressed(codec: Codec) -> None:
    records = [(0, None, bytes(100_000), ())]
    tight = Limits(decompression_allowance_bytes=0, decompression_ratio_max=2)
    batch = encode_batch(records, codec=codec, limits=tight)
    assert read_header(batch).codec is Codec.NONE
    assert decode_records(batch, limits=tight)[0][4] == bytes(100_000)


def test_snappy_is_read_as_a_stream_and_as_one_block() -> None:
    body = encode_batch(RECORDS)[61:]
    for packed in (compress(Codec.SNAPPY, body), bytes(cramjam.snappy.compress_raw(body))):
        batch = seal_body(packed, codec=Codec.SNAPPY, record_count=len(RECORDS))
        assert [record[4] for record in decode_records(batch)] == [
            value for _, _, value, _ in RECORDS
        ]


def test_a_snappy_stream_has_kafkas_header_and_blocks_of_32_kibibytes() -> None:
    packed = compress(Codec.SNAPPY, os.urandom(70_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    sizes = []
    at = 16
    while at < len(packed):
        (size,) = struct.unpack_from(">I", packed, at)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32_768, 32_768, 4_464]


def test_lz4_blocks_are_independent_as_kafkas_java_clients_demand() -> None:
    packed = compress(Codec.LZ4, BODY)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20, "the flag of independent blocks is set"


def test_two_gzip_members_are_read_as_one_body() -> None:
    assert unpack(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_the_words_by_which_a_full_output_is_told_are_still_the_same() -> None:
    for module in (cramjam.gzip, cramjam.lz4, cramjam.zstd):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            module.decompress_into(bytes(module.compress(BODY)), bytearray(10))


def test_zstd_is_exactly_one_frame() -> None:
    frame = compress(Codec.ZSTD, BODY)
    for data in (frame + frame, frame + b"\x00", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + frame):
        with pytest.raises(CorruptBatch):
            unpack(Codec.ZSTD, data)


def test_a_zstd_frame_without_a_declared_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(BODY)
    assert unpack(Codec.ZSTD, bytes(compressor.finish())) == BODY


def test_a_zstd_window_that_needs_much_memory_is_refused() -> None:
    # Window descriptor 0x70 is 16 MiB; one empty raw block follows.
    with pytest.raises(BatchTooLarge, match="window of 16777216 bytes"):
        unpack(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x70\x01\x00\x00")
    assert unpack(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x68\x01\x00\x00") == b""


@pytest.mark.parametrize(
    ("name", "batch"), [(name, batch) for name, batch in bombs() if len(batch) < 50_000]
)
def test_small_bombs_are_refused_as_too_large(name: str, batch: bytes) -> None:
    with pytest.raises(BatchTooLarge):
        decode_records(batch)


@pytest.mark.slow
@pytest.mark.fuzz
def test_all_bombs_are_refused_and_none_is_opened() -> None:
    for name, _, result, _ in run_bombs():
        assert result == "BatchTooLarge", name


@pytest.mark.slow
def test_a_bomb_costs_its_cap_and_not_what_it_promises() -> None:
    # 1 GiB of zeros in gzip members; the process may have 400 MiB of address space in all.
    program = """
import cramjam, resource
from tidelog.chaos.fuzz.seal import seal_body
from tidelog.wire.batch import BatchTooLarge, Codec, decode_batch
bomb = bytes(cramjam.gzip.compress(bytes(2**20))) * 1024
resource.setrlimit(resource.RLIMIT_AS, (400 * 2**20,) * 2)
try:
    decode_batch(seal_body(bomb, codec=Codec.GZIP, record_count=1))
except BatchTooLarge:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")
