"""How to make many dirty partitions durable: per file, whole file system, or one shared journal.

Owns the figures behind docs/adr/0003-fsync.md. Each round appends 4 KiB to every partition and
makes it durable; the strategies take turns round by round, so that all meet the same disk. It must
never leave dirty pages of one strategy to the next: a syncfs outside the clock ends each round.
"""

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from bench.processes import raise_open_files_limit
from bench.table import BYTES_PER_MB, Table, median, percentile

CHUNK_BYTES: Final = 4096
FLUSH_THREADS: Final = 8
DESCRIPTORS_SPARE: Final = 256
FOREIGN_BYTES: Final = 64 * 1024 * 1024
JOURNAL_IOVEC_MAX: Final = 1024
# Dirty partitions → rounds of each strategy: enough for a percentile, within three minutes.
ROUNDS: Final = {1: 100, 2: 60, 4: 60, 8: 60, 16: 40, 100: 30, 1_000: 12, 10_000: 4}
FOREIGN_ROUNDS: Final = 8
# Dirty partitions and bytes in each: a bulk producer, a busy broker, many trickling partitions.
SUSTAINED: Final = ((6, 256 * 1024), (100, 16 * 1024), (1_000, CHUNK_BYTES))
SUSTAINED_BLOCKS: Final = 4
CHECKPOINT_ROUNDS: Final = 16

_libc: Final = ctypes.CDLL(None, use_errno=True)


def syncfs(descriptor: int) -> None:
    """Writes back the whole file system of `descriptor`; since Linux 5.8 it tells errors."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round: the writes into the page cache, and the wait until they are durable."""

    write_ms: float
    flush_ms: float

    @property
    def round_ms(self) -> float:
        return self.write_ms + self.flush_ms


class Partitions:
    """A data directory with one file per partition, all kept open."""

    def __init__(
        self, directory: Path, partition_count: int, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self.chunk = bytes(chunk_bytes)
        # Opened before the first write: syncfs reports only errors that came after the open.
        self.directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self.files = [
            os.open(directory / f"{number:05d}.log", flags) for number in range(partition_count)
        ]
        self.journal = os.open(directory / "journal", flags)
        self.foreign = os.open(directory / "foreign", flags)
        self.pool = ThreadPoolExecutor(FLUSH_THREADS)
        syncfs(self.directory)

    def write_files(self) -> None:
        for file in self.files:
            os.write(file, self.chunk)

    def write_journal(self) -> None:
        left = len(self.files)
        while left > 0:
            chunks = min(left, JOURNAL_IOVEC_MAX)
            os.writev(self.journal, [self.chunk] * chunks)
            left -= chunks

    def flush_each(self) -> None:
        for file in self.files:
            os.fdatasync(file)

    def flush_threads(self) -> None:
        parts = [self.files[start::FLUSH_THREADS] for start in range(FLUSH_THREADS)]
        list(self.pool.map(_flush_all, parts))

    def flush_file_system(self) -> None:
        syncfs(self.directory)

    def flush_journal(self) -> None:
        os.fdatasync(self.journal)

    def close(self) -> None:
        self.pool.shutdown()
        for descriptor in [*self.files, self.journal, self.foreign, self.directory]:
            os.close(descriptor)


def _flush_all(files: list[int]) -> None:
    for file in files:
        os.fdatasync(file)


def _timed(write: Callable[[], None], flush: Callable[[], None]) -> Sample:
    start = time.perf_counter()
    write()
    written = time.perf_counter()
    flush()
    flushed = time.perf_counter()
    return Sample(write_ms=(written - start) * 1e3, flush_ms=(flushed - written) * 1e3)


def _journal_then_files(partitions: Partitions) -> Sample:
    """What a journal costs whole: the same bytes go to the partition files too, and a checkpoint
    must make those durable before the journal may be cut (here each round, as the worst case)."""

    def flush() -> None:
        partitions.flush_journal()
        partitions.write_files()
        partitions.flush_file_system()

    return _timed(partitions.write_journal, flush)


def _round(strategy: str, partitions: Partitions) -> Sample:
    match strategy:
        case "fdatasync each":
            return _timed(partitions.write_files, partitions.flush_each)
        case "fdatasync, 8 threads":
            return _timed(partitions.write_files, partitions.flush_threads)
        case "syncfs":
            return _timed(partitions.write_files, partitions.flush_file_system)
        case "journal, acknowledge":
            return _timed(partitions.write_journal, partitions.flush_journal)
        case "journal + checkpoint":
            return _journal_then_files(partitions)
    raise AssertionError(f"no strategy is called {strategy}")


STRATEGIES: Final = (
    "fdatasync each",
    "fdatasync, 8 threads",
    "syncfs",
    "journal, acknowledge",
    "journal + checkpoint",
)


def measure(partition_count: int, rounds: int, root: Path) -> dict[str, list[Sample]]:
    """Every strategy in turn, round by round, over the same files."""
    samples: dict[str, list[Sample]] = {strategy: [] for strategy in STRATEGIES}
    with tempfile.TemporaryDirectory(dir=root) as directory:
        partitions = Partitions(Path(directory), partition_count)
        for strategy in STRATEGIES * rounds:
            samples[strategy].append(_round(strategy, partitions))
            partitions.flush_file_system()
        partitions.close()
    return samples


def measure_foreign(partition_count: int, root: Path) -> dict[str, list[Sample]]:
    """The same beside 64 MiB that another process left dirty on the file system."""
    samples: dict[str, list[Sample]] = {"fdatasync each": [], "syncfs": []}
    foreign = bytes(FOREIGN_BYTES)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        partitions = Partitions(Path(directory), partition_count)
        for strategy in tuple(samples) * FOREIGN_ROUNDS:
            os.ftruncate(partitions.foreign, 0)
            partitions.flush_file_system()
            os.write(partitions.foreign, foreign)
            samples[strategy].append(_round(strategy, partitions))
            partitions.flush_file_system()
        partitions.close()
    return samples


def _sustained_block(strategy: str, partitions: Partitions) -> list[float]:
    """Sixteen rounds in a row, in milliseconds; the journal's last one has the checkpoint."""
    rounds_ms = []
    for number in range(1, CHECKPOINT_ROUNDS + 1):
        start = time.perf_counter()
        if strategy == "journal":
            _round("journal, acknowledge", partitions)
            partitions.write_files()
            if number == CHECKPOINT_ROUNDS:
                partitions.flush_file_system()
        else:
            _round(strategy, partitions)
        rounds_ms.append((time.perf_counter() - start) * 1e3)
    partitions.flush_file_system()
    return rounds_ms


def measure_sustained(partition_count: int, chunk_bytes: int, root: Path) -> dict[str, list[float]]:
    """Blocks of rounds in turn; a journal pays its second copy and its checkpoint here."""
    rounds_ms: dict[str, list[float]] = {"fdatasync each": [], "syncfs": [], "journal": []}
    with tempfile.TemporaryDirectory(dir=root) as directory:
        partitions = Partitions(Path(directory), partition_count, chunk_bytes)
        for strategy in tuple(rounds_ms) * SUSTAINED_BLOCKS:
            rounds_ms[strategy] += _sustained_block(strategy, partitions)
        partitions.close()
    return rounds_ms


def _show_sustained(root: Path) -> None:
    table = Table(
        f"Rounds back to back; the journal's checkpoint (syncfs) every {CHECKPOINT_ROUNDS} rounds",
        (
            "dirty partitions",
            "KiB in each",
            "strategy",
            "rounds",
            "round ms p50",
            "round ms p99",
            "ms a round over all",
            "MB/s over all",
        ),
    )
    for partition_count, chunk_bytes in SUSTAINED:
        for strategy, rounds_ms in measure_sustained(partition_count, chunk_bytes, root).items():
            mean_ms = sum(rounds_ms) / len(rounds_ms)
            table.add(
                f"{partition_count:,}",
                str(chunk_bytes // 1024),
                strategy,
                str(len(rounds_ms)),
                f"{median(rounds_ms):.2f}",
                f"{percentile(rounds_ms, 0.99):.2f}",
                f"{mean_ms:.2f}",
                f"{partition_count * chunk_bytes / BYTES_PER_MB / (mean_ms / 1e3):.0f}",
            )
    table.show()


def _add(table: Table, partition_count: int, strategy: str, samples: list[Sample]) -> None:
    rounds_ms = [sample.round_ms for sample in samples]
    moved_bytes = partition_count * CHUNK_BYTES
    table.add(
        f"{partition_count:,}",
        strategy,
        str(len(samples)),
        f"{median([sample.write_ms for sample in samples]):.2f}",
        f"{median([sample.flush_ms for sample in samples]):.2f}",
        f"{median(rounds_ms):.2f}",
        f"{percentile(rounds_ms, 0.99):.2f}",
        f"{moved_bytes / BYTES_PER_MB / (median(rounds_ms) / 1e3):.1f}",
    )


COLUMNS: Final = (
    "dirty partitions",
    "strategy",
    "rounds",
    "write ms p50",
    "flush ms p50",
    "round ms p50",
    "round ms p99",
    "MB/s",
)


def _crossover(flush_ms: dict[int, dict[str, float]]) -> str:
    """From which count on syncfs stays the faster one of the two that need no second copy."""
    above: list[int] = []
    for partition_count in sorted(flush_ms, reverse=True):
        by_strategy = flush_ms[partition_count]
        if by_strategy["syncfs"] >= by_strategy["fdatasync each"]:
            break
        above.append(partition_count)
    return f"{above[-1]:,} files" if above else "no count measured"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spike.fsync")
    parser.add_argument("--directory", default=None, help="measure the file system it lies on")
    arguments = parser.parse_args()
    root = Path(arguments.directory or tempfile.gettempdir())
    allowed = raise_open_files_limit()
    table = Table("Durable rounds, 4 KiB dirty in each partition", COLUMNS)
    flush_ms: dict[int, dict[str, float]] = {}
    for partition_count, rounds in ROUNDS.items():
        if partition_count + DESCRIPTORS_SPARE > allowed:
            print(f"{partition_count:,} partitions skipped: {allowed:,} descriptors are allowed")
            continue
        measured = measure(partition_count, rounds, root)
        for strategy, samples in measured.items():
            _add(table, partition_count, strategy, samples)
        flush_ms[partition_count] = {
            strategy: median([sample.flush_ms for sample in samples])
            for strategy, samples in measured.items()
        }
    table.show()
    print(f"syncfs flushes faster than fdatasync file by file from {_crossover(flush_ms)} on")
    beside = Table("The same with 64 MiB dirty of somebody else on the file system", COLUMNS)
    for partition_count in (1, 16, 100, 1_000):
        for strategy, samples in measure_foreign(partition_count, root).items():
            _add(beside, partition_count, strategy, samples)
    beside.show()
    _show_sustained(root)


if __name__ == "__main__":
    main()
