"""The job over whole segments: what stays, what is refused, what is left behind."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.broker.support.compaction_log import (
    EAGER,
    CompactedLog,
    MemoryFiles,
    batch,
    keyed,
    log_of,
    shown,
)
from tidelog.broker.log.compaction.offset_map import ENTRY_BYTES
from tidelog.broker.log.compaction.planner import first_dirty_offset
from tidelog.wire.batch import BATCH_BYTES_MAX, Codec, checksum, encode_batch, iterate_headers
from tidelog.wire.batch.stamp import stamp_append_time
from tidelog.wire.errors import ErrorCode, TidelogError

replace = msgspec.structs.replace


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    log = log_of(
        [[keyed("a", "1"), keyed("b", "1")], [keyed("a", "2")]],
        [[keyed("c", "1"), keyed("b", "2")], [keyed("d", "1")]],
    )
    result = log.compact()
    assert result is not None
    assert shown(log.records()) == ["2 a=2", "3 c=1", "4 b=2", "5 d=1"]
    assert (result.records_read, result.records_kept, result.cleaned_below) == (6, 4, 6)


def test_a_second_round_over_new_records_supersedes_clean_ones() -> None:
    log = log_of([[keyed("a", "1"), keyed("b", "1")]])
    log.compact()
    log.seal([batch([keyed("a", "2")], 2)])
    log.compact()
    assert shown(log.records()) == ["1 b=1", "2 a=2"]
    assert [each.generation for each in log.segments] == [2]


def test_without_new_records_no_round_is_due_and_forcing_one_changes_nothing() -> None:
    log = log_of([[keyed("a", "1"), keyed("a", "2")]], [[keyed("b", None)]])
    plan = log.plan()
    assert plan is not None
    log.compact()
    assert log.plan() is None
    before = bytes(log.files.files[log.segments[0].key.path])
    again = replace(
        plan.arguments, segments=tuple(log.segments), first_dirty_offset=3, now_ms=10_500
    )
    (replacement,) = log.run(again).replacements
    assert bytes(log.files.files[replacement.unfinished_log_path]) == before


def test_a_tombstone_supersedes_at_once_and_stays_until_its_horizon() -> None:
    log = log_of([[keyed("a", "1"), keyed("b", "1")]], [[keyed("a", None)]])
    log.compact(now_ms=10_000)
    assert shown(log.records()) == ["1 b=1", "2 a=-"]
    assert log.segments[0].tombstone_horizon_ms == 11_000
    log.seal([batch([keyed("c", "1")], 3)])
    log.compact(now_ms=10_999)
    assert shown(log.records()) == ["1 b=1", "2 a=-", "3 c=1"]
    assert log.segments[0].tombstone_horizon_ms == 11_000
    log.seal([batch([keyed("d", "1")], 4)])
    log.compact(now_ms=11_000)
    assert shown(log.records()) == ["1 b=1", "3 c=1", "4 d=1"]
    assert log.segments[0].tombstone_horizon_ms == -1


def test_by_a_clock_that_is_not_trusted_tombstones_stay_and_get_no_horizon() -> None:
    log = log_of([[keyed("a", "1"), keyed("b", "1")]], [[keyed("a", None)]])
    log.compact(now_ms=10_000, may_expire=False)
    assert shown(log.records()) == ["1 b=1", "2 a=-"]
    assert log.segments[0].tombstone_horizon_ms == -1
    log.seal([batch([keyed("c", "1")], 3)])
    log.compact(now_ms=20_000)
    assert log.segments[0].tombstone_horizon_ms == 21_000, "the first round by a right clock"
    log.seal([batch([keyed("d", "1")], 4)])
    log.compact(now_ms=10**12, may_expire=False)
    assert shown(log.records()) == ["1 b=1", "2 a=-", "3 c=1", "4 d=1"]
    log.seal([batch([keyed("e", "1")], 5)])
    log.compact(now_ms=21_000)
    assert shown(log.records()) == ["1 b=1", "3 c=1", "4 d=1", "5 e=1"]


def test_an_idle_log_loses_its_tombstones_too_and_then_is_left_alone() -> None:
    log = log_of([[keyed("a", "1"), keyed("b", "1")]], [[keyed("a", None)], [keyed("c", "1")]])
    log.compact(now_ms=10_000)
    assert log.plan(now_ms=12_000) is None
    log.compact(now_ms=12_001)
    assert shown(log.records()) == ["1 b=1", "3 c=1"]
    assert log.segments[0].cleaned_below == 4
    assert log.plan(now_ms=10**12) is None


def test_a_batch_whose_tombstones_went_has_a_records_time_as_base_again() -> None:
    log = log_of([[keyed("a", None, 1_007), keyed("b", "1", 1_003)], [keyed("z", "1")]])
    log.compact(now_ms=10_000)
    header, _ = next(log.batches())
    assert (header.has_delete_horizon, header.base_timestamp) == (True, 11_000)
    assert [record[1] for record in log.records()] == [1_007, 1_003, 1_000]
    log.compact(now_ms=12_001)
    header, _ = next(log.batches())
    assert (header.has_delete_horizon, header.base_timestamp) == (False, 1_003)
    assert (header.max_timestamp, header.record_count) == (1_003, 1)
    assert [record[1] for record in log.records()] == [1_003, 1_000]


def test_records_without_key_go_as_with_kafkas_cleaner() -> None:
    log = log_of([[(1, None, b"x", ()), keyed("a", "1")], [(1, None, None, ())], [keyed("", "1")]])
    log.compact()
    assert shown(log.records()) == ["1 a=1", "3 =1"]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_kept(codec: Codec) -> None:
    records = [keyed(f"key-{number % 7}", f"value-{number}" * 9) for number in range(50)]
    log = log_of([records], [[keyed("key-3", None)]], codec=codec)
    log.compact()
    header, _ = next(log.batches())
    assert (header.codec, header.record_count) == (codec, 6)
    assert [record[0] for record in log.records()] == [43, 44, 46, 47, 48, 49, 50]


def test_neighbours_become_one_segment_up_to_segment_bytes() -> None:
    log = log_of(*[[[keyed(f"k{number}", "v" * 50)]] for number in range(6)])
    size = log.segments[0].size_bytes
    log.compact(replace(EAGER, segment_bytes=2 * size + 1))
    assert [(each.base_offset, each.next_offset) for each in log.segments] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]
    assert [each.generation for each in log.segments] == [1, 1, 1]
    assert [[each.base_offset for each in made.replaces] for made in log.segments] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_the_last_batch_of_a_segment_stays_without_records() -> None:
    log = log_of([[keyed("a", "1")], [keyed("b", "1")]], [[keyed("a", "2"), keyed("b", "2")]])
    log.compact(replace(EAGER, segment_bytes=1))
    assert [header.base_offset for header, _ in log.batches()] == [0, 1, 2]
    _, (header, data), _ = log.batches()
    assert (header.record_count, len(data), header.next_offset) == (0, 61, 2)
    assert shown(log.records()) == ["2 a=2", "3 b=2"]


def test_a_producers_last_batch_keeps_its_sequences_without_records() -> None:
    log = CompactedLog()
    log.seal(
        [
            batch([keyed("a", "1"), keyed("b", "1")], 0, producer_id=7, base_sequence=0),
            batch([keyed("a", "2"), keyed("b", "2")], 2, producer_id=7, base_sequence=2),
            batch([keyed("a", "3"), keyed("b", "3")], 4, producer_id=8, base_sequence=40),
            batch([keyed("c", "1")], 6),
        ]
    )
    before = log.producers
    log.compact()
    headers = [header for header, _ in log.batches()]
    kept = [(each.base_offset, each.record_count) for each in headers]
    assert kept == [(0, 0), (2, 0), (4, 2), (6, 1)], "the first one begins the leader epoch"
    assert (headers[1].producer_id, headers[1].base_sequence, headers[1].last_offset_delta) == (
        7,
        2,
        1,
    )
    assert log.producers_behind(log.segments[-1]) == before
    log.seal([batch([keyed("z", "1")], 7, producer_id=7, base_sequence=4)])
    log.compact()
    assert [header.base_offset for header, _ in log.batches()] == [0, 4, 6, 7]


def in_epoch(epoch: int, offset: int) -> bytes:
    return encode_batch([keyed("a", str(offset))], base_offset=offset, leader_epoch=epoch)


def test_where_leader_epochs_begin_is_told_by_headers_that_stay() -> None:
    log = CompactedLog()
    log.seal([in_epoch(epoch, offset) for offset, epoch in enumerate((1, 1, 4, 4, 9))])
    before = log.segments[0].leader_epochs
    assert [(each.epoch, each.start_offset) for each in before] == [(1, 0), (4, 2), (9, 4)]
    for offset in (5, 6):
        log.compact()
        assert log.segments[-1].leader_epochs == before
        left = [(each.leader_epoch, each.base_offset) for each, _ in log.batches()]
        assert left[:3] == [(1, 0), (4, 2), (9, 4)], "whoever copies them knows as much"
        log.seal([in_epoch(9, offset)])
    assert shown(log.records())[-1] == "6 a=6"


def test_append_time_stays_the_time_of_all_records() -> None:
    data = bytearray(batch([keyed("a", None, 5), keyed("b", "1", 6), keyed("b", "2", 7)], 0))
    stamp_append_time(data, 0, 8_000)
    log = CompactedLog()
    log.seal([bytes(data), batch([keyed("z", "1")], 3)])
    log.compact()
    assert [record[1] for record in log.records()] == [8_000, 8_000, 1_000]
    log.compact(now_ms=10**9)
    assert [record[1] for record in log.records()] == [8_000, 1_000]


def test_what_does_not_fit_the_map_waits_for_the_next_round() -> None:
    batches = [[keyed(f"k{number}", "1")] for number in range(5)]
    log = log_of(batches, [[keyed(f"k{number}", "2")] for number in range(5)])
    settings = replace(EAGER, map_bytes_max=3 * ENTRY_BYTES)
    rounds = []
    for _ in range(4):
        result = log.compact(settings)
        assert result is not None
        rounds.append((result.cleaned_below, result.is_map_full))
    assert log.plan(settings) is None
    assert rounds == [(3, True), (6, True), (9, True), (10, False)]
    assert shown(log.records()) == [f"{5 + number} k{number}=2" for number in range(5)]


def test_a_crash_between_two_groups_lets_the_next_round_begin_where_this_one_did() -> None:
    log = log_of([[keyed("a", "1")]], [[keyed("b", "1")]], [[keyed("a", None)], [keyed("c", "1")]])
    settings = replace(EAGER, segment_bytes=1)
    log.compact(settings, now_ms=10_000, groups_max=2)
    assert [each.cleaned_below for each in log.segments] == [4, 4, 0]
    assert first_dirty_offset(log.segments) == 2
    log.compact(settings, now_ms=20_000)
    log.compact(settings, now_ms=30_000)
    assert shown(log.records()) == ["1 b=1", "3 c=1"]


@pytest.mark.parametrize("byte", [0, 8, 16, 20, 30, 60, 70, 100])
def test_damage_names_file_and_byte_and_leaves_nothing(byte: int) -> None:
    log = log_of([[keyed("a", "1")], [keyed("b", "1")]], [[keyed("c", "1")], [keyed("d", "1")]])
    plan = log.plan(replace(EAGER, segment_bytes=1))
    assert plan is not None
    key = log.segments[1].key
    _, second = [position for position, _ in iterate_headers(bytes(log.files.files[key.path]))]
    log.files.files[key.path][(second + byte) % log.segments[1].size_bytes] ^= 0x10
    damaged = (second + byte) % log.segments[1].size_bytes // second * second
    before = set(log.files.files)
    with pytest.raises(TidelogError) as raised:
        log.run(plan.arguments)
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert f"compact {key.path}" in str(raised.value)
    assert f"byte {damaged}:" in str(raised.value)
    assert set(log.files.files) == before


def test_damage_that_is_found_after_a_group_was_written_removes_it() -> None:
    log = log_of([[keyed("a", "1")]], [[keyed("b", "1")]])
    log.compact(replace(EAGER, segment_bytes=1))
    log.seal([batch([keyed("c", "1")], 2)])
    plan = log.plan(replace(EAGER, segment_bytes=1))
    assert plan is not None
    log.files.files[log.segments[1].key.path][40] ^= 1
    before = set(log.files.files)
    log.files.flushed.clear()
    with pytest.raises(TidelogError, match="STORAGE_CORRUPT"):
        log.run(plan.arguments)
    assert len(log.files.flushed) == 2, "the first group was finished before"
    assert set(log.files.files) == before


@pytest.mark.parametrize("change", ["shorter", "longer", "missing batch"])
def test_a_segment_that_is_not_what_its_sidecar_says_is_damage(change: str) -> None:
    log = log_of([[keyed("a", "1")], [keyed("b", "1")], [keyed("c", "1")]])
    log.compact()
    log.seal([batch([keyed("d", "1")], 3)])
    summary = log.segments[0]
    data = log.files.files[summary.key.path]
    if change == "shorter":
        del data[-1:]
    elif change == "longer":
        data += b"\0"
    else:
        size_bytes = len(data) // 3
        data[size_bytes : 2 * size_bytes] = b""
        log.segments[0] = replace(summary, size_bytes=len(data))
    plan = log.plan()
    assert plan is not None
    with pytest.raises(TidelogError, match="STORAGE_CORRUPT"):
        log.run(plan.arguments)


def test_a_damaged_sidecar_is_told_and_nothing_is_made() -> None:
    log = log_of([[keyed("a", "1")]], [[keyed("a", "2")]])
    plan = log.plan()
    assert plan is not None
    key = log.segments[1].key
    log.files.files[key.sidecar_path][-1] ^= 1
    before = set(log.files.files)
    result = log.run(plan.arguments)
    assert (result.replacements, result.damaged_sidecar) == ((), key)
    assert result.damage
    assert set(log.files.files) == before


def test_a_batch_that_only_readers_find_wrong_is_copied() -> None:
    wrong = bytearray(batch([keyed("a", "1"), keyed("a", "2")], 0))
    wrong[61] += 2
    summed = batch_with_right_checksum(wrong)
    log = CompactedLog()
    log.seal([summed, batch([keyed("a", "3"), keyed("b", "1")], 2)])
    result = log.compact()
    assert result is not None
    assert result.batches_unreadable == 1
    _, first = next(log.batches())
    assert first == summed


def batch_with_right_checksum(data: bytearray) -> bytes:
    data[17:21] = checksum(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_the_job_yields_at_least_once_a_mib_and_reads_no_more_at_a_time() -> None:
    big = [(1, f"k{number}".encode(), bytes(400_000), ()) for number in range(9)]
    log = log_of([big[:5], big[5:], big[:1]])
    result = log.compact()
    assert result is not None
    assert max(log.worked) <= 1024 * 1024
    assert log.files.longest_read <= 1024 * 1024
    sidecars = sum(log.worked) - result.bytes_read - result.bytes_written
    assert 0 <= sidecars < 4_096


def test_a_tombstone_that_waits_is_not_given_a_new_horizon_by_a_full_map() -> None:
    log = log_of([[keyed("a", None)], [keyed("b", "1")], [keyed("c", None)]])
    settings = replace(EAGER, map_bytes_max=2 * ENTRY_BYTES)
    log.compact(settings, now_ms=10_000)
    assert [header.has_delete_horizon for header, _ in log.batches()] == [True, False, False]
    log.compact(settings, now_ms=10_400)
    horizons = [header.base_timestamp for header, _ in log.batches() if header.has_delete_horizon]
    assert horizons == [11_000, 11_400]


def test_a_record_stays_that_only_records_beyond_the_full_map_supersede() -> None:
    log = log_of([[keyed("a", "1")], [keyed("b", "1")], [keyed("c", "1"), keyed("a", "2")]])
    result = log.compact(replace(EAGER, map_bytes_max=2 * ENTRY_BYTES))
    assert result is not None
    assert (result.cleaned_below, result.is_map_full) == (2, True)
    assert shown(log.records()) == ["0 a=1", "1 b=1", "2 c=1", "3 a=2"]


def test_a_follower_compacts_what_it_copied_of_a_compacted_log() -> None:
    leader = log_of(
        [[keyed("a", "1")], [keyed("b", "1"), keyed("c", None)], [keyed("a", "2")]],
        [[keyed("b", "2"), keyed("d", "1")]],
    )
    leader.compact(replace(EAGER, segment_bytes=1), now_ms=10_000)
    follower = CompactedLog()
    follower.seal([batch([keyed("a", "0")], 0)])
    copied = [data for header, data in leader.batches() if header.base_offset > 0]
    follower.seal(copied, has_gaps=True)
    follower.compact(now_ms=10_500)
    assert shown(follower.records()) == ["2 c=-", "3 a=2", "4 b=2", "5 d=1"]
    assert follower.segments[0].tombstone_horizon_ms == 11_000
    follower.seal([batch([keyed("e", "1")], 6)])
    follower.compact(now_ms=11_000)
    assert shown(follower.records()) == ["3 a=2", "4 b=2", "5 d=1", "6 e=1"]


def test_epochs_that_a_remade_sidecar_does_not_know_come_from_the_ones_before() -> None:
    log = CompactedLog()
    for offset, epoch in enumerate((1, 4)):
        data = bytearray(batch([keyed("a", str(offset))], offset))
        data[12:16] = epoch.to_bytes(4, "big")
        log.epochs = ()
        log.seal([bytes(data)])
    assert [(each.epoch, each.start_offset) for each in log.segments[1].leader_epochs] == [(4, 1)]
    log.compact()
    epochs = log.segments[0].leader_epochs
    assert [(each.epoch, each.start_offset) for each in epochs] == [(1, 0), (4, 1)]


@pytest.mark.slow
def test_tombstones_of_a_batch_that_is_too_large_for_a_horizon_wait_for_room() -> None:
    """Each delta takes five bytes more with a horizon, which is more than a batch may have."""
    dead = [keyed(f"{number:033}", None, 0) for number in range(90_000)]
    log = log_of([dead], [[keyed("a", "1")]])
    log.compact(now_ms=10**12)
    header, data = next(log.batches())
    assert (header.has_delete_horizon, header.record_count) == (False, 90_000)
    assert len(data) + 5 * 90_000 > BATCH_BYTES_MAX
    log.seal([batch([keyed(f"{number:033}", "new") for number in range(50_000)], 90_001)])
    log.compact(now_ms=10**12)
    header, _ = next(log.batches())
    assert (header.has_delete_horizon, header.record_count) == (True, 40_000)


class FullDisk(MemoryFiles):
    """Refuses every byte, or every file, beyond a number of them."""

    files_max = 1_000
    bytes_max = 1_000_000

    def create(self, path: str) -> None:
        if len(self.created) >= self.files_max:
            raise TidelogError(ErrorCode.STORAGE_FULL, tried="create", happened="no space")
        super().create(path)

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        if sum(len(self.files[made]) for made in self.created) >= self.bytes_max:
            raise TidelogError(ErrorCode.STORAGE_FULL, tried="append", happened="no space")
        super().append(path, pieces)


@pytest.mark.parametrize(("files_max", "bytes_max"), [(0, 9), (1, 999), (3, 999), (9, 1), (9, 300)])
def test_a_full_disk_leaves_nothing_behind(files_max: int, bytes_max: int) -> None:
    log = log_of([[keyed("a", "1")]], [[keyed("b", "1")]])
    disk = FullDisk()
    disk.files = log.files.files
    disk.files_max, disk.bytes_max = files_max, bytes_max
    log.files = disk
    before = set(disk.files)
    plan = log.plan(replace(EAGER, segment_bytes=1))
    assert plan is not None
    with pytest.raises(TidelogError, match="STORAGE_FULL"):
        log.run(plan.arguments)
    assert set(disk.files) == before
