"""What appending, reading, rolling and opening cost with more and more stored.

Fills one partition step by step and measures the same things at each step. Appends and reads at the
tail take turns with those of an empty partition in a directory of its own: what a disk takes
changes within minutes by more than what is looked for. Cold reads drop the segments' pages from the
page cache first, where the system lets them be dropped; what is stored beside the memory of the
machine is printed, so that a reader sees which steps exceed it.
"""

import asyncio
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.log.append import Shape, append_for
from bench.log.under_test import UnderTest, directory_at, key_of, sealed_batch
from bench.table import BYTES_PER_MB, Table, count, median, percentile
from tidelog.broker.log.names import directory_name
from tidelog.wire.ids import PartitionKey

GIB: Final = 1024**3
KIB: Final = 1024
FILL_BATCH_BYTES: Final = 1024 * KIB
PROBE: Final = Shape(partitions=1, batch_bytes=256 * KIB, window=16)
PROBE_SECONDS: Final = 2.0
TURNS: Final = 7
COLD_READS: Final = 400
TAIL_READS: Final = 400
READ_BYTES: Final = 1024 * KIB
POLL_SECONDS: Final = 0.02
POLLS_MAX: Final = 3_000


class Step(msgspec.Struct, kw_only=True):
    """What was measured with so much stored."""

    stored_bytes: int
    append_mb: float = 0.0
    empty_append_mb: float = 0.0
    append_ratio: float = 0.0
    """Median of the turns' ratios."""
    append_p99_ms: float = 0.0
    tail_mb: float = 0.0
    tail_ratio: float = 0.0
    cold_p50_ms: float = 0.0
    cold_p99_ms: float = 0.0
    cold_mb: float = 0.0
    roll_ms: float = 0.0
    open_clean_ms: float = 0.0
    open_unclean_ms: float = 0.0
    resident_mib: float = 0.0


def stored_max_bytes(root: Path) -> int:
    """min(50 GB, half of what is free)."""
    return min(50 * 10**9, shutil.disk_usage(root).free // 2)


def run(root: Path, sizes: list[int]) -> None:
    """Measure at each size and print."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    steps = []
    with tempfile.TemporaryDirectory(dir=root) as made:
        for size in [0, *sizes]:
            steps.append(asyncio.run(_step(Path(made), size)))
            steps[-1].open_clean_ms = asyncio.run(_opening(Path(made)))
            (Path(made) / "log_checkpoint").unlink()
            steps[-1].open_unclean_ms = asyncio.run(_opening(Path(made)))
    table = Table(
        f"One partition with more and more stored, segments of 1 GiB; memory {memory // GIB} GiB",
        (
            "stored GB",
            "append MB/s",
            "empty MB/s",
            "ratio",
            "ack p99 ms",
            "read tail MB/s",
            "÷ empty",
            "read cold MB/s",
            "cold p50 ms",
            "cold p99 ms",
            "roll ms",
            "open clean ms",
            "open unclean ms",
            "RSS MiB",
        ),
    )
    for step in steps:
        table.add(
            f"{step.stored_bytes / 10**9:.1f}",
            count(step.append_mb),
            count(step.empty_append_mb),
            f"{step.append_ratio:.2f}",
            f"{step.append_p99_ms:.1f}",
            count(step.tail_mb),
            f"{step.tail_ratio:.2f}",
            count(step.cold_mb),
            f"{step.cold_p50_ms:.2f}",
            f"{step.cold_p99_ms:.2f}",
            f"{step.roll_ms:.1f}",
            f"{step.open_clean_ms:.0f}",
            f"{step.open_unclean_ms:.0f}",
            count(step.resident_mib),
        )
    table.show()


async def _step(made: Path, size: int) -> Step:
    async with directory_at(made, 1) as tested:
        await _fill(tested, size)
        step = Step(stored_bytes=tested.logs[key_of(0)].size_bytes)
        await _beside_an_empty_one(made, tested, step)
        step.append_p99_ms = await _acknowledgement_p99(tested)
        if size:
            drop_pages(made, key_of(0))
            took, read_bytes = await _read_cold(tested)
            step.cold_p50_ms = percentile(took, 0.5) * 1000
            step.cold_p99_ms = percentile(took, 0.99) * 1000
            step.cold_mb = read_bytes / sum(took) / BYTES_PER_MB
        step.roll_ms = await _roll(tested)
        step.resident_mib = resident_bytes() / 1024**2
        return step


async def _beside_an_empty_one(made: Path, tested: UnderTest, step: Step) -> None:
    """Appends and reads at the tail, in turns with a partition that began empty."""
    appends: list[tuple[float, float]] = []
    reads: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(dir=made.parent) as other:
        async with directory_at(Path(other), 1) as empty:
            for turn in range(TURNS):
                # Who goes first changes: the second finds a disk that is still writing.
                order = (tested, empty) if turn % 2 else (empty, tested)
                taken = {}
                for each in order:
                    os.sync()
                    taken[id(each)] = await append_for(
                        each, PROBE, PROBE_SECONDS, is_flush_awaited=True
                    )
                appends.append((taken[id(tested)], taken[id(empty)]))
                reads.append((await _read_tail(tested), await _read_tail(empty)))
    step.append_mb = median([ours for ours, _ in appends]) / BYTES_PER_MB
    step.empty_append_mb = median([theirs for _, theirs in appends]) / BYTES_PER_MB
    step.append_ratio = median([ours / theirs for ours, theirs in appends])
    step.tail_mb = median([ours for ours, _ in reads])
    step.tail_ratio = median([ours / theirs for ours, theirs in reads])


async def _fill(tested: UnderTest, size: int) -> None:
    batch, header = sealed_batch(FILL_BATCH_BYTES)
    key = key_of(0)
    while tested.logs[key].size_bytes < size:
        window = [tested.append(key, batch, header) for _ in range(64)]
        for waiting in window:
            await waiting
    for _ in range(POLLS_MAX):
        # Seals of what was filled in belong to no measurement.
        if all(segment.summary is not None for segment in tested.logs[key].segments[:-1]):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _acknowledgement_p99(tested: UnderTest) -> float:
    batch, header = sealed_batch(16 * KIB)
    took = []
    for _ in range(500):
        begin = time.perf_counter()
        await tested.append(key_of(0), batch, header)
        took.append(time.perf_counter() - begin)
    return percentile(took, 0.99) * 1000


async def _read_tail(tested: UnderTest) -> float:
    """MB/s of reads of the last 64 MiB, which are in the page cache."""
    log, reader = tested.logs[key_of(0)], tested.directory.reader
    first = max(0, log.high_watermark - 64 * 1024)
    offset, read_bytes = first, 0
    begin = time.perf_counter()
    for _ in range(TAIL_READS):
        batches = await reader.read(log, offset, READ_BYTES)
        read_bytes += len(batches.data)
        offset = batches.next_offset if batches.next_offset < log.high_watermark else first
    return read_bytes / (time.perf_counter() - begin) / BYTES_PER_MB


async def _read_cold(tested: UnderTest) -> tuple[list[float], int]:
    """Reads at random offsets of what is stored."""
    log, reader = tested.logs[key_of(0)], tested.directory.reader
    chance, took, read_bytes = random.Random(7), [], 0
    for _ in range(COLD_READS):
        offset = chance.randrange(log.log_start_offset, log.high_watermark)
        begin = time.perf_counter()
        read_bytes += len((await reader.read(log, offset, READ_BYTES)).data)
        took.append(time.perf_counter() - begin)
    return took, read_bytes


async def _roll(tested: UnderTest) -> float:
    """From the request to the acknowledgement of the first batch of the next segment."""
    batch, header = sealed_batch(16 * KIB)
    begin = time.perf_counter()
    tested.directory.owner.roll(key_of(0))
    await tested.append(key_of(0), batch, header)
    return (time.perf_counter() - begin) * 1000


async def _opening(made: Path) -> float:
    begin = time.perf_counter()
    async with directory_at(made, 1):
        return (time.perf_counter() - begin) * 1000


def drop_pages(made: Path, key: PartitionKey) -> None:
    """Let the page cache forget a partition's files."""
    for path in (made / directory_name(key)).iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
