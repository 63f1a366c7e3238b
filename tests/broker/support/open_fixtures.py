"""Partitions' files made by hand on a simulated disk, and opened from it."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.opening.log import OpenedLog, open_log
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.ports import Append
from tidelog.wire.batch import decode_batch, encode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

T = TypeVar("T")

KEY: Final = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))
DIRECTORY: Final = directory_name(KEY)
EPOCH: Final = LeaderEpoch(9)
"""The partition's own."""


class Batch(msgspec.Struct, frozen=True):
    """What a stored batch is made of."""

    base_offset: int
    records: int = 1
    epoch: int = 0
    producer_id: int = -1

    @property
    def stored(self) -> bytes:
        """Its bytes; each value names its offset."""
        offsets = range(self.base_offset, self.base_offset + self.records)
        has_producer = self.producer_id >= 0
        return encode_batch(
            [(1_000 + each, b"k", b"v%d" % each, ()) for each in offsets],
            base_offset=self.base_offset,
            leader_epoch=self.epoch,
            producer_id=self.producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=self.base_offset if has_producer else -1,
        )


def stored(batches: Sequence[Batch]) -> bytes:
    """A segment of these."""
    return b"".join(batch.stored for batch in batches)


def key_of(base_offset: int, generation: int = 0) -> SegmentKey:
    """A segment of the partition."""
    return SegmentKey(KEY, Offset(base_offset), generation)


def sidecar(
    key: SegmentKey,
    data: bytes,
    *,
    next_offset: int = -1,
    epochs_before: tuple[EpochStart, ...] = (),
    producers_before: ProducerState | None = None,
    cleaned_below: int = 0,
    replaces: Sequence[SegmentKey] = (),
) -> tuple[Summary, bytes]:
    """As the job makes it."""
    facts = SegmentFacts(
        key=key,
        is_contiguous=not cleaned_below,
        next_offset=Offset(next_offset),
        epochs_before=epochs_before,
        cleaned_below=cleaned_below,
        replaces=tuple(Replaced(each.base_offset, each.generation) for each in replaces),
    )
    builder = SidecarBuilder(facts, producers_before)
    builder.feed(data)
    return builder.finish()


class Sealed:
    """Neighbouring segments, sealed one after the other as a log seals them."""

    def __init__(self, *segments: Sequence[Batch]) -> None:
        self.files: dict[str, bytes] = {}
        self.live = PartitionLog(KEY, EPOCH)
        epochs: tuple[EpochStart, ...] = ()
        producers = ProducerState()
        for batches in segments:
            data = stored(batches)
            key = key_of(batches[0].base_offset)
            self.live.begin_segment(key)
            for _, header in iterate_headers(data):
                self.live.take_in(header)
            summary, content = sidecar(key, data, epochs_before=epochs, producers_before=producers)
            epochs = summary.leader_epochs
            place = next(each for each in summary.sections if each.name == "producers")
            producers = ProducerState.decode(
                content[place.byte_position : place.byte_position + place.length_bytes]
            )
            self.files[key.path] = data
            self.files[key.sidecar_path] = content


def run(world: World, work: Coroutine[Any, Any, T]) -> T:
    """Run and bury."""
    try:
        return world.run(work)
    finally:
        world.close()


async def wait_forever(ports: SimulatedPorts) -> None:
    """A process that does nothing by itself."""
    del ports
    await asyncio.Event().wait()


def start(world: World) -> SimulatedDisk:
    """The data directory, held by a new process."""
    return world.machine("m").start("p", wait_forever).ports.open_disk()


async def put(disk: SimulatedDisk, path: str, content: bytes) -> None:
    """Create a file with this content; nothing of it is flushed."""
    parent = path.rpartition("/")[0]
    if parent:
        await disk.make_directory(parent)
    file = await disk.open(path, create=True)
    if content:
        await disk.append([Append(file, [content])])
    await disk.close(file)


async def put_durable(disk: SimulatedDisk, files: Mapping[str, bytes]) -> None:
    """Create files and make them durable."""
    for path, content in files.items():
        await put(disk, path, content)
    opened = [await disk.open(path) for path in files]
    parents = dict.fromkeys(path.rpartition("/")[0] for path in files)
    await disk.flush(opened, directories=["", *(each for each in parents if each)])
    for file in opened:
        await disk.close(file)


def contents(world: World) -> dict[str, bytes]:
    """All files of the partition as seen, by name."""
    files = world.machine("m").medium().files()
    return {
        path.removeprefix(f"{DIRECTORY}/"): bytes(inode.seen)
        for path, inode in files
        if path.startswith(f"{DIRECTORY}/")
    }


def file_of(world: World, path: str) -> Inode:
    """A file of the data directory."""
    inode = world.machine("m").medium().find(path)
    assert isinstance(inode, Inode), f"{path} is no file"
    return inode


class Reopened(msgspec.Struct, frozen=True):
    """An opening, and the partition's files behind it."""

    opened: OpenedLog
    names: tuple[str, ...]
    sizes: dict[str, int]
    records: dict[int, bytes]
    """What the log holds: offset → value."""

    @property
    def code(self) -> ErrorCode | None:
        """None: it can be served."""
        failure = self.opened.log.failure
        return None if failure is None else failure.code

    @property
    def bases(self) -> list[tuple[int, int]]:
        """Base offsets and generations of the log's segments."""
        return [(each.base_offset, each.key.generation) for each in self.opened.log.segments]


def reopened(
    files: Mapping[str, bytes],
    marks: PartitionMarks | None = None,
    *,
    leader_epoch: LeaderEpoch = EPOCH,
    is_read: bool = True,
) -> Reopened:
    """The log over durable files of this content, read to its end."""
    world = World(1)

    async def main() -> Reopened:
        disk = start(world)
        await disk.make_directory(DIRECTORY)
        await put_durable(disk, files)
        opened = await open_log(disk, KEY, leader_epoch, marks)
        return describe(world, opened, is_read=is_read)

    return run(world, main())


def describe(world: World, opened: OpenedLog, *, is_read: bool = True) -> Reopened:
    """What an opening has found and left."""
    seen = contents(world)
    records = {}
    log = opened.log
    for segment in log.segments if is_read and log.failure is None else ():
        data = seen[segment.key.path.removeprefix(f"{DIRECTORY}/")]
        assert len(data) == segment.size_bytes, f"{segment.key.path} is not as long as known"
        records.update(records_of(data))
    return Reopened(
        opened,
        tuple(seen),
        {name: len(data) for name, data in seen.items()},
        {offset: value for offset, value in records.items() if offset >= log.log_start_offset},
    )


def records_of(data: bytes) -> dict[int, bytes]:
    """Offset → value of all records in whole batches."""
    return {
        record[0]: record[4] or b""
        for place, _ in iterate_headers(data, is_compacted=True)
        for record in decode_batch(data, place, is_compacted=True)
    }


def values(start: int, end: int) -> dict[int, bytes]:
    """What the offsets of a log made of `Batch` hold."""
    return {offset: b"v%d" % offset for offset in range(start, end)}


def segment_shape(log: PartitionLog) -> list[tuple[SegmentKey, int, int, int, bool]]:
    """What is known of each segment, for comparing a rebuilt log with the live one."""
    return [
        (each.key, each.next_offset, each.size_bytes, each.max_timestamp, each.is_sealed)
        for each in log.segments
    ]
