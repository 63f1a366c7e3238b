"""What the Disk port costs beside bare system calls: append and flush of 64 KiB, in one run.

Owns the comparison of `tidelog.ports.real.disk.disk` with a bare write and fdatasync in one loop,
both in the same directory, turn by turn. `python -m bench.ports_disk`
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.table import Table, median, percentile, ratio
from tidelog.ports import Append, File
from tidelog.ports.real.disk.disk import RealDisk, open_disk

CHUNK_BYTES: Final = 64 * 1024
ROUNDS: Final = 600
IN_FLIGHT: Final = (1, 8)
WARM_UP: Final = 20


def bare_round(descriptor: int, chunk: bytes) -> float:
    """Microseconds of one write and fdatasync, both on this thread."""
    start_ns = time.perf_counter_ns()
    os.write(descriptor, chunk)
    os.fdatasync(descriptor)
    return (time.perf_counter_ns() - start_ns) / 1_000


async def port_round(disk: RealDisk, file: File, chunk: bytes) -> float:
    """Microseconds of one append and flush through the port, as one waiter sees it."""
    start_ns = time.perf_counter_ns()
    await disk.append([Append(file, [chunk])])
    await disk.flush([file])
    return (time.perf_counter_ns() - start_ns) / 1_000


async def append_round(disk: RealDisk, file: File, chunk: bytes) -> float:
    """Microseconds of an append alone: what acks=1 waits for."""
    start_ns = time.perf_counter_ns()
    await disk.append([Append(file, [chunk])])
    return (time.perf_counter_ns() - start_ns) / 1_000


async def read_round(disk: RealDisk, file: File, length_bytes: int) -> float:
    """Microseconds of a read from the page cache."""
    start_ns = time.perf_counter_ns()
    await disk.read(file, 0, length_bytes)
    return (time.perf_counter_ns() - start_ns) / 1_000


async def measure(directory: Path, rounds: int) -> dict[str, list[float]]:
    """Samples by name; the ways take turns, so that all meet the same disk."""
    chunk = os.urandom(CHUNK_BYTES)
    samples: dict[str, list[float]] = {}
    disk = await open_disk(directory / "data")
    file = await disk.open("log", create=True)
    others = [await disk.open(f"log-{number}", create=True) for number in range(max(IN_FLIGHT))]
    bare = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for number in range(rounds + WARM_UP):
            taken = {
                "bare write + fdatasync": bare_round(bare, chunk),
                "port append + flush": await port_round(disk, file, chunk),
            }
            together = await asyncio.gather(
                *(port_round(disk, other, chunk) for other in others), return_exceptions=False
            )
            taken[f"port, {len(others)} waiters on as many files, each"] = median(together)
            taken["port append alone"] = await append_round(disk, file, chunk)
            taken["port read of 64 KiB, cached"] = await read_round(disk, file, CHUNK_BYTES)
            if number >= WARM_UP:
                for name, sample_us in taken.items():
                    samples.setdefault(name, []).append(sample_us)
    finally:
        os.close(bare)
        await disk.shutdown()
    return samples


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to write; default: temporary")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        samples = asyncio.run(measure(Path(directory), arguments.rounds))
    bare_us = median(samples["bare write + fdatasync"])
    table = Table("Disk port, 64 KiB, microseconds", ["way", "p50", "p99", "p50 ÷ bare p50"])
    for name, taken in samples.items():
        table.add(
            name,
            f"{median(taken):.0f}",
            f"{percentile(taken, 0.99):.0f}",
            ratio(median(taken), bare_us),
        )
    table.show()


if __name__ == "__main__":
    main()
