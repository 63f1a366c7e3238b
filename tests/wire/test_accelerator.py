"""The C decoder is the client's choice, and never decides alone."""

import subprocess
import sys

import pytest

from tests.support.waiting import HANG_SECONDS
from tidelog.chaos.fuzz.reference import plain
from tidelog.wire.batch import (
    CorruptBatch,
    Limits,
    decode_batch,
    decode_batch_accelerated,
    decode_records,
    encode_batch,
    has_accelerator,
    use_accelerator,
)

BATCH = encode_batch([(1_000, b"k%d" % index, b"v" * index, ()) for index in range(30)])


@pytest.mark.slow
def test_reading_without_the_accelerator_never_imports_aiokafka() -> None:
    program = """
import sys
from tidelog.wire.batch import decode_batch, decode_records, encode_batch, use_accelerator
use_accelerator(False)
batch = encode_batch([(0, None, b"value", ())])
assert decode_batch(batch) == decode_records(batch)
assert not [name for name in sys.modules if name.startswith(("aiokafka", "asyncio", "grpc"))]
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.stderr == ""


def test_the_switch_is_obeyed() -> None:
    was_on = has_accelerator()
    try:
        use_accelerator(False)
        assert not has_accelerator()
        assert plain(decode_records(BATCH)) == plain(decode_batch(BATCH))
    finally:
        use_accelerator(was_on)


def test_both_decoders_read_the_same() -> None:
    assert plain(decode_batch_accelerated(BATCH)) == plain(decode_batch(BATCH))


def test_a_body_that_may_hold_too_many_headers_is_read_in_python() -> None:
    tight = Limits(headers_per_batch_max=10)
    assert plain(decode_batch_accelerated(BATCH, limits=tight)) == plain(decode_batch(BATCH))


@pytest.mark.parametrize("position", range(61, len(BATCH), 7))
def test_a_refusal_reads_the_same_with_and_without_it(position: int) -> None:
    data = bytearray(BATCH)
    data[position] ^= 0x81
    results = []
    for decode in (decode_batch, decode_batch_accelerated):
        try:
            results.append(str(plain(decode(bytes(data), verify=False))))
        except CorruptBatch as error:
            results.append(str(error))
    assert results[0] == results[1]
