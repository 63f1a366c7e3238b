"""Ten thousand partitions in one process: memory, descriptors, starts, flush rounds.

Each partition gets a few batches, so that it has a file. A start after a clean stop and one after
a kill are timed; then rounds that find some, many or all of the partitions dirty.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.log.stored import resident_bytes
from bench.log.under_test import UnderTest, directory_at, key_of, sealed_batch
from bench.table import Table, count

BATCHES_EACH: Final = 3
DIRTY: Final = (1, 100, 1_000, 10_000)


def run(root: Path, partitions: int, seconds: float) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=root) as made:
        asyncio.run(_run(Path(made), partitions, seconds))


async def _run(made: Path, partitions: int, seconds: float) -> None:
    before = resident_bytes()
    async with directory_at(made, partitions) as tested:
        await _fill(tested)
        held = resident_bytes() - before
        descriptors = len(os.listdir("/proc/self/fd"))
    print(
        f"\n{count(partitions)} partitions with {BATCHES_EACH} batches each: "
        f"{held / 1024**2:.0f} MiB, {held / partitions / 1024:.1f} KiB each, "
        f"{count(descriptors)} descriptors"
    )
    for name in ("clean stop", "kill"):
        if name == "kill":
            (made / "log_checkpoint").unlink()
        begin = time.perf_counter()
        async with directory_at(made, partitions) as tested:
            took = time.perf_counter() - begin
            print(
                f"start after a {name}: {took:.2f} s, "
                f"{count(tested.summary.restored)} logs restored from the checkpoint",
                flush=True,
            )
            if name == "kill":
                await _rounds(tested, partitions, seconds)


async def _fill(tested: UnderTest) -> None:
    batch, header = sealed_batch(4096)
    for _ in range(BATCHES_EACH):
        waiting = [tested.append(key, batch, header) for key in tested.logs]
        for each in waiting:
            await each


async def _rounds(tested: UnderTest, partitions: int, seconds: float) -> None:
    batch, header = sealed_batch(4096)
    table = Table(
        "Flush rounds: a batch of 4 KiB to each dirty partition, then one flush",
        ("dirty partitions", "rounds/s", "acknowledged batches/s"),
    )
    for dirty in (each for each in DIRTY if each <= partitions):
        keys = [key_of(number) for number in range(dirty)]
        for each in [tested.append(key, batch, header) for key in keys]:
            await each
        begin, rounds = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            waiting = [tested.append(key, batch, header) for key in keys]
            for each in waiting:
                await each
            rounds += 1
        took = time.perf_counter() - begin
        table.add(count(dirty), f"{rounds / took:.1f}", count(rounds * dirty / took))
    table.show()
