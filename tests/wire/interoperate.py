"""Compares generated batches, both ways, with aiokafka and with kafka-python.

    python -m tests.wire.interoperate --batches 10000 --seed 1

Owns what "agree" means: what we seal they read, what they seal we read with each of our decoders,
record by record, and uncompressed batches are equal byte for byte.
"""

import argparse
import os
import sys
import time
from collections import Counter
from random import Random

from tests.wire import peers
from tidelog.chaos.fuzz.generate import Sample, random_sample
from tidelog.chaos.fuzz.reference import plain
from tidelog.wire.batch import (
    NO_ACCELERATOR,
    Codec,
    TimestampType,
    decode_batch,
    decode_batch_accelerated,
    has_accelerator,
    stamp_append_time,
    use_accelerator,
)
from tidelog.wire.batch.decode import decompressed_body, read_records
from tidelog.wire.batch.header import read_header
from tidelog.wire.batch.limits import DEFAULT_LIMITS


def compare(sample: Sample, counts: Counter[str]) -> None:
    """One batch, every pair of writer and reader that can do it."""
    ours = sample.seal()
    wanted = peers.expected(sample)
    _read_with_ours(ours, wanted)
    counts["batches"] += 1
    counts["records"] += len(wanted)
    counts[f"codec {read_header(ours).codec.name}"] += 1
    _compare_stamped(ours, sample)
    assert peers.read_with_aiokafka(ours) == wanted, "aiokafka reads something else"
    counts["read by aiokafka"] += 1
    # aiokafka's builder takes a first timestamp of -1 for "none yet", and none builds a marker.
    if not sample.is_control and sample.records[0][0] != -1:
        _compare_built(peers.build_with_aiokafka(sample), ours, sample)
        counts["built by aiokafka"] += 1
    if not peers.kafka_python_has(sample.codec) or sample.is_control:
        return
    assert peers.read_with_kafka_python(ours) == wanted, "kafka-python reads something else"
    counts["read by kafka-python"] += 1
    _compare_built(peers.build_with_kafka_python(sample), ours, sample)
    counts["built by kafka-python"] += 1


def _compare_built(theirs: bytes, ours: bytes, sample: Sample) -> None:
    """Their batch, whose base offset and leader epoch no broker has stamped yet."""
    relative = [(delta, *rest[1:]) for delta, rest in enumerate(peers.expected(sample))]
    _read_with_ours(theirs, relative)
    if sample.codec is Codec.NONE:
        assert theirs[21:] == ours[21:], "the bytes under the checksum differ"
        assert theirs[17:21] == ours[17:21], "the checksums differ"


def _read_with_ours(batch: bytes, wanted: list[tuple[object, ...]]) -> None:
    assert plain(decode_batch(batch)) == wanted, "decode_batch reads something else"
    header = read_header(batch)
    body = decompressed_body(batch, header, 0, DEFAULT_LIMITS)
    one_by_one = read_records(header, body, 0, limits=DEFAULT_LIMITS)
    assert plain(one_by_one) == wanted, "read_records reads something else"
    if has_accelerator():
        accelerated = plain(decode_batch_accelerated(batch))
        assert accelerated == wanted, "decode_batch_accelerated reads something else"


def _compare_stamped(ours: bytes, sample: Sample) -> None:
    """Append time, which replaces every timestamp and is under the checksum."""
    stamped = bytearray(ours)
    stamp_append_time(stamped, 0, 1_234_567_890_123)
    wanted = [
        (offset, 1_234_567_890_123, int(TimestampType.APPEND), *rest)
        for offset, _, _, *rest in peers.expected(sample)
    ]
    _read_with_ours(bytes(stamped), wanted)
    assert peers.read_with_aiokafka(bytes(stamped)) == wanted, "aiokafka reads something else"


def compare_many(seed: int, batches: int) -> Counter[str]:
    """As many batches of the seed's sequence; raises at the first that differs."""
    random = Random(seed)
    counts: Counter[str] = Counter()
    for index in range(batches):
        sample = random_sample(random)
        try:
            compare(sample, counts)
        except Exception as error:
            error.add_note(f"batch {index} of seed {seed}")
            raise
    return counts


def main() -> int:
    """Prints what was compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    use_accelerator(os.environ.get(NO_ACCELERATOR) != "1")
    began = time.perf_counter()
    counts = compare_many(arguments.seed, arguments.batches)
    seconds = time.perf_counter() - began
    print(f"seed {arguments.seed}, accelerator {'on' if has_accelerator() else 'off'}:")
    for name, count in counts.items():
        print(f"  {name:24}{count:>12,}")
    lacking = peers.kafka_python_lacks()
    print(f"  codecs that kafka-python lacks here: {', '.join(lacking) or 'none'}")
    print(f"all agree ({seconds:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
