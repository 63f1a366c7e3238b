"""Housekeeping at a stop and on a full disk: what it leaves, and what the next start finds."""

import asyncio

import msgspec

from tests.broker.housekeeping.test_housekeeping import bases, sealed, sealed_log
from tests.broker.support.housekeeping_world import (
    HOUR,
    LIMITS,
    House,
    Neighbourhood,
    in_a_house,
    placed,
)
from tidelog.broker.replicas.directory import LogDirectory, RecoverySummary
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.chaos.workloads.steady_time import SteadyTime
from tidelog.ports import TaskScope

ROOMY = msgspec.structs.replace(LIMITS, free_bytes_min=1 << 20)
"""Of a directory that holds room back."""


def test_a_stop_gives_up_a_job_that_holds_what_was_trimmed() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = await sealed_log(house, 3)

        async def never() -> None:
            await house.directory.owner.trim(log, log.segments[2].base_offset)
            await asyncio.Event().wait()

        house.worker.before_result = never
        settings = house.settings(log, is_compacted=True, is_deleted=False)
        house.directory.configure(log.key, settings)
        await house.until(lambda: log.log_start_offset == 2)
        assert await house.directory.stop()
        assert f"{1:020d}.log" not in house.files(log)

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert await house.values(log) == [(2, b"2"), (3, b"3")]

    try:
        neighbourhood.live(work)
        neighbourhood.live(later, known=placed())
    finally:
        neighbourhood.close()


def test_a_compaction_that_a_stop_meets_between_name_and_place_counts_at_the_next_start() -> None:
    neighbourhood = Neighbourhood()
    settings = {"is_compacted": True, "is_deleted": False}
    made = f"{0:020d}-{1:08d}.log"

    async def work(house: House) -> None:
        log = await sealed_log(house, 3, is_compacted=True, is_deleted=False)
        for _ in range(100_000):
            if made in house.files(log):
                break
            await asyncio.sleep(0.0001)
        assert not log.segments[0].is_compacted, "the log knows nothing of it yet"
        assert await house.directory.stop()
        assert not log.segments[0].is_compacted
        assert {made, f"{0:020d}.log"} < set(house.files(log))

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert log.segments[0].key.generation == 1
        assert f"{0:020d}.log" not in house.files(log)
        assert (await house.values(log))[-1] == (3, b"3")

    try:
        neighbourhood.live(work)
        neighbourhood.live(later, known=placed(**settings))
    finally:
        neighbourhood.close()


def test_a_sidecar_that_was_remade_without_what_was_trimmed_is_known_as_such_after_a_stop() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = house.add()
        # The log's own time is part of what producers are known by: it goes with the first record.
        await house.append(log)
        await house.fill(log, 3, age_ms=HOUR)
        await house.until(lambda: len(sealed(log)) == 3)
        await house.directory.owner.trim(log, log.segments[2].base_offset)
        house.directory.keeper.seal_again(log.segments[0].key)
        await house.until(lambda: house.directory.keeper.counts.sidecars_made_again)
        assert not log.segments[0].are_producers_whole

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert bases(log) == [2, 3]
        await house.fill(log, 2, age_ms=HOUR)
        await house.until(lambda: log.failure is not None or len(sealed(log)) == 3)
        assert log.failure is None

    try:
        neighbourhood.live(work)
        neighbourhood.live(later, known=placed())
    finally:
        neighbourhood.close()


def test_a_disk_that_is_full_to_the_last_byte_is_trimmed_all_the_same() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 4)
        await house.until(lambda: "ballast" in dict(house.medium.files()))
        house.medium.capacity_bytes = house.medium.used_bytes()
        await house.until(lambda: house.directory.keeper.describe().is_full)
        await house.directory.owner.trim(log, log.segments[1].base_offset)
        assert log.log_start_offset == 1
        assert "ballast" not in dict(house.medium.files())
        house.medium.capacity_bytes = 1 << 40
        await house.until(lambda: "ballast" in dict(house.medium.files()))
        await house.append(log)

    in_a_house(work, limits=ROOMY)


def test_a_directory_is_opened_on_a_disk_that_was_filled_meanwhile() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        await sealed_log(house, 3)
        await house.until(lambda: "ballast" in dict(house.medium.files()))

    async def later(house: House) -> None:
        assert house.directory.failure is None
        (log,) = house.logs.values()
        await house.directory.owner.trim(log, log.segments[2].base_offset)
        assert await house.values(log) == [(2, b"2"), (3, b"3")]

    try:
        neighbourhood.live(work, limits=ROOMY)
        medium = neighbourhood.machine.medium("data")
        # The checkpoint is consumed first: also its room is taken by others.
        checkpoint = medium.find("log_checkpoint")
        assert isinstance(checkpoint, Inode)
        medium.capacity_bytes = medium.used_bytes() - len(checkpoint.seen)
        neighbourhood.live(later, known=placed(), limits=ROOMY)
    finally:
        neighbourhood.close()


def test_a_seal_that_found_no_room_leaves_nothing_behind() -> None:
    async def work(house: House) -> None:
        log = await sealed_log(house, 1)
        await house.append(log)
        house.medium.capacity_bytes = house.medium.used_bytes() + 200
        await house.until(lambda: house.directory.keeper.counts.jobs_failed)
        await house.checks()
        assert not [name for name in house.files(log) if name.endswith(".new")]
        house.medium.capacity_bytes = 1 << 40
        await house.until(lambda: len(sealed(log)) == 2)

    in_a_house(work, limits=msgspec.structs.replace(LIMITS, free_bytes_min=0, free_bytes_margin=0))


def test_a_directory_that_was_cancelled_leaves_no_checkpoint() -> None:
    async def work(house: House) -> None:
        clock, worker, sealer = house.ports.clock, house.worker, house.sealer
        disk = house.ports.open_disk("other")
        name, events = disk.name, house.events
        other = LogDirectory(
            disk,
            worker,
            clock,
            time=SteadyTime(clock),
            sealer=sealer,
            name=name,
            events=events,
        )
        await other.open({}, RecoverySummary())
        async with TaskScope() as scope:
            task = scope.start(other.run(), name="other")
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.sleep(0.1)
            assert not await other.stop()
        assert "log_checkpoint" not in await disk.list()

    in_a_house(work)
