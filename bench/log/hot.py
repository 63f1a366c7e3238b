"""A hot partition while others are busy: a cold scan of everything stored, and a compaction.

A client appends small batches at a fixed rate, waits for each flush, and reads each at the tail.
The same is measured in quiet, while another reader scans cold data without a pause, and while the
worker compacts.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.log.stored import GIB, POLL_SECONDS, POLLS_MAX, READ_BYTES, drop_pages
from bench.log.under_test import UnderTest, directory_at, key_of, sealed_batch
from bench.table import Table, count, percentile, ratio
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch, read_header

RATE: Final = 200
"""Batches a second."""
PACE: Final = 300_000_000
"""Bytes a second of a scan that is paced."""
HOT, COLD, KEYED = key_of(0), key_of(1), key_of(2)
KEYS: Final = 50_000


async def _hot(tested: UnderTest, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds from sending until acknowledged, and from there until read, of each batch."""
    batch, header = sealed_batch(16 * 1024)
    log, reader = tested.logs[HOT], tested.directory.reader
    acknowledged, read = [], []
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        appended = await tested.append(HOT, batch, header)
        done = time.perf_counter()
        acknowledged.append(done - sent)
        await reader.read(log, appended.base_offset, READ_BYTES)
        read.append(time.perf_counter() - done)
        due += 1 / RATE
    return acknowledged, read


async def _scan(tested: UnderTest, made: Path, stop: asyncio.Event) -> int:
    """Read all of the cold partition from its start, again and again, as fast as it goes."""
    return await _scan_at(tested, made, stop, 0)


async def _scan_paced(tested: UnderTest, made: Path, stop: asyncio.Event) -> int:
    """The same at the pace of a consumer behind a network."""
    return await _scan_at(tested, made, stop, PACE)


async def _forget_pages(made: Path) -> None:
    """In a thread: the loop that is measured goes on."""
    thread = threading.Thread(target=drop_pages, args=(made, COLD))
    thread.start()
    for _ in range(POLLS_MAX):
        if not thread.is_alive():
            return
        await asyncio.sleep(POLL_SECONDS)


async def _scan_at(
    tested: UnderTest, made: Path, stop: asyncio.Event, bytes_per_second: int
) -> int:
    log, reader, scanned = tested.logs[COLD], tested.directory.reader, 0
    begin = time.perf_counter()
    while not stop.is_set():
        await _forget_pages(made)
        offset = log.log_start_offset
        while offset < log.high_watermark and not stop.is_set():
            batches = await reader.read(log, offset, READ_BYTES)
            scanned += len(batches.data)
            offset = batches.next_offset
            if bytes_per_second:
                ahead = scanned / bytes_per_second - (time.perf_counter() - begin)
                await asyncio.sleep(max(0.0, ahead))
    return scanned


async def _compact(tested: UnderTest, made: Path, stop: asyncio.Event) -> int:
    """Write the same keys over and over, so that there is always something to compact."""
    del made
    value, number = b"v" * 1_000, 0
    while not stop.is_set():
        keys = [b"key-%d" % ((number * 500 + place) % KEYS) for place in range(500)]
        batch = encode_batch([(1, key, value, ()) for key in keys])
        await tested.append(KEYED, batch, read_header(batch), is_flush_awaited=False)
        number += 1
        await asyncio.sleep(0.01)
    return tested.directory.keeper.counts.compaction_bytes_read


Busy = Callable[[UnderTest, Path, asyncio.Event], Awaitable[int]]


def run(root: Path, stored_bytes: int, seconds: float) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=root) as made:
        asyncio.run(_run(Path(made), stored_bytes, seconds))


async def _run(made: Path, stored_bytes: int, seconds: float) -> None:
    """One directory for all lines: what a removal leaves to the file system is felt by nobody."""
    table = Table(
        f"A hot partition, {RATE} batches of 16 KiB a second, flushed, each read at the tail; "
        f"{stored_bytes / 10**9:.0f} GB in another partition",
        (
            "beside",
            "ack p50 ms",
            "ack p99 ms",
            "ack p99 ÷ quiet",
            "read p50 ms",
            "read p99 ms",
            "read p99 ÷ quiet",
            "MB/s beside",
        ),
    )
    kinds: tuple[tuple[str, Busy | None], ...] = (
        ("nothing", None),
        (f"a cold scan at {PACE // 10**6} MB/s", _scan_paced),
        ("a cold scan without a limit", _scan),
        ("a compaction", _compact),
    )
    settings = TopicSettings(segment_bytes=GIB, retention_ms=-1)
    limits = HousekeepingLimits(free_bytes_min=0, check_interval_ms=200)
    async with directory_at(made, 2, settings=settings, housekeeping=limits) as tested:
        await _fill_cold(tested, stored_bytes)
        tested.add(KEYED, _compacted())
        quiet: tuple[float, float] | None = None
        for name, busy in kinds:
            acknowledged, read, moved = await _measure(tested, made, seconds, busy)
            p99 = (percentile(acknowledged, 0.99) * 1000, percentile(read, 0.99) * 1000)
            quiet = quiet or p99
            table.add(
                name,
                f"{percentile(acknowledged, 0.5) * 1000:.2f}",
                f"{p99[0]:.2f}",
                ratio(p99[0], quiet[0]),
                f"{percentile(read, 0.5) * 1000:.2f}",
                f"{p99[1]:.2f}",
                ratio(p99[1], quiet[1]),
                count(moved / seconds / 1e6),
            )
    table.show()


async def _measure(
    tested: UnderTest, made: Path, seconds: float, busy: Busy | None
) -> tuple[list[float], list[float], int]:
    stop = asyncio.Event()
    beside = None if busy is None else asyncio.ensure_future(busy(tested, made, stop))
    await _hot(tested, 1.0)
    acknowledged, read = await _hot(tested, seconds)
    stop.set()
    return acknowledged, read, 0 if beside is None else await beside


def _compacted() -> TopicSettings:
    return TopicSettings(
        segment_bytes=32 * 1024 * 1024, is_compacted=True, is_deleted=False, retention_ms=-1
    )


async def _fill_cold(tested: UnderTest, size: int) -> None:
    """Store so much, and wait until it is flushed and sealed: only the scan is to be felt."""
    batch, header = sealed_batch(1024 * 1024)
    log = tested.logs[COLD]
    while log.size_bytes < size:
        window = [tested.append(COLD, batch, header) for _ in range(64)]
        for waiting in window:
            await waiting
    for _ in range(POLLS_MAX):
        if all(segment.summary is not None for segment in log.segments[:-1]):
            return
        await asyncio.sleep(POLL_SECONDS)
