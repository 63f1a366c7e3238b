"""The owner over a simulated disk: files of logs that roll, are trimmed, cut and removed."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.broker.directory.test_owner import KEY, Owned, with_owner
from tidelog.broker.log.marks.file import NAME, STARTS_NAME, make_marks_file, read_marks
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.broker.log.opening.log import open_log
from tidelog.ports import Disk, File, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey


async def names(owned: Owned) -> list[str]:
    listed: list[str] = await owned.disk.list(directory_name(KEY))  # type: ignore[attr-defined]
    return listed


async def marks(owned: Owned) -> PartitionMarks:
    found = await read_marks(owned.disk)  # type: ignore[arg-type]
    assert found is not None
    return found[KEY]


async def settle() -> None:
    for _ in range(200):
        await asyncio.sleep(0.01)


async def fill(owned: Owned, segments: int, *, each: int = 2) -> None:
    """Sealed segments of `each` records, and an empty active one."""
    for _ in range(segments):
        for _ in range(each):
            await owned.append()
        owned.owner.roll(KEY)
        await settle()


def segment(base_offset: int) -> SegmentKey:
    return SegmentKey(KEY, Offset(base_offset))


def test_a_trim_marks_the_start_and_removes_the_files_below_it() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 3)
        assert len(await names(owned)) == 4
        assert await owned.owner.trim(owned.log, Offset(5)) == 5
        assert (await marks(owned)).log_start_offset == 5
        await settle()
        assert await names(owned) == [f"{4:020d}.log", f"{6:020d}.log"]
        with pytest.raises(TidelogError) as caught:
            await owned.owner.trim(owned.log, Offset(99))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    with_owner(work)


def test_a_file_that_is_read_stays_until_the_reader_is_done() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 2)
        with owned.owner.reading(segment(0)):
            before = await owned.owner.read(segment(0), 0, 1_000)
            await owned.owner.trim(owned.log, Offset(4))
            await settle()
            assert f"{0:020d}.log" in await names(owned)
            assert await owned.owner.read(segment(0), 0, 1_000) == before
        await settle()
        assert await names(owned) == [f"{4:020d}.log"]

    with_owner(work)


def test_a_truncated_log_goes_on_where_it_was_cut_also_after_a_restart() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 3)
        assert await owned.owner.truncate(owned.log, Offset(3), is_unclean=True) == 3
        assert await names(owned) == [f"{0:020d}.log", f"{2:020d}.log"]
        assert (await marks(owned)).flushed_offset <= 3
        assert (await owned.append()).base_offset == 3
        await settle()
        known = await marks(owned)
        assert known.flushed_offset == 4
        opened = await open_log(owned.disk, KEY, LeaderEpoch(0), known)  # type: ignore[arg-type]
        assert opened.log.failure is None
        assert opened.log.log_end_offset == 4
        assert opened.log.leader_epochs.starts == owned.log.leader_epochs.starts
        assert opened.log.producers == owned.log.producers

    with_owner(work)


def test_a_cut_leaves_no_hole_and_no_sidecar_of_a_shorter_segment_wherever_it_is_cut_off() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 3)
        sidecar = segment(0).sidecar_path
        await owned.disk.open(sidecar, create=True)
        owned.disk.operations.clear()
        await owned.owner.truncate(owned.log, Offset(1), is_unclean=True)
        done = [each for each in owned.disk.operations if "marks" not in each]
        start = done.index(f"remove {6:020d}.log")
        assert done[start : start + 9] == [
            f"remove {6:020d}.log",
            "flushed",
            f"remove {4:020d}.log",
            "flushed",
            f"remove {2:020d}.log",
            "flushed",
            f"remove {0:020d}.sidecar",
            "flushed",
            f"truncate {0:020d}.log",
        ]

    with_owner(work)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_cut_that_cannot_learn_of_the_producers_before_is_no_measure_of_a_sidecar(
    is_known: bool,
) -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 2)
        if not is_known:
            # As after a seal whose sidecar has rotted since.
            owned.log.segments[0].producers_at_end = None
        await owned.owner.truncate(owned.log, Offset(3), is_unclean=True)
        assert owned.log.are_producers_known is is_known
        owned.owner.roll(KEY)
        await settle()
        assert owned.log.segments[1].were_producers_known is is_known

    with_owner(work)


def test_what_is_committed_is_not_truncated_by_itself() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 1)
        with pytest.raises(TidelogError) as caught:
            await owned.owner.truncate(owned.log, Offset(1))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await owned.append()).base_offset == 2

    with_owner(work)


def test_damage_that_a_cut_meets_changes_nothing() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 3)
        before = await names(owned)
        file = await owned.disk.open(segment(2).path)
        size = file.size_bytes
        await owned.disk.truncate(file, size - 1)
        with pytest.raises(TidelogError) as caught:
            await owned.owner.truncate(owned.log, Offset(3), is_unclean=True)
        assert caught.value.code is ErrorCode.STORAGE_CORRUPT
        assert segment(2).path in caught.value.tried
        assert await names(owned) == before

    with_owner(work)


def test_a_removed_partition_leaves_no_directory() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 2)
        await owned.owner.remove(KEY)
        assert await names(owned) == []
        assert f"{directory_name(KEY)}/" not in await owned.disk.list()  # type: ignore[attr-defined]
        with pytest.raises(TidelogError) as caught:
            await owned.append()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID

    with_owner(work)


def test_a_failed_partition_refuses_and_a_full_directory_takes_appends_again() -> None:
    async def work(owned: Owned) -> None:
        await owned.append()
        owned.owner.set_full(is_full=True)
        with pytest.raises(TidelogError) as caught:
            await owned.append()
        assert caught.value.code is ErrorCode.STORAGE_FULL
        owned.owner.set_full(is_full=False)
        assert (await owned.append()).base_offset == 1
        damage = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="damage")
        owned.owner.fail(KEY, damage)
        with pytest.raises(TidelogError) as caught:
            await owned.append()
        assert caught.value.code is ErrorCode.STORAGE_CORRUPT

    with_owner(work)


def test_an_empty_active_segment_of_an_earlier_life_is_opened_and_not_made_again() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 1)
        await owned.owner._files.close(segment(2))
        assert (await owned.append()).base_offset == 2

    with_owner(work)


def test_a_segment_that_another_program_changed_takes_no_batch() -> None:
    async def work(owned: Owned) -> None:
        await owned.append()
        file = await owned.disk.open(segment(0).path)
        await owned.disk.truncate(file, 5)
        with pytest.raises(TidelogError) as caught:
            await owned.append()
        assert caught.value.code is ErrorCode.STORAGE_FAILED

    with_owner(work)


def test_marks_that_are_made_anew_know_of_trims_that_wait_for_their_flush() -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 1, each=40)
        await settle()
        flush, may_flush = owned.disk.flush, asyncio.Event()  # type: ignore[attr-defined]

        async def flush_late(*args: object, directories: Sequence[str]) -> None:
            if not directories:
                await may_flush.wait()
            await flush(*args, directories=directories)

        owned.disk.flush = flush_late  # type: ignore[attr-defined]
        async with TaskScope() as scope:
            for offset in range(1, 31):
                scope.start(trim(owned, offset), name="trim")
            await settle()
            # This write finds the file long, and makes it anew.
            await owned.append(is_flush_awaited=False)
            may_flush.set()
        await settle()
        assert owned.log.log_start_offset == 30
        assert (await marks(owned)).log_start_offset == 30

    with_owner(work, marks_bytes_max=128)


async def trim(owned: Owned, offset: int) -> None:
    await owned.owner.trim(owned.log, Offset(offset))


def test_marks_that_are_made_anew_know_of_partitions_that_are_not_served() -> None:
    other = PartitionKey(KEY.topic_id, PartitionId(7))

    async def work(owned: Owned) -> None:
        disk = owned.disk
        known = {other: PartitionMarks(flushed_offset=9, log_start_offset=5)}
        made = await make_marks_file(disk, known)  # type: ignore[arg-type]
        made.keep(known)
        again = await made.made_anew({KEY: PartitionMarks(flushed_offset=1)})
        await again.made_anew({KEY: PartitionMarks(flushed_offset=2)})
        found = await read_marks(disk)  # type: ignore[arg-type]
        assert found == {KEY: PartitionMarks(flushed_offset=2), **known}

    with_owner(work)


@pytest.mark.parametrize("rotten", [NAME, STARTS_NAME])
def test_where_a_log_begins_is_known_also_if_one_of_the_files_of_marks_has_rotted(
    rotten: str,
) -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 1)
        assert await owned.owner.trim(owned.log, Offset(1)) == 1
        disk: Disk = owned.disk  # type: ignore[assignment]
        file = await disk.open(rotten)
        await disk.truncate(file, 0)
        assert (await marks(owned)).log_start_offset == 1

    with_owner(work)


@pytest.mark.parametrize("rotten", [NAME, STARTS_NAME])
def test_a_second_file_of_marks_is_flushed_with_the_first(rotten: str) -> None:
    async def work(owned: Owned) -> None:
        await fill(owned, 1)
        disk: Disk = owned.disk  # type: ignore[assignment]
        flushed: list[str] = []
        original = disk.flush

        async def flush(files: Sequence[File], **named: Sequence[str]) -> None:
            await original(files, **named)
            flushed.extend(file.path for file in files)

        setattr(disk, "flush", flush)  # noqa: B010
        await owned.owner.trim(owned.log, Offset(1))
        assert rotten in flushed or f"{rotten}.new" in flushed

    with_owner(work)
