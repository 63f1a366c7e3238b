"""Seals beside other jobs: at the same time, on the same log, to the end of the process."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.broker.housekeeping.test_housekeeping import DIED, sealed, sealed_log
from tests.broker.support.housekeeping_world import LIMITS, House, Neighbourhood, in_a_house, placed
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.state.log import PartitionLog

SLOW = msgspec.structs.replace(LIMITS, bytes_per_second=20)
"""A compaction of three small segments takes many seconds."""
COMPACTED = {"is_compacted": True, "is_deleted": False}


def job_of(house: House) -> str:
    """What the housekeeper says that it does."""
    return house.directory.keeper.describe().job


async def compacting_log(house: House) -> PartitionLog:
    """A log of three sealed segments that are being compacted."""
    log = await sealed_log(house, 3, **COMPACTED)
    await house.until(lambda: job_of(house).startswith("compact"))
    return log


def names_of(key: SegmentKey) -> set[str]:
    """Of the segment's two files."""
    return {path.rpartition("/")[2] for path in (key.path, key.sidecar_path)}


def held_up() -> tuple[asyncio.Event, Callable[[], Awaitable[None]]]:
    """For `before_result`: a job has ended, and nobody is told before the event."""
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    return go_on, wait


def test_segments_are_sealed_while_a_compaction_is_under_way() -> None:
    async def work(house: House) -> None:
        log = await compacting_log(house)
        other = house.add(1)
        await house.fill(log, 3)
        await house.fill(other, 3)
        await house.until(
            lambda: len(sealed(log)) == 6 and len(sealed(other)) == 2, within_ms=5_000
        )
        assert job_of(house) == f"compact {log.key}", "it has not ended meanwhile"
        assert house.directory.keeper.counts.compactions == 0
        assert all(segment.index is None for segment in log.segments[:-1])
        await house.until(lambda: house.directory.keeper.counts.compactions)
        assert log.segments[0].is_compacted
        assert (await house.values(log))[-1] == (6, b"2")
        assert house.directory.keeper.counts.jobs_failed == 0

    in_a_house(work, limits=SLOW)


def test_both_jobs_are_told_of() -> None:
    async def work(house: House) -> None:
        log = await compacting_log(house)
        go_on, house.sealer.before_result = held_up()
        await house.append(log)
        await house.until(lambda: "seal" in job_of(house))
        assert job_of(house) == f"compact {log.key}, seal {log.key}"
        go_on.set()
        await house.until(lambda: len(sealed(log)) == 4)
        assert job_of(house) == f"compact {log.key}"

    in_a_house(work, limits=SLOW)


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_compaction_that_ends_leaves_the_file_of_a_seal_alone(is_failing: bool) -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        go_on, house.sealer.before_result = held_up()
        await house.append(log)
        unfinished = f"{3:020d}.sidecar.new"
        await house.until(lambda: unfinished in house.files(log))
        if is_failing:
            house.worker.failures = [DIED]
        house.directory.configure(log.key, house.settings(log, **COMPACTED))
        counts = house.directory.keeper.counts
        await house.until(lambda: counts.jobs_failed if is_failing else counts.compactions)
        assert unfinished in house.files(log)
        assert len([name for name in house.files(log) if name.endswith(".new")]) == 1
        go_on.set()
        await house.until(lambda: log.segments[-2].summary is not None)
        assert counts.jobs_failed == is_failing
        assert unfinished not in house.files(log)

    in_a_house(work)


def test_a_seal_that_fails_leaves_the_files_of_a_compaction_alone() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        go_on, house.worker.before_result = held_up()
        house.directory.configure(log.key, house.settings(log, **COMPACTED))
        made = f"{0:020d}-{1:08d}"
        await house.until(lambda: f"{made}.sidecar.new" in house.files(log))
        house.sealer.failures = [DIED]
        await house.append(log)
        counts = house.directory.keeper.counts
        await house.until(lambda: counts.jobs_failed)
        assert {f"{made}.log.new", f"{made}.sidecar.new"} <= set(house.files(log))
        go_on.set()
        await house.until(lambda: counts.compactions)
        assert counts.compactions_given_up == 0
        await house.until(lambda: log.segments[-2].summary is not None)
        assert not [name for name in house.files(log) if name.endswith(".new")]

    in_a_house(work)


def test_what_a_compaction_left_whose_process_died_goes_with_it() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)

        async def die() -> None:
            raise DIED

        house.worker.before_result = die
        house.directory.configure(log.key, house.settings(log, **COMPACTED))
        await house.until(lambda: house.directory.keeper.counts.jobs_failed)
        assert "compact" in house.worker.jobs()
        assert not [name for name in house.files(log) if name.endswith(".new")]

    in_a_house(work)


def test_a_sidecar_is_made_again_of_a_segment_that_is_being_compacted() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        go_on, house.worker.before_result = held_up()
        house.directory.configure(log.key, house.settings(log, **COMPACTED))
        await house.until(lambda: f"{0:020d}-{1:08d}.sidecar.new" in house.files(log))
        key = log.segments[1].key
        house.damage(key.sidecar_path, 40)
        house.directory.keeper.seal_again(key)
        counts = house.directory.keeper.counts
        await house.until(lambda: counts.sidecars_made_again)
        assert counts.compactions == 0
        go_on.set()
        await house.until(lambda: counts.compactions)
        assert [segment.is_compacted for segment in log.segments] == [True] * 3 + [False]
        await house.until(lambda: not names_of(key) & set(house.files(log)))
        assert (await house.values(log))[-1] == (3, b"3")
        assert counts.jobs_failed == 0

    in_a_house(work)


def test_a_seal_of_a_segment_that_is_compacted_meanwhile_is_thrown_away() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 3)
        key = log.segments[1].key
        go_on, house.sealer.before_result = held_up()
        house.directory.keeper.seal_again(key)
        await house.until(lambda: f"{1:020d}.sidecar.new" in house.files(log))
        house.directory.configure(log.key, house.settings(log, **COMPACTED))
        await house.until(lambda: house.directory.keeper.counts.compactions)
        assert [segment.is_compacted for segment in log.segments] == [True] * 3 + [False]
        assert names_of(key) < set(house.files(log)), "it is held"
        go_on.set()
        await house.until(lambda: not names_of(key) & set(house.files(log)))
        await house.checks()
        assert house.directory.keeper.describe().seals_waiting == 0
        assert house.directory.keeper.counts.jobs_failed == 0
        await house.append(log)
        await house.until(lambda: len(sealed(log)) == 4)
        assert not [name for name in house.files(log) if name.endswith(".new")]

    in_a_house(work)


def test_a_stop_gives_up_a_seal_and_a_compaction() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = await compacting_log(house)
        _, house.sealer.before_result = held_up()
        await house.append(log)
        await house.until(lambda: job_of(house) == f"compact {log.key}, seal {log.key}")
        assert await house.directory.stop()
        assert job_of(house) == ""
        assert [segment.summary is None for segment in log.segments] == [False] * 3 + [True] * 2

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert not [name for name in house.files(log) if name.endswith(".new")]
        await house.until(lambda: log.segments[-2].summary is not None)
        await house.until(lambda: house.directory.keeper.counts.compactions)
        assert (await house.values(log))[-1] == (4, b"v")

    try:
        neighbourhood.live(work, limits=SLOW)
        neighbourhood.live(later, known=placed(**COMPACTED))
    finally:
        neighbourhood.close()
