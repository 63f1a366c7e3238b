"""Writes of the quorum's storage per second, beside a bare write and fdatasync of as many bytes.

Owns the figures behind docs/adr/0011-quorum-storage.md. The ways take turns round by round in one
directory, so that all meet the same disk. Everything lies in a temporary directory.

    python -m bench.spike.quorum_storage [--directory PATH] [--rounds 400]
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.table import Table, median, percentile, ratio
from tidelog.metadata_quorum.raft.effects import Persist
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, HardState, Members
from tidelog.metadata_quorum.storage.blocks import HEAD_BYTES, ROW_BYTES
from tidelog.metadata_quorum.storage.identity import UUID_BYTES, format_storage
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles, open_storage
from tidelog.ports.real.disk.disk import open_disk
from tidelog.wire.ids import LogIndex, Term

ENTRY_BYTES: Final = 200
ENTRIES: Final = (1, 64)
ROUNDS: Final = 400
WARM_UP: Final = 20
MS_PER_S: Final = 1_000
STATE: Final = HardState(term=Term(1))
DATA: Final = os.urandom(ENTRY_BYTES)


def block_bytes(entries: int) -> int:
    """What a block of so many entries adds to the journal."""
    return 2 * HEAD_BYTES + entries * (ROW_BYTES + ENTRY_BYTES)


def bare_ms(descriptor: int, data: bytes) -> float:
    """Of one write and fdatasync, both on this thread."""
    begun = time.perf_counter()
    os.write(descriptor, data)
    os.fdatasync(descriptor)
    return (time.perf_counter() - begun) * MS_PER_S


async def perform_ms(storage: QuorumStorageFiles, first_index: int, count: int) -> float:
    """Of one `perform` of so many entries."""
    begun = time.perf_counter()
    entries = tuple(
        Entry(index=LogIndex(index), term=Term(1), kind=EntryKind.COMMAND, data=DATA)
        for index in range(first_index, first_index + count)
    )
    await storage.perform([Persist(sequence=0, hard_state=STATE, entries=entries)])
    return (time.perf_counter() - begun) * MS_PER_S


async def settle_ms(storage: QuorumStorageFiles) -> float:
    """Of the mark behind a block."""
    begun = time.perf_counter()
    await storage.settle()
    return (time.perf_counter() - begun) * MS_PER_S


async def measure(directory: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds by way."""
    disk = await open_disk(directory / "quorum")
    await format_storage(
        disk,
        cluster_id="bench",
        node_id=1,
        directory_uuid=bytes(UUID_BYTES),
        bootstrap=Members(),
        bootstrap_command=b"",
    )
    storage = await open_storage(disk, boot_id="bench")
    bare = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    samples: dict[str, list[float]] = {}
    index = 1
    try:
        for number in range(rounds + WARM_UP):
            taken: dict[str, float] = {}
            for count in ENTRIES:
                size_bytes = block_bytes(count)
                taken[f"bare, {size_bytes} bytes"] = bare_ms(bare, os.urandom(size_bytes))
                taken[f"perform, {count} × {ENTRY_BYTES} bytes"] = await perform_ms(
                    storage, index, count
                )
                index += count
            taken["settle"] = await settle_ms(storage)
            if number >= WARM_UP:
                for name, sample_ms in taken.items():
                    samples.setdefault(name, []).append(sample_ms)
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
    columns = ["way", "per second", "p50 ms", "p99 ms", "p50 ÷ bare p50"]
    table = Table("Quorum storage, one at a time", columns)
    bare_p50_ms = 0.0
    for name, taken_ms in samples.items():
        if name.startswith("bare"):
            bare_p50_ms = median(taken_ms)
        table.add(
            name,
            f"{len(taken_ms) * MS_PER_S / sum(taken_ms):,.0f}",
            f"{median(taken_ms):.2f}",
            f"{percentile(taken_ms, 0.99):.2f}",
            "-" if name == "settle" else ratio(median(taken_ms), bare_p50_ms),
        )
    table.show()


if __name__ == "__main__":
    main()
