"""`python bench/codec.py`: nanoseconds a record of the batch codec, beside two other ones.

Owns the measurement of encode and decode against aiokafka's C codec and kafka-python, in one run
and taking turns, so that all meet the same machine. Figures are the median and the best of the
rounds, in CPU time of the thread: what else the machine does moves them less than wall time. It
must never fail for being slow: it prints, and judges nothing.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import Any, Final

import msgspec
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder

from tidelog.wire.batch import (
    Codec,
    RecordTuple,
    decode_batch,
    decode_batch_accelerated,
    encode_batch,
    read_header,
    record_size_estimate,
    route_sum,
    stamp,
    verify_checksum,
)
from tidelog.wire.ids import TopicId
from tidelog.wire.partitioner import murmur2, partition_for_key

with warnings.catch_warnings():
    # kafka-python reads its own files by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

RECORDS: Final = 2_000
"""A batch of 100-byte records of about 220 KB, near the producer's first batch size."""

_NOW_MS: Final = 1_790_000_000_000
_BATCH_BYTES: Final = 16 * 1024 * 1024
_FIELDS: Final = attrgetter("offset", "timestamp", "timestamp_type", "key", "value", "headers")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Something to measure; `per` is how many times over one call does it."""

    name: str
    call: Callable[[], Any]
    per: int = RECORDS


def samples(random: Random) -> dict[str, list[RecordTuple]]:
    """Records of the shapes that cost differently."""
    times = [_NOW_MS + index // 100 for index in range(RECORDS)]
    sizes = [random.randrange(20, 180) for _ in range(RECORDS)]
    return {
        "100-byte values": [(time, None, random.randbytes(100), ()) for time in times],
        "16-byte keys, 100-byte values": [
            (time, random.randbytes(16), random.randbytes(100), ()) for time in times
        ],
        "values of 20 to 179 bytes": [
            (time, None, random.randbytes(size), ())
            for time, size in zip(times, sizes, strict=True)
        ],
        "keys, values, one header": [
            (time, random.randbytes(16), random.randbytes(100), [("trace", b"12345678")])
            for time in times
        ],
    }


def encode_lines(records: Sequence[RecordTuple]) -> list[Line]:
    """Sealing the records, uncompressed."""
    # aiokafka takes headers as lists only.
    listed = [(time, key, value, list(headers)) for time, key, value, headers in records]

    def with_builder(kind: Any) -> Callable[[], Any]:
        def build() -> Any:
            builder = kind(2, 0, 0, -1, -1, -1, _BATCH_BYTES)
            for offset, (timestamp_ms, key, value, headers) in enumerate(listed):
                builder.append(offset, timestamp_ms, key, value, headers)
            return builder.build()

        return build

    return [
        Line(name="tidelog", call=lambda: encode_batch(records)),
        Line(name="aiokafka (C)", call=with_builder(AiokafkaBuilder)),
        Line(name="kafka-python", call=with_builder(KafkaPythonBuilder)),
    ]


def decode_lines(records: Sequence[RecordTuple]) -> list[Line]:
    """Reading the records, checksum included, all fields of each."""
    batch = encode_batch(records)

    def with_reader(kind: Any) -> Callable[[], Any]:
        def read() -> Any:
            reader = kind(batch)
            reader.validate_crc()
            return list(map(_FIELDS, reader))

        return read

    return [
        Line(name="tidelog, Python alone", call=lambda: decode_batch(batch)),
        Line(name="tidelog, accelerated", call=lambda: decode_batch_accelerated(batch)),
        Line(name="aiokafka (C), all fields", call=with_reader(AiokafkaBatch)),
        Line(
            name="aiokafka (C), no field read",
            call=lambda: [None for _ in AiokafkaBatch(batch)],
        ),
        Line(name="kafka-python, all fields", call=with_reader(KafkaPythonBatch)),
    ]


def codec_lines(records: Sequence[RecordTuple]) -> list[Line]:
    """Each codec both ways; the values are half random, half repeating."""
    half = [(time, key, (value or b"")[:50] + b"tide " * 10, ()) for time, key, value, _ in records]
    lines = []
    for codec in Codec:
        batch = encode_batch(half, codec=codec)

        def encode(codec: Codec = codec) -> object:
            return encode_batch(half, codec=codec)

        def decode(batch: bytes = batch) -> object:
            return decode_batch(batch)

        name = f"{codec.name.lower()}, {len(batch) / RECORDS:.0f} bytes a record"
        lines += [
            Line(name=f"encode {name}", call=encode),
            Line(name=f"decode {name}", call=decode),
        ]
    return lines


def broker_lines(records: Sequence[RecordTuple]) -> list[Line]:
    """What a broker does with a whole batch, and a client with one key: per call, not a record."""
    batch = encode_batch(records)
    header = read_header(batch)
    buffer = bytearray(batch)
    topic_id = TopicId(bytes(16))
    key = b"sixteen byte key"
    repeat = range(1_000)

    def of(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: [call() for _ in repeat]

    calls: dict[str, Callable[[], object]] = {
        "read_header": lambda: read_header(batch),
        f"verify_checksum of {len(batch):,} bytes": lambda: verify_checksum(batch, header),
        "stamp": lambda: stamp(buffer, 0, base_offset=7, leader_epoch=1),
        "route_sum": lambda: route_sum(topic_id, 3, header.crc),
        "murmur2 of 16 bytes": lambda: murmur2(key),
        "partition_for_key, cached": lambda: partition_for_key(key, 6),
        "record_size_estimate": lambda: record_size_estimate(None, key, ()),
    }
    return [Line(name=name, call=of(call), per=len(repeat)) for name, call in calls.items()]


def measure(lines: Sequence[Line], rounds: int) -> list[tuple[Line, float, float]]:
    """Median and best nanoseconds of each, the lines taking turns."""
    taken: list[list[float]] = [[] for _ in lines]
    for _ in range(rounds):
        for line, found in zip(lines, taken, strict=True):
            line.call()  # not measured: it brings the caches back from the line before
            began = time.thread_time_ns()
            line.call()
            found.append((time.thread_time_ns() - began) / line.per)
    return [
        (line, statistics.median(found), min(found))
        for line, found in zip(lines, taken, strict=True)
    ]


def show(title: str, lines: Sequence[Line], rounds: int, *, has_peers: bool = False) -> None:
    """One table; the last column is the median against the first line's."""
    print(f"\n{title}")
    print(f"{'':40}{'median':>10}{'best':>10}" + ("   of the first" if has_peers else ""))
    results = measure(lines, rounds)
    for line, median, best in results:
        ratio = f"{median / results[0][1]:>14.2f} x" if has_peers else ""
        print(f"{line.name:40}{median:>7,.0f} ns{best:>7,.0f} ns{ratio}", flush=True)


def main() -> int:
    """Prints every table."""
    parser = argparse.ArgumentParser(description="Nanoseconds a record of the batch codec.")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    rounds = arguments.rounds
    shapes = samples(Random(1))
    print(f"{RECORDS:,} records a batch, {rounds} rounds, figures per record")
    for shape, records in shapes.items():
        show(f"encode, {shape}", encode_lines(records), rounds, has_peers=True)
    for shape, records in shapes.items():
        show(f"decode, {shape}", decode_lines(records), rounds, has_peers=True)
    first = shapes["100-byte values"]
    show("codecs, values of 100 bytes, half of them repeating", codec_lines(first), rounds)
    show("whole batches and single keys, figures per call", broker_lines(first), rounds)
    one, five, fifteen = os.getloadavg()
    print(f"\n(load average {one:.2f} {five:.2f} {fifteen:.2f}, {os.cpu_count()} cores)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
