"""Feeds mutated batches and bombs to every reader of batches, under a memory limit.

    python -m tidelog.chaos.fuzz.batches --mutations 1000000 --seed 1

Owns the verdict: a reader returns what the plain reference reads, or raises a typed error; both
decoders give the same; nothing takes long; the address space stays below the limit. Each mutation
depends on seed and index only: `--only INDEX` repeats one, `--first INDEX` goes on from one.
"""

import argparse
import faulthandler
import os
import resource
import sys
import time
from collections import Counter
from random import Random
from typing import Final

from tidelog.chaos.fuzz.bombs import bombs, header_bomb
from tidelog.chaos.fuzz.mutate import Mutant, Seed, make_seeds, mutate
from tidelog.chaos.fuzz.reference import Plain, RefusedError, plain, read_plainly
from tidelog.wire.batch import (
    NO_ACCELERATOR,
    BatchTooLarge,
    Codec,
    CorruptBatch,
    UnsupportedCodec,
    decode_batch,
    decode_batch_accelerated,
    has_accelerator,
    iterate_headers,
    peek_size,
    read_header,
    use_accelerator,
)
from tidelog.wire.batch.decode import decompressed_body, read_records
from tidelog.wire.batch.limits import DEFAULT_LIMITS

MEMORY_MEBIBYTES_MAX: Final = 512
"""Address space of the whole process, interpreter and libraries included."""

HANG_SECONDS: Final = 30.0
"""A mutation that takes longer ends the process with a traceback."""

REPAIRED_SHARE_MIN: Final = 0.3
_SEEDS_PER_CODEC: Final = 60
_TYPED: Final = (CorruptBatch, BatchTooLarge, UnsupportedCodec)
_WATCHED: Final = 500
_REFERENCE_BYTES_MAX: Final = 2 * 1024 * 1024
"""More than that is not read plainly, which would take minutes."""


def outcome(
    decode: str, buffer: bytes, position: int, *, verify: bool, is_compacted: bool
) -> tuple[str, list[Plain]]:
    """What one decoder makes of the bytes: the name of its typed error, or the records."""
    reader = {"python": decode_batch, "accelerated": decode_batch_accelerated}[decode]
    try:
        records = reader(buffer, position, verify=verify, is_compacted=is_compacted)
    except _TYPED as error:
        return type(error).__name__ if str(error) else "an error that says nothing", []
    return "parsed", plain(records)


def judge(buffer: bytes, position: int, *, verify: bool, is_compacted: bool) -> str:
    """The outcome, after every reader has agreed on it."""
    result, records = outcome("python", buffer, position, verify=verify, is_compacted=is_compacted)
    if has_accelerator():
        other, others = outcome(
            "accelerated", buffer, position, verify=verify, is_compacted=is_compacted
        )
        assert other == result, f"accelerated says {other}, python {result}"
        assert others == records, "the decoders read different records"
    _judge_records(buffer, position, result, records, verify=verify, is_compacted=is_compacted)
    _judge_headers(buffer)
    return result


def _judge_records(
    buffer: bytes,
    position: int,
    result: str,
    records: list[Plain],
    *,
    verify: bool,
    is_compacted: bool,
) -> None:
    """The reference reads the same, or refuses what was refused."""
    try:
        header = read_header(buffer, position, is_compacted=is_compacted)
        body = decompressed_body(buffer, header, position, DEFAULT_LIMITS)
    except _TYPED:
        assert result != "parsed", "what has no readable header or body is refused"
        return
    if result == "BatchTooLarge" and len(body) > _REFERENCE_BYTES_MAX:
        return
    try:
        wanted = read_plainly(header, body, is_compacted=is_compacted)
    except RefusedError:
        assert result != "parsed", "what the reference refuses is refused"
        return
    if result == "parsed":
        assert records == wanted, "the reference reads other records"
        again = read_records(header, body, position, limits=DEFAULT_LIMITS)
        assert plain(again) == wanted, "one by one they read otherwise"
    else:
        assert verify, f"the reference reads what was refused as {result}"


def _judge_headers(buffer: bytes) -> None:
    """What a broker reads of batches that lie one behind the other."""
    try:
        end = 0
        for position, header in iterate_headers(buffer):
            assert position == end, "batches lie without a gap"
            assert peek_size(buffer, position) == header.size_bytes, "both read one size"
            end = position + header.size_bytes
        assert end == len(buffer), "no byte is left over"
    except _TYPED:
        pass


def run_one(seeds: list[Seed], seed: int, index: int) -> tuple[Mutant, str]:
    """The mutation of this index, judged."""
    random = Random(f"{seed}:{index}")
    mutant = mutate(random, seeds)
    position = random.choice((0, 0, 0, 13))
    verify = mutant.is_repaired or random.random() < 0.5
    buffer = random.randbytes(position) + mutant.data
    try:
        result = judge(buffer, position, verify=verify, is_compacted=random.random() < 0.2)
    except Exception as error:
        error.add_note(f"mutation {index} of seed {seed} at byte {position}: {buffer.hex()[:4000]}")
        raise
    return mutant, result


def run_bombs() -> list[tuple[str, int, str, float]]:
    """Name, bytes, outcome and milliseconds of each; a limit must refuse them all.

    A bomb that is only found to be malformed was unfolded before anybody minded its size.
    """
    found = []
    candidates = bombs()
    candidates += [(f"headers, {c.name}", header_bomb(c)) for c in (Codec.GZIP, Codec.ZSTD)]
    for name, batch in candidates:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        began = time.perf_counter()
        result = judge(batch, 0, verify=True, is_compacted=False)
        milliseconds = 1_000 * (time.perf_counter() - began)
        assert result == BatchTooLarge.__name__, f"the bomb '{name}' was not refused: {result}"
        found.append((name, len(batch), result, milliseconds))
    faulthandler.cancel_dump_traceback_later()
    return found


def run_many(seed: int, first: int, count: int) -> tuple[Counter[tuple[str, str]], float]:
    """Outcomes by codec, and the CPU seconds of the slowest mutation."""
    seeds = make_seeds(Random(seed), _SEEDS_PER_CODEC)
    counts: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    for index in range(first, first + count):
        if index % _WATCHED == 0 or index == first:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        began = time.thread_time()
        mutant, result = run_one(seeds, seed, index)
        slowest = max(slowest, time.thread_time() - began)
        counts[mutant.codec.name, result] += 1
        counts["all", result] += 1
        counts["all", "repaired"] += mutant.is_repaired
    faulthandler.cancel_dump_traceback_later()
    return counts, slowest


def limit_memory(mebibytes: int) -> None:
    """Lets every allocation beyond fail, which no reader's typed error covers."""
    resource.setrlimit(resource.RLIMIT_AS, (mebibytes * 1024 * 1024,) * 2)


def _report(counts: Counter[tuple[str, str]], total: int, slowest: float) -> None:
    results = ("parsed", "CorruptBatch", "BatchTooLarge", "UnsupportedCodec")
    print(f"{'codec':8}" + "".join(f"{result:>18}" for result in results))
    for codec in (*(codec.name for codec in Codec), "all"):
        print(f"{codec:8}" + "".join(f"{counts[codec, result]:>18,}" for result in results))
    share = counts["all", "repaired"] / total
    print(f"{total:,} mutations, {share:.1%} with a repaired checksum, ", end="")
    print(f"slowest {1_000 * slowest:.0f} ms of CPU")
    assert share >= REPAIRED_SHARE_MIN or total < _WATCHED, "too few checksums were repaired"


def main() -> int:
    """Runs, prints, and ends with 0 unless something was read that must not be."""
    parser = argparse.ArgumentParser(description="Feeds mutated batches to every reader of them.")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--memory-mebibytes", type=int, default=MEMORY_MEBIBYTES_MAX)
    arguments = parser.parse_args()
    faulthandler.enable()
    use_accelerator(os.environ.get(NO_ACCELERATOR) != "1")
    if arguments.only is not None:
        seeds = make_seeds(Random(arguments.seed), _SEEDS_PER_CODEC)
        print(run_one(seeds, arguments.seed, arguments.only)[1])
        return 0
    limit_memory(arguments.memory_mebibytes)
    began = time.perf_counter()
    counts, slowest = run_many(arguments.seed, arguments.first, arguments.mutations)
    _report(counts, arguments.mutations, slowest)
    for name, size_bytes, result, milliseconds in run_bombs():
        print(f"bomb {name:28}{size_bytes:>10,} bytes  {result:16}{milliseconds:>8.1f} ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    state = "on" if has_accelerator() else "off"
    print(f"seed {arguments.seed}, accelerator {state}: nothing escaped; ", end="")
    print(f"peak memory {peak} MiB resident, limit {arguments.memory_mebibytes} MiB address space")
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
