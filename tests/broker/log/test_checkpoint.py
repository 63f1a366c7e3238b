"""The clean checkpoint: believed whole or not at all, consumed before anything is written."""

from collections.abc import Mapping

import pytest

from tests.broker.log.test_open_log import CLEANED, FIRST, SECOND, THIRD
from tests.broker.support.open_fixtures import (
    DIRECTORY,
    EPOCH,
    KEY,
    Batch,
    Sealed,
    contents,
    file_of,
    key_of,
    put,
    put_durable,
    run,
    segment_shape,
    start,
    stored,
)
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.file import NAME as MARKS
from tidelog.broker.log.marks.file import read_marks
from tidelog.broker.log.marks.marks import (
    Mark,
    MarkKind,
    PartitionMarks,
    decode_marks,
    encode_marks,
)
from tidelog.broker.log.names import directory_name
from tidelog.broker.log.opening.checkpoint import write_checkpoint
from tidelog.broker.log.opening.clean_checkpoint import (
    NAME,
    NEW_NAME,
    CheckpointReader,
    CleanLog,
    CleanSegment,
    encode_pieces,
)
from tidelog.broker.log.opening.directory import OPENINGS_MAX, OpenedDirectory, open_directory
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim import FaultKind, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.ports import Append
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

OTHER = PartitionKey(TopicId(bytes(16)), PartitionId(0))
NEW = PartitionKey(TopicId(bytes(16)), PartitionId(1))
PLACED = {KEY: EPOCH, OTHER: LeaderEpoch(0), NEW: LeaderEpoch(0)}
MARKED = encode_marks([Mark(KEY, MarkKind.FLUSHED, 10), Mark(KEY, MarkKind.LOG_START, 1)])


def example() -> CleanLog:
    return CleanLog(
        topic_id=KEY.topic_id,
        partition=KEY.partition,
        log_start_offset=Offset(1),
        log_end_offset=Offset(10),
        segments=(
            CleanSegment(base_offset=Offset(0), generation=0, size_bytes=9, next_offset=Offset(10)),
        ),
        leader_epochs=(EpochStart(3, 1),),
        producers=b"p",
    )


def read(data: bytes, piece_bytes: int = 1 << 20) -> Mapping[PartitionKey, CleanLog]:
    reader = CheckpointReader()
    for position in range(0, len(data), piece_bytes):
        reader.take(data[position : position + piece_bytes])
    return reader.finish()


# -- bytes ---------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_however_it_is_cut() -> None:
    log = example()
    data = b"".join(encode_pieces([log]))
    for piece_bytes in (1, 2, 7, 13, len(data)):
        assert read(data, piece_bytes) == {KEY: log}
    assert read(b"".join(encode_pieces([]))) == {}


def test_every_flipped_bit_and_every_cut_of_a_checkpoint_is_found() -> None:
    data = b"".join(encode_pieces([example()]))
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data + b"\0", data[:14] + data[14:-8] + data[14:]]
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for each in damaged:
        with pytest.raises(TidelogError) as raised:
            read(each)
        assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    print(f"{len(damaged)} damaged checkpoints were refused")


def test_a_checkpoint_is_stored_as_it_was_in_the_first_release_that_had_it() -> None:
    golden = "54494445434c45414e01"  # magic, version
    assert b"".join(encode_pieces([example()])).hex().startswith(golden)


# -- on a disk -----------------------------------------------------------------------------------


def files() -> dict[str, bytes]:
    """Compacted, sealed, and active: one segment of each."""
    found = Sealed(FIRST, SECOND, THIRD).files
    del found[key_of(8).sidecar_path]
    for base in (0, 3):
        del found[key_of(base).path]
        del found[key_of(base).sidecar_path]
    return {**found, **CLEANED, MARKS: MARKED}


async def stopped_cleanly(world: World) -> tuple[SimulatedDisk, OpenedDirectory]:
    """A directory that was opened the long way and left as a clean stop leaves it."""
    disk = start(world)
    await put_durable(disk, files())
    directory = await open_directory(disk, PLACED)
    assert directory.restored == 0
    logs = [each.log for each in directory.logs.values()]
    await write_checkpoint(disk, [*logs, PartitionLog(OTHER, LeaderEpoch(0))])
    world.machine("m").processes["p"].kill()
    return start(world), directory


def test_a_clean_start_equals_the_long_way_and_opens_no_partitions_file() -> None:
    world = World(1)

    async def main() -> None:
        disk, before = await stopped_cleanly(world)
        touched = _touched(disk)
        after = await open_directory(disk, PLACED)
        assert after.checkpoint_damage is None
        assert after.restored == 2
        assert not [path for path in touched if path.startswith(f"{DIRECTORY}/")]
        old, new = before.logs[KEY].log, after.logs[KEY].log
        assert segment_shape(new) == segment_shape(old)
        assert new.leader_epochs.starts == old.leader_epochs.starts
        assert new.producers == old.producers
        assert [each.summary for each in new.segments] == [each.summary for each in old.segments]
        index, rebuilt = new.segments[-1].index, old.segments[-1].index
        assert index is not None
        assert rebuilt is not None
        assert index.entries() == rebuilt.entries()
        assert (new.log_start_offset, new.log_end_offset, new.high_watermark) == (1, 10, 10)
        assert new.high_watermark_position == old.high_watermark_position

    run(world, main())


def _touched(disk: SimulatedDisk) -> list[str]:
    """Paths that are listed or opened from now on."""
    paths: list[str] = []
    original_list, original_open = disk.list, disk.open

    async def list_(directory: str = "") -> list[str]:
        paths.append(directory)
        return await original_list(directory)

    async def open_(path: str, *, create: bool = False) -> object:
        paths.append(path)
        return await original_open(path, create=create)

    setattr(disk, "list", list_)  # noqa: B010
    setattr(disk, "open", open_)  # noqa: B010
    return paths


def test_a_checkpoint_is_gone_before_anything_else_is_written() -> None:
    """Also after a crash of the machine behind any operation: it must not come back later."""
    for seed in range(40):
        world = World(
            seed,
            enabled=(FaultKind.LOST_NAME,),
            probabilities={FaultKind.LOST_NAME: 0.9},
        )

        async def main(world: World = world) -> None:
            disk, _ = await stopped_cleanly(world)
            seen: list[bool] = []
            original = disk.append

            async def append(appends: object) -> None:
                seen.append(NAME in world.machine("m").medium().root.durable)
                await original(appends)  # type: ignore[arg-type]

            setattr(disk, "append", append)  # noqa: B010
            await open_directory(disk, PLACED)
            assert seen
            assert not any(seen)
            world.machine("m").crash()
            assert NAME not in await start(world).list()

        run(world, main())


@pytest.mark.parametrize("place", ["head", "frame", "foot"])
def test_a_damaged_checkpoint_is_ignored_and_told_of(place: str) -> None:
    world = World(1)

    async def main() -> None:
        disk, before = await stopped_cleanly(world)
        inode = file_of(world, NAME)
        position = {"head": 3, "frame": 40, "foot": len(inode.seen) - 1}[place]
        inode.replace_byte(position, inode.seen[position], inode.seen[position] ^ 4)
        after = await open_directory(disk, PLACED)
        assert after.restored == 0
        assert after.checkpoint_damage is not None
        assert NAME in after.checkpoint_damage.tried
        assert segment_shape(after.logs[KEY].log) == segment_shape(before.logs[KEY].log)
        assert NAME not in await disk.list()

    run(world, main())


def test_a_checkpoint_that_contradicts_the_marks_is_not_believed() -> None:
    for mark in (Mark(KEY, MarkKind.FLUSHED, 9), Mark(KEY, MarkKind.LOG_START, 2)):
        world = World(1)

        async def main(world: World = world, mark: Mark = mark) -> None:
            disk, _ = await stopped_cleanly(world)
            await disk.remove(MARKS)
            await put_durable(disk, {MARKS: MARKED + encode_marks([mark])})
            after = await open_directory(disk, PLACED)
            assert after.restored == 1, "the other partition's part is believed"
            assert after.checkpoint_damage is not None
            assert after.logs[KEY].log.failure is None
            assert after.logs[KEY].log.log_end_offset == 10

        run(world, main())


def test_a_checkpoint_of_a_later_leader_epoch_than_the_metadatas_is_not_believed() -> None:
    world = World(1)

    async def main() -> None:
        disk, _ = await stopped_cleanly(world)
        after = await open_directory(disk, {KEY: LeaderEpoch(1)})
        assert after.restored == 0
        assert after.logs[KEY].log.failure is not None

    run(world, main())


def test_a_checkpoint_without_marks_is_not_believed() -> None:
    world = World(1)

    async def main() -> None:
        disk, _ = await stopped_cleanly(world)
        await disk.remove(MARKS)
        after = await open_directory(disk, {KEY: EPOCH})
        assert after.restored == 0

    run(world, main())


def test_a_log_that_has_stopped_is_left_out_and_looked_at_again() -> None:
    world = World(1)

    async def main() -> None:
        disk = start(world)
        damaged = files()
        damaged[key_of(8).path] = damaged[key_of(8).path][:-1]
        await put_durable(disk, damaged)
        first = await open_directory(disk, PLACED)
        assert first.logs[KEY].log.failure is not None
        await write_checkpoint(disk, [each.log for each in first.logs.values()])
        second = await open_directory(disk, PLACED)
        assert second.restored == 0
        assert second.checkpoint_damage is None
        failure = second.logs[KEY].log.failure
        assert failure is not None
        assert failure.code is ErrorCode.STORAGE_CORRUPT

    run(world, main())


def test_an_unfinished_checkpoint_goes_at_the_next_start() -> None:
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {**files(), NEW_NAME: b"x"})
        directory = await open_directory(disk, PLACED)
        assert directory.logs[KEY].log.failure is None
        assert NEW_NAME not in await disk.list()

    run(world, main())


# -- the directory -------------------------------------------------------------------------------


def test_an_opening_makes_the_marks_anew_and_keeps_what_they_said_of_what_is_here() -> None:
    world = World(1)
    gone = PartitionKey(TopicId(bytes(16)), PartitionId(9))

    async def main() -> None:
        disk = start(world)
        more = encode_marks([Mark(gone, MarkKind.FLUSHED, 3), Mark(KEY, MarkKind.GAPS, 0)] * 3)
        await put_durable(disk, {**files(), MARKS: MARKED + more})
        directory = await open_directory(disk, PLACED)
        assert await read_marks(disk) == {
            KEY: PartitionMarks(flushed_offset=10, log_start_offset=1, gaps_from=0),
        }, "a replica that was removed may come back as a new one"
        assert directory.marks.file.size_bytes == 3 * 36

    run(world, main())


def test_what_lies_below_a_logs_start_goes_once_the_mark_is_durable() -> None:
    """The mark was written by a process that died before it was flushed."""
    world = World(1, enabled=(FaultKind.LOST_WRITE,), probabilities={FaultKind.LOST_WRITE: 1.0})

    async def main() -> None:
        disk = start(world)
        all_files = Sealed(FIRST, SECOND, THIRD).files
        await put_durable(disk, all_files)
        flushed = encode_marks([Mark(KEY, MarkKind.FLUSHED, 10)])
        await put_durable(disk, {MARKS: flushed})
        await _append(disk, MARKS, encode_marks([Mark(KEY, MarkKind.LOG_START, 8)]))
        world.machine("m").processes["p"].kill()
        disk = start(world)
        original = disk.remove

        async def remove(path: str) -> None:
            if path.startswith(DIRECTORY):
                durable = world.machine("m").medium().root.durable[MARKS]
                known = await _decoded(durable)
                assert known[KEY].log_start_offset == 8, f"{path} goes before its mark is durable"
            await original(path)

        setattr(disk, "remove", remove)  # noqa: B010
        directory = await open_directory(disk, PLACED)
        assert directory.logs[KEY].log.log_start_offset == 8
        assert set(contents(world)) == {
            f"{8:020d}.log",
            f"{8:020d}.sidecar",
        }

    run(world, main())


async def _append(disk: SimulatedDisk, path: str, content: bytes) -> None:
    await disk.append([Append(await disk.open(path), [content])])


async def _decoded(inode: object) -> Mapping[PartitionKey, PartitionMarks]:
    return decode_marks(bytes(inode.durable))  # type: ignore[attr-defined]


def test_partitions_that_are_not_asked_for_are_kept_and_told_of() -> None:
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {**files(), f"{directory_name(OTHER)}/x": b""})
        directory = await open_directory(disk, {KEY: EPOCH})
        assert directory.orphans == [f"{directory_name(OTHER)}/"]
        assert f"{directory_name(OTHER)}/" in await disk.list()

    run(world, main())


def test_many_partitions_are_opened_a_few_at_a_time_and_flushed_in_one_round() -> None:
    world = World(1)
    keys = [PartitionKey(TopicId(bytes(16)), PartitionId(each)) for each in range(60)]

    async def main() -> None:
        disk = start(world)
        for key in keys:
            path = f"{directory_name(key)}/{0:020d}.log"
            await put_durable(disk, {path: stored(FIRST)})
        under_way = highest = rounds = 0
        original_list, original_flush = disk.list, disk.flush

        async def list_(directory: str = "") -> list[str]:
            nonlocal under_way, highest
            under_way += 1
            highest = max(highest, under_way)
            try:
                return await original_list(directory)
            finally:
                under_way -= 1

        async def flush(open_files: list[object], **named: object) -> None:
            nonlocal rounds
            rounds += len(open_files) > 2  # more than the files of marks
            await original_flush(open_files, **named)  # type: ignore[arg-type]

        setattr(disk, "list", list_)  # noqa: B010
        setattr(disk, "flush", flush)  # noqa: B010
        directory = await open_directory(disk, dict.fromkeys(keys, EPOCH))
        assert list(directory.logs) == keys
        assert all(each.log.log_end_offset == 3 for each in directory.logs.values())
        assert highest == OPENINGS_MAX
        assert rounds == 1

    run(world, main())


@pytest.mark.parametrize("flushed_offset", [0, 3, 4, 5])
def test_a_segment_that_an_opening_found_keeps_its_name(flushed_offset: int) -> None:
    """A process was killed before the directory was flushed: the next opening makes up for it."""
    for seed in range(20):
        world = World(
            seed, enabled=(FaultKind.LOST_NAME,), probabilities={FaultKind.LOST_NAME: 1.0}
        )

        async def main(world: World = world) -> None:
            disk = start(world)
            await put_durable(disk, {key_of(0).path: stored(FIRST)})
            last = stored([Batch(3, epoch=1), Batch(4, epoch=1)])
            path = key_of(3).path
            marks = encode_marks([Mark(KEY, MarkKind.FLUSHED, flushed_offset)])
            if flushed_offset > 3:
                await put_durable(disk, {path: last})
            else:
                await put(disk, path, last)
            await put_durable(disk, {MARKS: marks})
            world.machine("m").processes["p"].kill()
            first = await open_directory(start(world), PLACED)
            assert first.logs[KEY].log.log_end_offset == 5
            world.machine("m").crash()
            second = await open_directory(start(world), PLACED)
            assert second.logs[KEY].log.log_end_offset == 5, second.logs[KEY].log.failure

        run(world, main())


def test_an_index_of_many_entries_comes_back_with_its_times() -> None:
    world = World(1)
    times = [500, 900, 100, 700, 1_300, 1_300, 200, 1_100, 1_500, 1_400]
    data = b"".join(
        encode_batch([(time, None, bytes(3_000), ())], base_offset=offset, leader_epoch=1)
        for offset, time in enumerate(times)
    )
    marks = encode_marks([Mark(KEY, MarkKind.FLUSHED, len(times))])

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {key_of(0).path: data, MARKS: marks})
        before = (await open_directory(disk, {KEY: EPOCH})).logs[KEY].log.segments[0]
        assert before.index is not None
        assert len(before.index) > 3
        await write_checkpoint(disk, [await _log_of(disk)])
        directory = await open_directory(disk, {KEY: EPOCH})
        assert directory.restored == 1
        after = directory.logs[KEY].log.segments[0]
        assert after.index is not None
        assert after.index.entries() == before.index.entries()
        assert after.index.max_timestamp == before.index.max_timestamp == 1_500
        assert after.first_timestamp == before.first_timestamp == 500

    run(world, main())


async def _log_of(disk: SimulatedDisk) -> PartitionLog:
    return (await open_directory(disk, {KEY: EPOCH})).logs[KEY].log
