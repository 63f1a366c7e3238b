"""A hot partition while others are busy: a cold scan of everything stored, and a compaction.

A client appends small batches at a fixed rate, waits for each flush, and reads each at the tail.
The same is measured in quiet, while another reader scans cold data without a pause, and while the
worker compacts.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.log.stored import GIB, READ_BYTES, drop_pages
from bench.log.under_test import UnderTest, directory_at, key_of, sealed_batch
from bench.table import Table, count, percentile, ratio
from tidelog.broker.housekeeping.limits import HousekeepingLimits
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.batch import encode_batch, read_header

RATE: Final = 200
"""Batches a second."""
HOT, COLD, KEYED = key_of(0), key_of(1), key_of(2)
KEYS: Final = 50_000


async def _hot(tested: UnderTest, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds until acknowledged, and until read, of each batch."""
    batch, header = sealed_batch(16 * 1024)
    log, reader = tested.logs[HOT], tested.directory.reader
    acknowledged, read = [], []
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        appended = await tested.append(HOT, batch, header)
        acknowledged.append(time.perf_counter() - due)
        await reader.read(log, appended.base_offset, READ_BYTES)
        read.append(time.perf_counter() - due)
        due += 1 / RATE
    return acknowledged, read


async def _scan(tested: UnderTest, made: Path, stop: asyncio.Event) -> int:
    """Read all of the cold partition from its start, again and again, never from the cache."""
    log, reader, scanned = tested.logs[COLD], tested.directory.reader, 0
    while not stop.is_set():
        drop_pages(made, COLD)
        offset = log.log_start_offset
        while offset < log.high_watermark and not stop.is_set():
            batches = await reader.read(log, offset, READ_BYTES)
            scanned += len(batches.data)
            offset = batches.next_offset
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
    table = Table(
        f"A hot partition, {RATE} batches of 16 KiB a second, flushed, each read at the tail; "
        f"{stored_bytes / 10**9:.0f} GB in another partition",
        ("beside", "ack p50 ms", "ack p99 ms", "read p99 ms", "read p99 ÷ quiet", "MB/s beside"),
    )
    quiet = 0.0
    for name, busy in (("nothing", None), ("a cold scan", _scan), ("a compaction", _compact)):
        acknowledged, read, moved = asyncio.run(_measure(root, stored_bytes, seconds, busy))
        p99 = percentile(read, 0.99) * 1000
        quiet = quiet or p99
        table.add(
            name,
            f"{percentile(acknowledged, 0.5) * 1000:.2f}",
            f"{percentile(acknowledged, 0.99) * 1000:.2f}",
            f"{p99:.2f}",
            ratio(p99, quiet),
            count(moved / seconds / 1e6),
        )
    table.show()


async def _measure(
    root: Path, stored_bytes: int, seconds: float, busy: Busy | None
) -> tuple[list[float], list[float], int]:
    settings = TopicSettings(segment_bytes=GIB if busy is not _compact else 32 * 1024 * 1024)
    limits = HousekeepingLimits(free_bytes_min=0, check_interval_ms=200)
    with tempfile.TemporaryDirectory(dir=root) as made:
        path = Path(made)
        async with directory_at(path, 2, settings=settings, housekeeping=limits) as tested:
            await _fill_cold(tested, stored_bytes if busy is _scan else 0)
            if busy is _compact:
                tested.add(KEYED, _compacted(settings))
            stop = asyncio.Event()
            beside = None if busy is None else asyncio.ensure_future(busy(tested, path, stop))
            await _hot(tested, 1.0)
            acknowledged, read = await _hot(tested, seconds)
            stop.set()
            return acknowledged, read, 0 if beside is None else await beside


def _compacted(settings: TopicSettings) -> TopicSettings:
    return TopicSettings(segment_bytes=settings.segment_bytes, is_compacted=True, is_deleted=False)


async def _fill_cold(tested: UnderTest, size: int) -> None:
    batch, header = sealed_batch(1024 * 1024)
    while tested.logs[COLD].size_bytes < size:
        window = [tested.append(COLD, batch, header, is_flush_awaited=False) for _ in range(64)]
        for waiting in window:
            await waiting
