"""Housekeeping at work: the real owner, the real jobs, a simulated disk, virtual time."""

import asyncio
from itertools import pairwise

import msgspec
import pytest

from tests.broker.support.housekeeping_world import (
    CHECK_MS,
    HOUR,
    LIMITS,
    House,
    Neighbourhood,
    in_a_house,
    placed,
)
from tidelog.broker.log.sidecar.codec import PRODUCERS, find_section
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch

DIED = TidelogError(ErrorCode.UNKNOWN, tried="run a job", happened="its process died")
UNREADABLE = TidelogError(ErrorCode.STORAGE_FAILED, tried="read", happened="input/output error")


def sealed(log: PartitionLog) -> list[Segment]:
    """Segments with a sidecar."""
    return [segment for segment in log.segments if segment.summary is not None]


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def closed(log: PartitionLog) -> list[bool]:
    return [segment.is_sealed for segment in log.segments]


async def sealed_log(
    house: House, count: int, partition: int = 0, **settings: object
) -> PartitionLog:
    """A log of so many sealed segments with a sidecar, and an active one behind them."""
    log = house.add(partition, **settings)
    await house.fill(log, count + 1)
    await house.until(lambda: len(sealed(log)) == count)
    return log


def test_rolled_segments_get_their_sidecars_in_order_and_memory_lets_go_of_their_indexes() -> None:
    async def work(house: House) -> None:
        log = house.add()
        await house.fill(log, 4)
        assert len(log.segments) == 4
        await house.until(lambda: len(sealed(log)) == 3)
        assert house.sealer.jobs() == ["seal"] * 3
        assert [segment.index is None for segment in log.segments] == [True, True, True, False]
        names = house.files(log)
        assert [name for name in names if name.endswith(".sidecar")] == [
            f"{base:020d}.sidecar" for base in (0, 1, 2)
        ]
        assert not [name for name in names if name.endswith(".new")]
        assert await house.values(log) == [(number, b"%d" % number) for number in range(4)]
        assert house.directory.keeper.describe().counts["seals"] == 3

    in_a_house(work)


def test_what_is_too_old_goes_and_stays_gone_after_a_restart() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = house.add(retention_ms=HOUR)
        await house.fill(log, 3, age_ms=2 * HOUR)
        await house.fill(log, 2)
        await house.until(lambda: log.log_start_offset == 3)
        assert bases(log) == [3, 4]
        await house.until(lambda: f"{2:020d}.log" not in house.files(log))
        counts = house.directory.keeper.counts
        assert (counts.trims >= 1, counts.trimmed_bytes > 0) == (True, True)
        assert "retention" in house.events.names()

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert log.log_start_offset == 3
        assert await house.values(log) == [(3, b"0"), (4, b"1")]

    try:
        neighbourhood.live(work)
        neighbourhood.live(later, known=placed(retention_ms=HOUR))
    finally:
        neighbourhood.close()


def test_a_jump_of_the_walls_clock_deletes_nothing() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3, retention_ms=60_000, segment_ms=60_000)
        house.machine.jump_wall(1_000 * HOUR)
        await house.checks(5)
        house.machine.jump_wall(-5_000 * HOUR)
        await house.checks(5)
        assert (log.log_start_offset, bases(log)) == (0, [0, 1, 2, 3])
        assert house.directory.keeper.counts.rolls == 0
        await house.until(lambda: log.log_start_offset == 4)
        assert house.directory.keeper.counts.checks in range(55, 75), "a minute has passed"

    in_a_house(work)


def test_a_last_segment_that_is_too_old_is_closed_and_goes() -> None:
    async def work(house: House) -> None:
        log = house.add(retention_ms=HOUR)
        await house.append(log, age_ms=2 * HOUR)
        await house.until(lambda: log.log_start_offset == 1)
        assert house.directory.keeper.counts.rolls == 1
        assert log.log_end_offset == 1
        assert (await house.append(log)).base_offset == 1, "no offset is given twice"

    in_a_house(work)


def test_what_is_too_much_goes() -> None:
    async def work(house: House) -> None:
        log = house.add()
        await house.fill(log, 6)
        size_bytes = log.segments[0].size_bytes
        house.directory.configure(log.key, house.settings(log, retention_bytes=2 * size_bytes))
        await house.until(lambda: bases(log) == [4, 5])

    in_a_house(work)


def test_a_segment_is_closed_at_its_age_though_nothing_is_written() -> None:
    async def work(house: House) -> None:
        log = house.add(segment_ms=60_000)
        await house.append(log)
        await asyncio.sleep(50)
        assert len(log.segments) == 1
        assert closed(log) == [False]
        await asyncio.sleep(15)
        assert closed(log)[0]
        await house.until(lambda: sealed(log))

    in_a_house(work)


def test_a_dirty_log_keeps_the_last_value_of_each_key_and_the_old_files_go() -> None:
    neighbourhood = Neighbourhood()
    settings = {"is_compacted": True, "is_deleted": False}

    async def work(house: House) -> None:
        log = house.add(**settings)
        for number in range(6):
            await house.append(log, b"%d" % number, key=b"ab"[number % 2 :][:1])
        await house.until(lambda: house.directory.keeper.counts.compactions)
        await house.until(lambda: any(segment.is_compacted for segment in log.segments))
        assert await house.values(log) == [(3, b"3"), (4, b"4"), (5, b"5")]
        await house.until(lambda: f"{0:020d}.log" not in house.files(log))
        names = house.files(log)
        assert not [name for name in names if name.endswith(".new")]
        for segment in log.segments[:-1]:
            assert segment.key.path.rpartition("/")[2] in names
            assert segment.key.sidecar_path.rpartition("/")[2] in names
        described = house.directory.keeper.describe()
        assert described.counts["compaction_bytes_read"] > 0
        assert "compacted" in house.events.names()

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert await house.values(log) == [(3, b"3"), (4, b"4"), (5, b"5")]

    try:
        neighbourhood.live(work)
        neighbourhood.live(later, known=placed(**settings))
    finally:
        neighbourhood.close()


def test_what_was_trimmed_during_a_compaction_does_not_come_back() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 4)

        async def trim() -> None:
            await house.directory.owner.trim(log, log.segments[2].base_offset)

        house.worker.before_result = trim
        house.directory.configure(log.key, house.settings(log, is_compacted=True))
        await house.until(lambda: "compact" in house.worker.jobs())
        await house.until(lambda: log.log_start_offset == 2)
        await house.checks(3)
        assert [offset for offset, _ in await house.values(log)] == [3, 4] or [
            offset for offset, _ in await house.values(log)
        ] == [4]
        assert log.segments[0].base_offset >= 2
        assert house.directory.keeper.counts.compactions_given_up == 1
        await house.until(lambda: f"{0:020d}.log" not in house.files(log))
        assert not [name for name in house.files(log) if name.endswith(".new")]

    in_a_house(work)


def test_a_job_whose_process_dies_is_tried_again_after_longer_and_longer_pauses() -> None:
    async def work(house: House) -> None:
        house.sealer.failures = [DIED] * 4
        log = house.add()
        await house.fill(log, 2)
        await house.until(lambda: sealed(log))
        asked = [now_ms for _, _, now_ms in house.sealer.asked]
        pauses = [later - earlier for earlier, later in pairwise(asked)]
        assert len(pauses) == 4
        for pause_ms, least_ms in zip(pauses, (2_000, 4_000, 4_000, 4_000), strict=True):
            assert least_ms <= pause_ms <= least_ms + 3 * CHECK_MS, pauses
        assert house.directory.keeper.counts.jobs_failed == 4
        assert house.events.names().count("background_job_failed") == 4
        assert log.failure is None, "a worker that dies is no damage"
        assert house.directory.keeper.describe().pauses == 0

    in_a_house(work)


def test_a_segment_that_cannot_be_read_again_and_again_stops_its_partition_only() -> None:
    async def work(house: House) -> None:
        house.sealer.failures = [UNREADABLE] * LIMITS.failures_max
        log = house.add(0)
        await house.fill(log, 2)
        await house.until(lambda: log.failure)
        assert log.failure is not None
        assert log.failure.code is ErrorCode.STORAGE_FAILED
        assert house.directory.failure is None
        other = house.add(1)
        await house.fill(other, 2)
        await house.until(lambda: sealed(other))
        assert house.directory.keeper.counts.partitions_failed == 1

    in_a_house(work)


def test_damage_that_a_seal_finds_stops_the_partition_and_names_file_and_byte() -> None:
    async def work(house: House) -> None:
        house.sealer.failures = [DIED]
        log = house.add(0)
        await house.fill(log, 3)
        path = log.segments[0].key.path
        house.damage(path, 65)
        await house.until(lambda: log.failure)
        assert log.failure is not None
        assert log.failure.code is ErrorCode.STORAGE_CORRUPT
        assert path in str(log.failure)
        assert "byte" in str(log.failure)
        assert house.directory.failure is None

    in_a_house(work)


SCRUBBING = msgspec.structs.replace(LIMITS, scrub_interval_ms=20_000)


def test_damage_at_rest_is_found_by_the_scrubber() -> None:
    async def work(house: House) -> None:
        log, whole = await sealed_log(house, 3, 0), await sealed_log(house, 3, 1)
        path = log.segments[1].key.path
        house.damage(path, 65)
        await house.until(lambda: log.failure, within_ms=180_000)
        assert log.failure is not None
        assert (log.failure.code, path in str(log.failure)) == (ErrorCode.STORAGE_CORRUPT, True)
        assert whole.failure is None
        scrubs = house.directory.keeper.counts.scrubs
        await asyncio.sleep(40)
        assert house.directory.keeper.counts.scrubs >= scrubs + 3

    in_a_house(work, limits=SCRUBBING)


def test_a_damaged_sidecar_is_made_again_and_equals_the_first() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        key = log.segments[1].key
        before = bytes(_content(house, key.sidecar_path))
        house.damage(key.sidecar_path, 40)
        await house.until(
            lambda: house.directory.keeper.counts.sidecars_made_again, within_ms=180_000
        )
        assert bytes(_content(house, key.sidecar_path)) == before
        assert log.failure is None
        assert "sidecar_damaged" in house.events.names()
        assert len(sealed(log)) == 3

    in_a_house(work, limits=SCRUBBING)


def test_a_seal_behind_a_damaged_sidecar_makes_that_one_first() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 2)
        house.damage(log.segments[1].key.sidecar_path, 40)
        await house.append(log)
        await house.until(lambda: len(sealed(log)) == 3)
        assert house.directory.keeper.counts.sidecars_made_again == 1
        assert log.failure is None

    in_a_house(work)


def test_below_the_floor_appends_are_refused_until_there_is_room_with_a_margin() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        used = house.medium.used_bytes()
        house.medium.capacity_bytes = used + 900
        await house.until(lambda: house.directory.keeper.describe().is_full)
        with pytest.raises(TidelogError) as caught:
            await house.append(log)
        assert caught.value.code is ErrorCode.STORAGE_FULL
        assert caught.value.retriable
        await house.directory.owner.trim(log, log.segments[1].base_offset)
        assert log.log_start_offset == 1, "what is there may go"
        await house.until(lambda: f"{0:020d}.log" not in house.files(log))
        house.medium.capacity_bytes = house.medium.used_bytes() + 1_500
        await asyncio.sleep(1)
        assert house.directory.keeper.describe().is_full
        house.medium.capacity_bytes = house.medium.used_bytes() + 10_000
        await house.until(lambda: not house.directory.keeper.describe().is_full)
        await house.append(log)
        assert house.directory.keeper.counts.times_full == 1
        assert house.events.names().count("space_low") == 1
        assert house.events.names().count("space_regained") == 1

    in_a_house(work)


def test_background_jobs_keep_to_the_nodes_rate_but_seals_keep_pace_with_appends() -> None:
    async def work(house: House) -> None:
        await sealed_log(house, 1)
        await house.until(lambda: "scrub" in house.worker.jobs())
        assert {(job, rate) for job, rate, _ in house.sealer.asked + house.worker.asked} == {
            ("seal", 0),
            ("scrub", 12_345),
        }

    in_a_house(work, limits=msgspec.structs.replace(SCRUBBING, bytes_per_second=12_345))


def test_a_compaction_that_meets_a_damaged_sidecar_has_it_made_again_first() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        summary = log.segments[2].summary
        assert summary is not None
        producers = find_section(summary, PRODUCERS)
        house.damage(summary.key.sidecar_path, producers.byte_position + 20)
        settings = house.settings(log, is_compacted=True, is_deleted=False)
        house.directory.configure(log.key, settings)
        counts = house.directory.keeper.counts
        await house.until(lambda: counts.compactions)
        assert counts.sidecars_made_again == 1
        assert log.failure is None
        assert log.segments[0].is_compacted
        assert (await house.values(log))[-1] == (3, b"3")

    in_a_house(work)


def test_what_was_trimmed_while_its_seal_waited_is_no_failure() -> None:
    async def work(house: House) -> None:
        log = house.add()

        async def trim() -> None:
            await house.directory.owner.trim(log, log.segments[2].base_offset)

        house.sealer.before_result = trim
        await house.fill(log, 4)
        await house.until(lambda: len(sealed(log)) == 1)
        assert bases(log) == [2, 3]
        await house.until(
            lambda: all(f"{base:020d}.log" not in house.files(log) for base in (0, 1))
        )
        assert house.files(log)[0].startswith(f"{2:020d}"), "nothing is left of them"
        assert house.directory.keeper.counts.jobs_failed == 0
        assert log.failure is None

    in_a_house(work)


@pytest.mark.slow
def test_a_worker_that_dies_and_a_slow_disk_only_take_longer() -> None:
    failures: list[int] = []

    async def work(house: House) -> None:
        plain, compacted = house.add(0), house.add(1, is_compacted=True, is_deleted=False)
        expected = {}
        for number in range(12):
            expected[b"k%d" % (number % 3)] = b"%d" % number
            for log in (plain, compacted):
                await house.append(log, b"%d" % number, key=b"k%d" % (number % 3))
        counts = house.directory.keeper.counts
        await house.until(lambda: len(sealed(plain)) == 11, within_ms=600_000)
        # Early rounds see each key once: they have nothing to drop.
        await house.until(
            lambda: any(each.is_compacted for each in compacted.segments if each.base_offset > 5),
            within_ms=600_000,
        )
        await house.until(lambda: counts.scrubs > 20, within_ms=600_000)
        assert [value for _, value in await house.values(plain)] == [b"%d" % n for n in range(12)]
        kept = [value for _, value in await house.values(compacted)]
        assert set(expected.values()) <= set(kept)
        assert len(kept) < 12
        assert (plain.failure, compacted.failure) == (None, None)
        failures.append(counts.jobs_failed)

    for seed in range(6):
        faults = (FaultKind.WORKER_CRASH, FaultKind.SLOW_DISK)
        neighbourhood = Neighbourhood(seed, enabled=faults)
        try:
            neighbourhood.live(work, limits=SCRUBBING)
        finally:
            neighbourhood.close()
    assert sum(failures) > 3, f"the worker died too rarely: {failures}"


def test_housekeeping_ends_with_its_directory() -> None:
    async def work(house: House) -> None:
        log = house.add()
        await house.fill(log, 2)
        house.medium.is_failed = True
        with pytest.raises(TidelogError):
            await house.append(log)
        await house.until(lambda: house.directory.failure is not None)
        await asyncio.sleep(2 * CHECK_MS / 1000)
        checks = house.directory.keeper.counts.checks
        await asyncio.sleep(10 * CHECK_MS / 1000)
        assert house.directory.keeper.counts.checks == checks

    in_a_house(work)


def _content(house: House, path: str) -> bytes:
    (inode,) = [inode for found, inode in house.medium.durable_files() if found == path]
    return bytes(inode.seen)


def test_a_copy_begins_where_its_leader_says_whatever_is_too_old_or_too_much() -> None:
    async def work(house: House) -> None:
        log = house.add(retention_ms=-1)
        owner = house.directory.owner
        await house.fill(log, 6, age_ms=2 * HOUR)
        owner.follow(log, LeaderEpoch(2))
        wanted = house.settings(log, retention_ms=HOUR, retention_bytes=200)
        house.directory.configure(log.key, wanted)
        await house.checks()
        assert log.log_start_offset == 0, "only its leader decides"
        assert not house.directory.keeper.counts.trims_failed
        owner.lead(log, LeaderEpoch(3), others=(), in_sync_count=1, is_sole=False)
        await house.until(lambda: log.log_start_offset == 6)
        assert log.log_start_epoch == 3

    in_a_house(work)
