"""Opening a log: what a sidecar spares, which generation counts, where the log begins."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.broker.support.open_fixtures import (
    DIRECTORY,
    EPOCH,
    KEY,
    Batch,
    Sealed,
    key_of,
    put,
    put_durable,
    reopened,
    run,
    segment_shape,
    sidecar,
    start,
    stored,
    values,
)
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.opening.log import open_log
from tidelog.broker.log.sidecar.contents import FORMAT_VERSION
from tidelog.chaos.sim import World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch

FIRST = (Batch(0, 2, epoch=1, producer_id=7), Batch(2, 1, epoch=1))
SECOND = (Batch(3, 3, epoch=2, producer_id=7), Batch(6, 2, epoch=4))
THIRD = (Batch(8, 1, epoch=4, producer_id=8), Batch(9, 1, epoch=5))
ENDS_AT = 10
FLUSHED = PartitionMarks(flushed_offset=ENDS_AT)


def three() -> Sealed:
    """Three segments; the last one is as sealed as the others."""
    return Sealed(FIRST, SECOND, THIRD)


def with_active_last() -> dict[str, bytes]:
    files = three().files
    del files[key_of(8).sidecar_path]
    return files


def compacted(
    *batches: Batch, next_offset: int, replaces: tuple[int, ...], generation: int = 1
) -> dict[str, bytes]:
    """A segment that a compaction has made of those that begin at `replaces`."""
    key, data = key_of(batches[0].base_offset, generation), stored(batches)
    key = key_of(replaces[0], generation)
    _, content = sidecar(
        key,
        data,
        next_offset=next_offset,
        cleaned_below=next_offset,
        replaces=[key_of(each) for each in replaces],
    )
    return {key.path: data, key.sidecar_path: content}


CLEANED = compacted(FIRST[1], SECOND[1], next_offset=8, replaces=(0, 3))
CLEANED_RECORDS = {**values(2, 3), **values(6, 10)}


# -- sidecars ------------------------------------------------------------------------------------


def test_sealed_segments_with_sidecars_are_not_read() -> None:
    files = with_active_last()
    for base in (0, 3):
        path = key_of(base).path
        files[path] = bytes(len(files[path]))
    found = reopened(files, FLUSHED, is_read=False).opened
    assert found.log.failure is None
    assert found.log.log_end_offset == ENDS_AT
    assert list(found.files) == [key_of(8)]


def test_the_rebuilt_log_equals_the_live_one() -> None:
    live = three().live
    for files in (with_active_last(), three().files):
        for forgotten in (None, 0, 3):
            left = dict(files)
            if forgotten is not None:
                del left[key_of(forgotten).sidecar_path]
            found = reopened(left, FLUSHED)
            log = found.opened.log
            assert found.code is None, log.failure
            assert [each[:4] for each in segment_shape(log)] == [
                each[:4] for each in segment_shape(live)
            ]
            assert [each.is_sealed for each in log.segments[:-1]] == [True, True]
            assert log.leader_epochs.starts == live.leader_epochs.starts
            assert log.producers.producers == live.producers.producers
            assert log.log_end_offset == log.high_watermark == ENDS_AT
            assert found.records == values(0, ENDS_AT)
            assert found.opened.to_seal == (() if forgotten is None else (key_of(forgotten),))


def test_a_last_segment_with_a_sidecar_is_sealed_and_one_without_goes_on() -> None:
    assert reopened(three().files, FLUSHED).opened.log.segments[-1].is_sealed
    last = reopened(with_active_last(), FLUSHED).opened.log.segments[-1]
    assert not last.is_sealed
    assert last.index is not None


def test_a_damaged_sidecar_is_not_believed_and_made_again() -> None:
    for position in (0, 21, 40, 70, -1):
        files = with_active_last()
        damaged = bytearray(files[key_of(3).sidecar_path])
        damaged[position] ^= 0x10
        files[key_of(3).sidecar_path] = bytes(damaged)
        found = reopened(files, FLUSHED)
        assert found.code is None
        assert found.records == values(0, ENDS_AT)
        assert found.opened.to_seal == (key_of(3),)


def test_a_sidecar_of_another_length_is_stale() -> None:
    files = with_active_last()
    files[key_of(8).sidecar_path] = sidecar(key_of(8), stored(THIRD[:1]))[1]
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.records == values(0, ENDS_AT)
    assert not found.opened.log.segments[-1].is_sealed
    assert found.opened.removed == (key_of(8).sidecar_path,)


def test_a_sidecar_of_a_newer_format_stops_the_partition_and_stays() -> None:
    files = with_active_last()
    newer = bytearray(files[key_of(3).sidecar_path])
    newer[9] = FORMAT_VERSION + 1
    newer[20:24] = _sum_of(bytes(newer[:20]))
    files[key_of(3).sidecar_path] = bytes(newer)
    found = reopened(files, FLUSHED)
    assert found.code is ErrorCode.UNSUPPORTED_VERSION
    assert found.sizes == {path.rpartition("/")[2]: len(data) for path, data in files.items()}


def _sum_of(data: bytes) -> bytes:
    return checksum(data).to_bytes(4, "big")


@pytest.mark.parametrize("has_sidecar", [True, False])
@pytest.mark.parametrize("flushed_offset", [0, ENDS_AT])
def test_damage_in_a_segment_that_was_sealed_is_corruption(
    flushed_offset: int, has_sidecar: bool
) -> None:
    """Also the last one, also where the marks do not say that it was flushed."""
    for base in (0, 3, 8):
        files = three().files
        damaged = bytearray(files[key_of(base).path])
        damaged[-1] ^= 1
        files[key_of(base).path] = bytes(damaged)
        is_last = base == 8
        if not has_sidecar:
            if is_last:
                continue
            del files[key_of(base).sidecar_path]
        elif not is_last:
            continue
        found = reopened(files, PartitionMarks(flushed_offset=flushed_offset))
        assert found.code is ErrorCode.STORAGE_CORRUPT
        assert set(found.names) == {path.rpartition("/")[2] for path in files}


def test_a_sealed_segment_that_was_cut_is_corruption() -> None:
    for base in (0, 3):
        for left in (0, 10, len(stored(FIRST[:1]))):
            files = three().files
            files[key_of(base).path] = files[key_of(base).path][:left]
            assert reopened(files, FLUSHED).code is ErrorCode.STORAGE_CORRUPT


def test_a_sidecar_of_a_later_epoch_than_the_partitions_is_corruption() -> None:
    found = reopened(with_active_last(), FLUSHED, leader_epoch=LeaderEpoch(3))
    assert found.code is ErrorCode.STORAGE_CORRUPT


def test_a_segment_that_is_missing_in_the_middle_is_corruption_and_nothing_goes() -> None:
    files = three().files
    del files[key_of(3).path]
    files[f"{DIRECTORY}/{3:020d}.log.new"] = b""
    found = reopened(files, FLUSHED)
    assert found.code is ErrorCode.STORAGE_CORRUPT
    assert set(found.names) == {path.rpartition("/")[2] for path in files}


# -- other files ---------------------------------------------------------------------------------


def test_unfinished_files_go_and_strangers_stay() -> None:
    unfinished = [f"{DIRECTORY}/{3:020d}.sidecar.new", f"{DIRECTORY}/{0:020d}-00000001.log.new"]
    strangers = [f"{DIRECTORY}/notes.txt", f"{DIRECTORY}/notes.new", f"{DIRECTORY}/3.log"]
    files = {**with_active_last(), **dict.fromkeys([*unfinished, *strangers], b"x")}
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert sorted(found.opened.removed) == sorted(unfinished)
    assert sorted(found.opened.strangers) == sorted(strangers)
    assert set(found.names) == {path.rpartition("/")[2] for path in files if path not in unfinished}


def test_a_sidecar_without_its_segment_goes() -> None:
    files = {**with_active_last(), key_of(5).sidecar_path: b"x"}
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.opened.removed == (key_of(5).sidecar_path,)


# -- generations ---------------------------------------------------------------------------------


def test_a_compacted_segment_stands_for_what_it_replaces() -> None:
    found = reopened({**with_active_last(), **CLEANED}, FLUSHED)
    assert found.code is None
    assert found.bases == [(0, 1), (8, 0)]
    assert found.records == CLEANED_RECORDS
    assert set(found.names) == {path.rpartition("/")[2] for path in (*CLEANED, key_of(8).path)}


@pytest.mark.parametrize("gone", [(0,), (3,), (0, 3)])
def test_it_stands_for_them_also_when_some_of_them_are_gone(gone: tuple[int, ...]) -> None:
    files = {**with_active_last(), **CLEANED}
    for base in gone:
        del files[key_of(base).path]
        del files[key_of(base).sidecar_path]
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.records == CLEANED_RECORDS


def test_a_compacted_segment_without_its_sidecar_counts_for_nothing_beside_the_old_ones() -> None:
    files = {**with_active_last(), **CLEANED}
    del files[key_of(0, 1).sidecar_path]
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.bases == [(0, 0), (3, 0), (8, 0)]
    assert found.records == values(0, ENDS_AT)
    assert key_of(0, 1).path in found.opened.removed


def test_a_compacted_segment_without_its_sidecar_is_read_when_nothing_else_is_left() -> None:
    files = {**with_active_last(), **CLEANED}
    for path in (
        key_of(0).path,
        key_of(0).sidecar_path,
        key_of(3).path,
        key_of(3).sidecar_path,
        key_of(0, 1).sidecar_path,
    ):
        del files[path]
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.records == CLEANED_RECORDS
    assert found.opened.to_seal == (key_of(0, 1),)
    assert found.opened.log.segments[0].is_sealed


@pytest.mark.parametrize("position", [5, 70, -1])
def test_what_was_replaced_stays_until_its_stand_in_is_proven_whole(position: int) -> None:
    files = {**with_active_last(), **CLEANED}
    damaged = bytearray(files[key_of(0, 1).path])
    damaged[position] ^= 1
    files[key_of(0, 1).path] = bytes(damaged)
    found = reopened(files, FLUSHED)
    assert found.code is None
    assert found.bases == [(0, 0), (3, 0), (8, 0)]
    assert found.records == values(0, ENDS_AT)


def test_damage_on_both_sides_of_a_replacement_stops_the_partition_and_removes_nothing() -> None:
    files = {**with_active_last(), **CLEANED}
    for key in (key_of(0, 1), key_of(3)):
        damaged = bytearray(files[key.path])
        damaged[-1] ^= 1
        files[key.path] = bytes(damaged)
    found = reopened(files, FLUSHED)
    assert found.code is ErrorCode.STORAGE_CORRUPT
    assert set(found.names) == {path.rpartition("/")[2] for path in files}


def test_the_highest_of_several_generations_counts() -> None:
    again = compacted(SECOND[1], next_offset=8, replaces=(0,), generation=2)
    found = reopened({**with_active_last(), **CLEANED, **again}, FLUSHED)
    assert found.code is None
    assert found.bases == [(0, 2), (8, 0)]
    assert found.records == values(6, 10)


# -- where the log begins ------------------------------------------------------------------------


def test_a_log_without_its_head_is_corrupt() -> None:
    files = with_active_last()
    del files[key_of(0).path]
    del files[key_of(0).sidecar_path]
    for marks in (None, FLUSHED, PartitionMarks(flushed_offset=ENDS_AT, log_start_offset=2)):
        found = reopened(files, marks)
        assert found.code is ErrorCode.STORAGE_CORRUPT
        assert "its first segment begins at offset 3" in str(found.opened.log.failure)


@pytest.mark.parametrize("start_offset", range(ENDS_AT + 1))
@pytest.mark.parametrize("gone", [(), (0,), (3,), (0, 3)])
def test_a_log_begins_at_its_mark_whatever_of_what_was_trimmed_is_left(
    start_offset: int, gone: tuple[int, ...]
) -> None:
    bases = [0, 3, 8]
    head = max(base for base in bases if base <= start_offset)
    files = with_active_last()
    for base in gone:
        if base >= head:
            return
        del files[key_of(base).path]
        del files[key_of(base).sidecar_path]
    marks = PartitionMarks(flushed_offset=ENDS_AT, log_start_offset=start_offset)
    found = reopened(files, marks)
    log = found.opened.log
    assert found.code is None, log.failure
    assert (log.log_start_offset, log.log_end_offset) == (start_offset, ENDS_AT)
    assert found.records == values(start_offset, ENDS_AT)
    assert [base for base, _ in found.bases] == [base for base in bases if base >= head]
    assert found.opened.to_remove == tuple(
        key_of(base) for base in bases if base < head and base not in gone
    )
    assert all(each.start_offset >= start_offset for each in log.leader_epochs.starts)


def test_a_log_of_which_all_was_trimmed_is_empty_and_goes_on_at_its_mark() -> None:
    marks = PartitionMarks(flushed_offset=12, log_start_offset=12)
    for files in ({}, three().files, {key_of(0).path: stored(FIRST)}):
        found = reopened(files, marks)
        log = found.opened.log
        assert found.code is None
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (12, 12, 12)
        assert not log.segments
        assert {key.path for key in found.opened.to_remove} == {
            path for path in files if path.endswith(".log")
        }


def test_a_log_that_ends_below_what_was_flushed_is_corrupt_also_when_it_was_trimmed() -> None:
    marks = PartitionMarks(flushed_offset=12, log_start_offset=11)
    assert reopened(three().files, marks).code is ErrorCode.STORAGE_CORRUPT
    assert reopened({}, marks).code is ErrorCode.STORAGE_CORRUPT


# -- gaps ----------------------------------------------------------------------------------------


def test_offsets_may_skip_from_the_gaps_mark_on_and_nowhere_else() -> None:
    batches = (Batch(0, 2), Batch(4, 1), Batch(9, 1))
    files = {key_of(0).path: stored(batches)}
    for gaps_from, is_whole in ((0, True), (2, True), (3, False), (-1, False)):
        marks = PartitionMarks(flushed_offset=10, gaps_from=gaps_from)
        found = reopened(files, marks)
        assert found.code is (None if is_whole else ErrorCode.STORAGE_CORRUPT)
        if is_whole:
            assert found.opened.log.log_end_offset == 10
            assert found.opened.log.gaps_from == gaps_from


def test_a_torn_tail_behind_gaps_is_cut() -> None:
    batches = (Batch(0, 2), Batch(4, 1))
    files = {key_of(0).path: stored(batches) + Batch(9).stored[:-1]}
    found = reopened(files, PartitionMarks(flushed_offset=5, gaps_from=0))
    assert found.code is None
    assert found.opened.log.log_end_offset == 5
    assert found.opened.torn_bytes == len(Batch(9).stored) - 1


# -- durable before removed ----------------------------------------------------------------------


def test_names_are_durable_before_what_they_replace_is_removed() -> None:
    """A process was killed between the renames of a compaction and the flush of the directory."""
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await disk.make_directory(DIRECTORY)
        await put_durable(disk, with_active_last())
        for path, content in CLEANED.items():
            await put_durable(disk, {f"{path}.new": content})
            await disk.rename(f"{path}.new", path)
        world.machine("m").processes["p"].kill()
        disk = start(world)
        flushes = _record(disk)
        opened = await open_log(disk, KEY, EPOCH, FLUSHED)
        assert opened.log.failure is None
        assert key_of(0).path in opened.removed
        assert flushes[:1] == ["flush"], "the directory is flushed before the first removal"

    run(world, main())


def _record(disk: SimulatedDisk) -> list[str]:
    """The order of flushes and removals."""
    order: list[str] = []

    def recorded(name: str) -> Callable[..., Awaitable[None]]:
        original = getattr(disk, name)

        async def call(*arguments: object, **named: object) -> None:
            order.append(name)
            await original(*arguments, **named)

        return call

    for name in ("flush", "remove"):
        setattr(disk, name, recorded(name))
    return order


def test_a_file_that_cannot_be_read_stops_the_partition_only() -> None:
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await disk.make_directory(DIRECTORY)
        await put(disk, key_of(0).path, stored(FIRST))
        await disk.make_directory(key_of(3).path)
        marks = msgspec.structs.replace(FLUSHED, log_start_offset=2, gaps_from=3)
        opened = await open_log(disk, KEY, EPOCH, marks)
        assert opened.log.failure is not None
        # What was marked is not forgotten with it.
        log = opened.log
        assert (log.log_start_offset, log.gaps_from, log.flushed_offset) == (2, 3, ENDS_AT)

    run(world, main())
