"""A compacted segment's sidecar has rotted: what is made again tells less than the one that was."""

from functools import partial

import pytest

from tests.broker.housekeeping.test_housekeeping import sealed
from tests.broker.support.housekeeping_world import House, Neighbourhood, placed
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.log.inspection import check_a_sidecar
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.ids import Offset

SETTINGS = {"segment_bytes": 1_000, "is_deleted": False, "delete_retention_ms": 0}
SECOND_DRAWN = 0
"""A seed by which the second of two segments is drawn."""


async def append(house: House, log: PartitionLog, key: bytes, sequence: int) -> None:
    """One record of the one producer."""
    now_ms = house.ports.clock.wall_ms()
    batch = encode_batch(
        [(now_ms, key, b"v", ())], producer_id=5, producer_epoch=0, base_sequence=sequence
    )
    await house.directory.owner.submit(
        log, batch, read_header(batch), is_flush_awaited=True, append_time_ms=now_ms
    )


async def compacted_head(house: House, first_key: bytes) -> PartitionLog:
    """A compacted segment, and two that were sealed while it was not: of one of them a sidecar
    tells of the log's beginning."""
    log = house.add(**SETTINGS)
    for number, key in enumerate((first_key, b"k", b"k")):
        await append(house, log, key, number)
    await house.roll(log)
    await house.until(lambda: len(sealed(log)) == 1)
    compacting = house.settings(log, is_compacted=True, min_cleanable_dirty_ratio=0.01)
    house.directory.configure(log.key, compacting)
    await house.until(lambda: log.segments[0].is_compacted)
    await house.checks()
    house.directory.configure(log.key, house.settings(log))
    await append(house, log, b"other", 3)
    await house.roll(log)
    await house.until(lambda: len(sealed(log)) == 2)
    assert [segment.is_compacted for segment in sealed(log)] == [True, False]
    return log


@pytest.mark.parametrize(("first_key", "log_start"), [(b"k", 0), (b"k", 1), (b"a", 1)])
def test_a_sidecar_that_is_made_again_goes_by_the_leader_epochs_that_the_log_knows(
    first_key: bytes, log_start: int
) -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = await compacted_head(house, first_key)
        await house.directory.owner.trim(log, Offset(log_start))
        house.damage(log.segments[0].key.sidecar_path, 40)

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        assert [segment.summary is None for segment in log.segments] == [True, False, True]
        await house.until(lambda: log.failure or log.segments[0].summary is not None)
        assert log.failure is None
        summary = log.segments[0].summary
        assert summary is not None
        # The header with which the epoch begins stays, whatever becomes of its record.
        assert summary.leader_epochs == (EpochStart(1, 0),)
        assert log.leader_epochs.starts == (EpochStart(1, log_start),)
        # Of the producers it tells less, and so would one behind it that is made again.
        for was_damaged, count in ((True, 0), (False, 1)):
            random = SeededRandom(SECOND_DRAWN, "inspection")
            found = check_a_sidecar(log, house.medium, random, was_damaged=was_damaged)
            assert len(found) == count, found

    try:
        neighbourhood.live(work)
        checkpoint = neighbourhood.machine.medium("data").find("log_checkpoint")
        assert isinstance(checkpoint, Inode)
        assert checkpoint.replace_byte(20, checkpoint.seen[20], checkpoint.seen[20] ^ 1)
        neighbourhood.live(later, known=placed(**SETTINGS))
    finally:
        neighbourhood.close()


@pytest.mark.parametrize(("rotten_byte", "is_kept"), [(None, True), (40, False), (-1, False)])
def test_a_log_goes_on_behind_a_sidecar_that_was_made_again_and_tells_less_of_producers(
    rotten_byte: int | None, is_kept: bool
) -> None:
    """None: a read has failed in passing, the file is whole."""
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = await compacted_head(house, b"k")
        await append(house, log, b"last", 4)
        head, second = sealed(log)
        paths = [head.key.sidecar_path, second.key.sidecar_path]
        stored = [seen(house, path) for path in paths]
        if rotten_byte is not None:
            house.damage(paths[0], rotten_byte % len(stored[0]))
        for count, segment in enumerate((head, second), start=1):
            house.directory.keeper.seal_again(segment.key)
            await house.until(partial(has_made_again, house, count))
        assert [seen(house, path) for path in paths] == stored or not is_kept
        assert (seen(house, paths[0]) == stored[0]) is is_kept
        assert ("producers_forgotten" in house.events.names()) is not is_kept
        await house.roll(log)
        await house.until(lambda: log.failure or len(sealed(log)) == 3)
        assert log.failure is None

    try:
        neighbourhood.live(work)
    finally:
        neighbourhood.close()


def test_a_log_goes_on_behind_a_sidecar_that_continues_what_was_forgotten_a_life_before() -> None:
    neighbourhood = Neighbourhood()

    async def work(house: House) -> None:
        log = await compacted_head(house, b"k")
        house.damage(log.segments[0].key.sidecar_path, 40)
        house.directory.keeper.seal_again(log.segments[0].key)
        await house.until(partial(has_made_again, house, 1))

    async def later(house: House) -> None:
        (log,) = house.logs.values()
        house.directory.keeper.seal_again(log.segments[1].key)
        await house.until(partial(has_made_again, house, 1))
        await append(house, log, b"last", 4)
        await house.roll(log)
        await house.until(lambda: log.failure or len(sealed(log)) == 3)
        assert log.failure is None

    try:
        neighbourhood.live(work)
        checkpoint = neighbourhood.machine.medium("data").find("log_checkpoint")
        assert isinstance(checkpoint, Inode)
        assert checkpoint.replace_byte(20, checkpoint.seen[20], checkpoint.seen[20] ^ 1)
        neighbourhood.live(later, known=placed(**SETTINGS))
    finally:
        neighbourhood.close()


def seen(house: House, path: str) -> bytes:
    """The file as it is now."""
    inode = house.medium.find(path)
    assert isinstance(inode, Inode), path
    return bytes(inode.seen)


def has_made_again(house: House, count: int) -> bool:
    """So many sidecars."""
    return house.directory.keeper.counts.sidecars_made_again == count
