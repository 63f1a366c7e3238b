"""How long a data directory of many partitions takes to open, after a clean and an unclean stop.

A throw-away measurement: the files are made by hand, three batches in each partition, and each
opening runs in a process of its own, so that its memory is its own. The page cache is warm.

    python -m bench.spike.starts [--partitions 10000] [--sealed]
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path

from tidelog.broker.log.marks.marks import Mark, MarkKind, encode_marks
from tidelog.broker.log.names import PartitionKey, SegmentKey, directory_name
from tidelog.broker.log.opening.checkpoint import write_checkpoint
from tidelog.broker.log.opening.directory import open_directory
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.ports.real.disk.disk import open_disk
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

TOPIC = TopicId(bytes(range(16)))
BATCHES = 3
MIB = 1024 * 1024


def batch_at(offset: int) -> bytes:
    """One record of 100 bytes."""
    return encode_batch([(1_000, None, bytes(100), ())], base_offset=offset, leader_epoch=0)


def make(root: Path, partitions: int, *, is_sealed: bool) -> None:
    """The directory as a killed process leaves it."""
    marks = []
    batches = [batch_at(offset) for offset in range(2 * BATCHES)]
    for number in range(partitions):
        key = PartitionKey(TOPIC, PartitionId(number))
        (root / directory_name(key)).mkdir()
        starts = (0, BATCHES) if is_sealed else (0,)
        for start in starts:
            segment = SegmentKey(key, Offset(start))
            data = b"".join(batches[start : start + BATCHES])
            (root / segment.path).write_bytes(data)
            if start < starts[-1]:
                builder = SidecarBuilder(SegmentFacts(key=segment))
                builder.feed(data)
                (root / segment.sidecar_path).write_bytes(builder.finish()[1])
        marks.append(Mark(key, MarkKind.FLUSHED, starts[-1] + BATCHES))
    (root / "marks").write_bytes(encode_marks(marks))
    os.sync()


def resident_mib() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


async def open_once(root: Path, partitions: int, *, leave_checkpoint: bool) -> str:
    """One opening, and what it took."""
    disk = await open_disk(root)
    placed = {
        PartitionKey(TOPIC, PartitionId(number)): LeaderEpoch(0) for number in range(partitions)
    }
    before = resident_mib()
    started, busy = time.perf_counter(), time.process_time()
    opened = await open_directory(disk, placed)
    took, busy = time.perf_counter() - started, time.process_time() - busy
    held = resident_mib() - before
    assert all(each.log.failure is None for each in opened.logs.values())
    assert len(opened.logs) == partitions
    ends = {each.log.log_end_offset for each in opened.logs.values()}
    assert len(ends) == 1
    text = (
        f"{opened.restored:6} restored, {took:6.2f} s, {busy:6.2f} s of CPU, "
        f"{held:6.1f} MiB held, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.1f} MiB peak"
    )
    if leave_checkpoint:
        started = time.perf_counter()
        await write_checkpoint(disk, [each.log for each in opened.logs.values()])
        size = (root / "log_checkpoint").stat().st_size / MIB
        text += f"; checkpoint of {size:.2f} MiB in {time.perf_counter() - started:.2f} s"
    await disk.shutdown()
    return text


def child(root: Path, partitions: int, name: str, leave_checkpoint: bool) -> None:
    """In a process of its own."""
    text = asyncio.run(open_once(root, partitions, leave_checkpoint=leave_checkpoint))
    print(f"{name:16} {text}", flush=True)


def main() -> None:
    """Unclean, clean, and unclean again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--sealed", action="store_true", help="a sealed segment before each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        make(root, arguments.partitions, is_sealed=arguments.sealed)
        for name, leave in (
            ("after a kill", True),
            ("after a stop", False),
            ("a kill again", False),
        ):
            process = multiprocessing.get_context("spawn").Process(
                target=child, args=(root, arguments.partitions, name, leave)
            )
            process.start()
            process.join()


if __name__ == "__main__":
    main()
