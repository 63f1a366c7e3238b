"""Histories that the stateful model has found, told by hand."""

import asyncio
import functools
import random

import msgspec
import pytest

from tests.broker.support.log_model import Keeping, PartitionModel, Record, Sent
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.directory import Placed
from tidelog.chaos.fuzz.log_house import LogHouse
from tidelog.chaos.sim import FaultKind
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(bytes([5]) * 16), PartitionId(0))
LIMITS = HousekeepingLimits(
    check_interval_ms=100,
    bytes_per_second=0,
    scrub_interval_ms=0,
    free_bytes_min=0,
    free_bytes_margin=0,
)


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_during_a_seal_comes_to_its_end(seed: int) -> None:
    house = LogHouse(seed, limits=LIMITS)
    settings = TopicSettings(segment_bytes=200, retention_ms=-1)
    house.placed[KEY] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
    try:
        house.begin()
        life = house.life
        for number in range(6):
            _append(house, number)
        for _ in range(10_000):
            if life.directory.keeper.describe().job.startswith("seal"):
                break
            house.pass_ms(0.1)
        log = life.logs[KEY]
        sealing = next(each for each in log.segments if each.is_sealed and each.summary is None)
        assert sealing.next_offset > sealing.base_offset + 1, "a part of it stays"
        wanted = Offset(sealing.base_offset + 1)
        owner = life.directory.owner
        end = house.call(lambda: owner.truncate(log, wanted, is_unclean=True))
        assert end == log.log_end_offset == wanted
        assert len(house.call(lambda: life.read_all(KEY))) == wanted
    finally:
        house.close()


def test_what_size_has_taken_bares_an_old_segment_that_the_next_check_takes_by_age() -> None:
    """Nobody looks between the two checks."""
    house = LogHouse(1, limits=LIMITS)
    settings = TopicSettings(segment_bytes=200, retention_ms=-1)
    placed = house.placed[KEY] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
    model = PartitionModel(is_compacted=False, delete_retention_ms=0)
    keeping = Keeping(20_000, 1_300)
    try:
        house.begin()
        # The first is young, the second old, and too little is behind it for it to go by size.
        for age_ms, size in ((0, 1_000), (30_000, 1_000), (0, 500), (0, 10)):
            now_ms = house.life.clock.wall_ms()
            record = Record(0, now_ms - age_ms, b"k", bytes(size))
            batch = encode_batch([(record.time_ms, record.key, record.value, ())])
            house.call(functools.partial(house.life.append, KEY, batch))
            model.store(Sent((record,), len(batch), now_ms), model.end)
        settings = msgspec.structs.replace(
            settings, retention_ms=keeping.retention_ms, retention_bytes=keeping.retention_bytes
        )
        house.placed[KEY] = msgspec.structs.replace(placed, settings=settings)
        house.life.directory.configure(KEY, settings)
        log = house.life.logs[KEY]
        starts = [log.log_start_offset]
        for _ in range(1_000):
            house.pass_ms(1)
            if log.log_start_offset != starts[-1]:
                starts.append(log.log_start_offset)
        assert starts == [0, 1, 2], "one check after the other"
        now_ms = house.life.clock.wall_ms()
    finally:
        house.close()
    for start, keepings in (
        (3, [keeping]),
        (2, [Keeping(20_000, -1)]),
        (2, [Keeping(-1, 1_300)]),
        (2, [Keeping(40_000, 1_300)]),
        (2, [Keeping(20_000, 2_000)]),
    ):
        with pytest.raises(AssertionError, match="retention has moved"):
            model.move_start(start, now_ms=now_ms, keepings=keepings, why="")
    model.move_start(2, now_ms=now_ms, keepings=[keeping], why="")


def test_what_retention_takes_behind_a_trim_that_nobody_saw_counts_from_the_trim_on() -> None:
    """The process died before it answered; the next one has moved the start twice."""
    model = PartitionModel(is_compacted=False, delete_retention_ms=0)
    for time_ms in (90_000, 10_000, 90_000):
        model.store(Sent((Record(0, time_ms, b"k", b"v"),), 100, time_ms), model.end)
    keepings = [Keeping(20_000, -1)]
    with pytest.raises(AssertionError, match="retention has moved"):
        model.move_start(2, now_ms=90_000, keepings=keepings, why="")
    model.trim_asked = 1
    model.move_start(2, now_ms=90_000, keepings=keepings, why="")


def test_a_clean_stop_whose_last_mark_found_no_room_is_not_told_as_damage() -> None:
    restored = []
    for seed in range(24):
        house = LogHouse(seed, limits=LIMITS)
        settings = TopicSettings(retention_ms=-1)
        house.placed[KEY] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
        try:
            house.begin()
            _append(house, 0)
            house.pass_ms(100)
            house.medium.capacity_bytes = house.medium.used_bytes() + 4_000
            small = _start_append(house, b"v")
            house.pass_ms(0.8)
            # The mark that tells of the small one may go with a large one, and be refused with it.
            large = [_start_append(house, random.Random(seed).randbytes(5_000)) for _ in range(3)]
            answers = [small, *large]
            house.pass_ms(500)
            assert all(each.done() for each in answers)
            assert [each.exception() is None for each in answers] == [True, False, False, False]
            house.stop()
            house.begin()
            assert not house.life.summary.failures
            assert house.life.logs[KEY].log_end_offset == 2
            restored.append(house.life.summary.restored)
        finally:
            house.close()
    assert set(restored) == {0, 1}, "some looked closer, some had no need to"


def _start_append(house: LogHouse, value: bytes) -> "asyncio.Future[Appended]":
    batch = encode_batch([(1_000, b"k", value, ())])
    return house.start(lambda: house.life.append(KEY, batch))


def _append(house: LogHouse, number: int) -> None:
    batch = encode_batch([(1_000, b"k", b"%d" % number, ())])
    house.call(lambda: house.life.append(KEY, batch))


@pytest.mark.parametrize("seed", range(40))
def test_what_a_cut_has_taken_stays_away_although_the_process_died_in_it(seed: int) -> None:
    house = LogHouse(seed, limits=LIMITS, crash_kinds=[FaultKind.LOST_NAME])
    settings = TopicSettings(retention_ms=-1)
    house.placed[KEY] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
    try:
        house.begin()
        _append(house, 0)
        owner, log = house.life.directory.owner, house.life.logs[KEY]
        house.start(lambda: owner.truncate(log, Offset(0), is_unclean=True))
        path = log.segments[0].key.path
        for _ in range(1_000):
            if house.medium.find(path) is None:
                break
            house.pass_ms(0.05)
        house.kill()
        house.begin()
        assert house.life.logs[KEY].log_end_offset == 0
        house.crash()
        house.begin()
        assert house.life.logs[KEY].log_end_offset == 0
    finally:
        house.close()
