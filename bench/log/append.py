"""Appending beside the bare loop: one partition and a thousand, flushed and not.

Each line keeps a window of batches under way, as producers do; the bare loop writes as much a round
and flushes it. Lines take turns within each repetition; medians and ratios are printed.
"""

import asyncio
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from bench.log.bare import write_and_flush
from bench.log.under_test import UnderTest, directory_at, key_of, sealed_batch
from bench.table import BYTES_PER_MB, Table, count, median, ratio
from tidelog.metadata.settings.of_topics import TopicSettings

KIB: Final = 1024


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What is appended."""

    partitions: int
    batch_bytes: int
    window: int
    """Batches of a partition that are under way at once."""


SHAPES: Final = (
    Shape(partitions=1, batch_bytes=16 * KIB, window=1),
    Shape(partitions=1, batch_bytes=16 * KIB, window=64),
    Shape(partitions=1, batch_bytes=256 * KIB, window=1),
    Shape(partitions=1, batch_bytes=256 * KIB, window=16),
    Shape(partitions=1, batch_bytes=1024 * KIB, window=8),
    Shape(partitions=1_000, batch_bytes=4 * KIB, window=1),
    Shape(partitions=1_000, batch_bytes=16 * KIB, window=4),
)


async def append_for(
    tested: UnderTest, shape: Shape, seconds: float, *, is_flush_awaited: bool
) -> float:
    """Bytes a second, all of them acknowledged."""
    batch, header = sealed_batch(shape.batch_bytes)
    window: deque[asyncio.Future[object]] = deque()
    keys = [key_of(number) for number in range(shape.partitions)]
    # The files are made before the clock starts, as the bare loop's are.
    for each in [tested.append(key, batch, header) for key in keys]:
        await each
    begin, appended = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for key in keys:
            if len(window) >= shape.window * shape.partitions:
                await window.popleft()
            done = tested.append(key, batch, header, is_flush_awaited=is_flush_awaited)
            window.append(done)  # type: ignore[arg-type]
            appended += len(batch)
    for waiting in window:
        await waiting
    return appended / (time.perf_counter() - begin)


def run(root: Path, seconds: float, repetitions: int) -> None:
    """Measure and print."""
    rows: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    for _ in range(repetitions):
        for number, shape in enumerate(SHAPES):
            for is_flushed in (True, False):
                ours = _ours(root, shape, seconds, is_flushed=is_flushed)
                bare = _bare(root, shape, seconds, is_flushed=is_flushed)
                rows.setdefault((number, is_flushed), []).append((ours, bare))
    table = Table(
        "Append into one data directory, acknowledged, beside a bare loop of write and flush of "
        f"the same bytes a round; {repetitions} repetitions in turn, medians",
        ("partitions", "batch KiB", "under way", "flush", "Tidelog MB/s", "bare MB/s", "ratio"),
    )
    for (number, is_flushed), pairs in rows.items():
        shape = SHAPES[number]
        ours, bare = median([each[0] for each in pairs]), median([each[1] for each in pairs])
        table.add(
            count(shape.partitions),
            count(shape.batch_bytes // KIB),
            count(shape.window),
            "sync" if is_flushed else "replicated",
            count(ours / BYTES_PER_MB),
            count(bare / BYTES_PER_MB),
            ratio(ours, bare),
        )
    table.show()


def _ours(root: Path, shape: Shape, seconds: float, *, is_flushed: bool) -> float:
    async def measure() -> float:
        with tempfile.TemporaryDirectory(dir=root) as made:
            settings = TopicSettings(is_flush_sync=is_flushed, retention_ms=-1)
            async with directory_at(Path(made), shape.partitions, settings=settings) as tested:
                return await append_for(tested, shape, seconds, is_flush_awaited=is_flushed)

    return asyncio.run(measure())


def _bare(root: Path, shape: Shape, seconds: float, *, is_flushed: bool) -> float:
    with tempfile.TemporaryDirectory(dir=root) as made:
        return write_and_flush(
            Path(made),
            files=shape.partitions,
            piece=sealed_batch(shape.batch_bytes)[0],
            pieces_a_round=shape.window,
            seconds=seconds,
            flush=is_flushed,
        )
