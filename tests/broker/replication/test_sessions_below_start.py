"""Followers at and below where the leader's log begins: what only they had must not stay."""

import pytest

from tests.broker.support.copy_log import CopyLog, key_of
from tests.broker.support.session_world import SessionWorld, ends
from tidelog.broker.directory.core.messages import RestartLog, TrimHead, TruncateTail
from tidelog.broker.replication.follower.partition import FollowerEffect
from tidelog.wire.ids import LeaderEpoch, Offset

KEY = key_of()
EPOCH_2 = LeaderEpoch(2)


def foreign_below(log: CopyLog) -> list[int]:
    """Offsets that the log shows to readers, and that nobody ever committed."""
    readable = range(log.log.log_start_offset, log.log.high_watermark)
    return [
        header.base_offset
        for header, batch in log.batches
        if header.base_offset in readable and b"never committed" in batch
    ]


def parted(*, both: int, foreign: int, since: int, start: int) -> SessionWorld:
    """The follower led in epoch 1; the leader of epoch 2 has trimmed up to `start` since."""
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for log in (leader, follower):
        log.lead(1)
        for _ in range(both):
            log.write(b"both")
        log.commit(both)
    for _ in range(foreign):
        follower.write(b"never committed")
    follower.follow(1)
    leader.lead(2)
    for _ in range(since):
        leader.write(b"of epoch 2")
    leader.commit(both + since)
    leader.trim(start)
    world.follow(KEY, 2)
    return world


def effects_of_naming(world: SessionWorld) -> list[FollowerEffect]:
    """What the follower makes of the leader's first answer."""
    world.ask()
    world.deliver_request()
    world.answer()
    return world.deliver_answer()


@pytest.mark.parametrize("start", range(2, 8))
def test_what_was_never_committed_does_not_stay_below_the_leaders_start(start: int) -> None:
    world = parted(both=1, foreign=4, since=6, start=start)
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    assert effects_of_naming(world) == [
        RestartLog(key=KEY, offset=Offset(start), start_epoch=EPOCH_2)
    ]
    assert world.leader.counted == [], "it may have parted from the leader's log"
    world.settle()
    assert follower.batches == leader.batches
    assert ends(world) == (7, 7)


def test_a_tail_that_ends_where_the_leaders_first_batch_begins_is_not_gone_on_from() -> None:
    world = parted(both=1, foreign=2, since=0, start=0)
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.write(b"of epoch 2", 2)
    leader.write(b"of epoch 2", 2)
    leader.commit(5)
    leader.trim(4)
    assert (follower.log.log_end_offset, leader.batches[0][0].base_offset) == (3, 3)
    assert effects_of_naming(world) == [RestartLog(key=KEY, offset=Offset(4), start_epoch=EPOCH_2)]
    world.settle()
    assert follower.batches == leader.batches


def test_a_follower_of_a_later_epoch_than_the_leaders_start_is_cut_though_it_ends_below() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for log in (leader, follower):
        log.lead(1)
        log.write(b"both")
        log.commit(1)
    follower.lead(2)
    follower.write(b"never committed")
    follower.follow(2)
    for _ in range(3):
        leader.write(b"of epoch 1, committed in epoch 3")
    leader.lead(3)
    leader.write(b"of epoch 3")
    leader.commit(5)
    leader.trim(2)
    world.follow(KEY, 3)
    world.settle()
    assert foreign_below(follower) == []
    assert follower.content(5) == leader.content(5)


def test_a_slow_follower_of_the_epoch_at_the_leaders_start_counts_at_once() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for _ in range(5):
        leader.write(b"v")
    for _, batch in leader.batches[:3]:
        follower.store(batch)
    leader.commit(5)
    leader.trim(3)
    assert world.ask() is not None
    world.deliver_request()
    assert [each.log_end_offset for each in world.leader.counted] == [3]
    world.settle()
    assert not world.seen["RestartLog"], "what it knows of producers stays"
    assert ends(world) == (5, 5)


def test_what_is_committed_up_to_the_leaders_start_is_trimmed_and_gone_on_from() -> None:
    world = parted(both=3, foreign=0, since=2, start=3)
    assert effects_of_naming(world) == [TrimHead(key=KEY, offset=Offset(3), start_epoch=EPOCH_2)]
    world.settle()
    assert not world.seen["RestartLog"], "what it knows of producers stays"
    assert world.follower.logs[KEY].batches == world.leader.logs[KEY].batches


@pytest.mark.parametrize("end", [0, 2, 3])
def test_a_leader_that_knows_no_epoch_any_more_and_its_follower_come_to_rest(end: int) -> None:
    """It was trimmed up to 3, all it had, and started again: no batch tells an epoch."""
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.restart(3)
    for _ in range(end):
        follower.write(b"of epoch 0")
    follower.follow(1)
    world.settle()
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    world.write()
    world.settle()
    assert ends(world) == (4, 4)


def test_what_is_held_is_not_begun_anew_when_the_epochs_that_showed_it_are_trimmed() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.write(b"v")
    follower.store(leader.batches[0][1])
    leader.commit(1)
    leader.trim(1)
    leader.lead(2)
    world.follow(KEY, 2)
    world.ask()
    world.deliver_request()
    assert world.leader.counted, "all of it is of the epoch that the leader's log ends with"
    world.write()
    world.flush(KEY)
    world.settle()
    assert not world.seen["RestartLog"]
    assert ends(world) == (2, 2)


def test_committed_records_are_not_begun_anew_from_where_nobody_decided_so() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    follower.write(b"committed")
    follower.write(b"committed")
    follower.commit(2)
    leader.restart(1)
    leader.lead(2)
    world.follow(KEY, 2)
    assert effects_of_naming(world) == [TruncateTail(key=KEY, offset=Offset(1), is_unclean=False)]
    world.do_one(KEY)
    assert world.follower.lost, "its owner refuses that"


def emptied_above(leader_epochs: tuple[tuple[int, int], ...]) -> SessionWorld:
    """Under epoch 1 all was trimmed up to 5: the follower came then, and has had no batch since.
    Of its leader nothing is left."""
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    follower.follow(1)
    follower.restart(5)
    for epoch, writes in leader_epochs:
        leader.lead(epoch)
        for _ in range(writes):
            leader.write(b"of epoch %d" % epoch)
    return world


@pytest.mark.parametrize("since", [1, 3, 6])
def test_an_empty_follower_holds_what_was_committed_since_an_unclean_election(since: int) -> None:
    world = emptied_above(((1, 2), (3, since)))
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.commit(leader.log.log_end_offset)
    world.follow(KEY, 3, is_unclean=True)
    world.settle()
    assert follower.batches == leader.batches
    assert world.leader.counted[-1].flushed_offset == 2 + since, "its leader lets it into sync"


def test_an_empty_follower_begins_anew_also_under_the_next_leader_of_an_unclean_log() -> None:
    world = emptied_above(((1, 2), (3, 4), (4, 1)))
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.commit(7)
    world.follow(KEY, 4, is_unclean=True)
    world.settle()
    assert follower.batches == leader.batches


def test_an_empty_follower_stays_above_the_leaders_start_where_nobody_decided_for_a_loss() -> None:
    world = emptied_above(((1, 5), (2, 2)))
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    leader.commit(7)
    world.follow(KEY, 2)
    world.settle()
    assert not world.seen["RestartLog"], "what it has trimmed was committed, and is to be gone"
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (5, 7)
