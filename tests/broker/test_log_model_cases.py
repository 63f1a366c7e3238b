"""Histories that the stateful model has found, told by hand."""

import pytest

from tidelog.broker.directory import Placed
from tidelog.broker.housekeeping.limits import HousekeepingLimits
from tidelog.broker.log.names import PartitionKey
from tidelog.chaos.fuzz.log_house import LogHouse
from tidelog.chaos.sim import FaultKind
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.wire.batch import encode_batch
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, TopicId

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
