"""Whose word moves the start of a copy: a leader's, on either side of a stream."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.support.copy_log import CopyLog, key_of
from tests.broker.support.session_world import SessionWorld, ends
from tidelog.broker.replication.follower.partition import StopHeadless
from tidelog.broker.replication.shared.log_start import is_decided, lacks_head
from tidelog.broker.replication.shared.messages import NO_EPOCH
from tidelog.wire.ids import LeaderEpoch, Offset

KEY = key_of()
UNDECIDED = -1
"""As an earlier version of this program has trimmed: nobody knows by whose word."""


def alike(count: int, *, epoch: int = 3) -> SessionWorld:
    """Both hold the same committed batches of epoch 1; the leader leads in a later epoch."""
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for log in (leader, follower):
        log.lead(1)
        for _ in range(count):
            log.write(b"committed")
        log.commit(count)
        log.flush()
    leader.lead(epoch)
    world.follow(KEY, epoch)
    return world


def start_of(log: CopyLog) -> tuple[int, int]:
    return log.log.log_start_offset, log.log.log_start_epoch


# -- a follower above its leader's start -----------------------------------------------------------


@pytest.mark.parametrize("start", [1, 4, 6])
def test_a_follower_that_nobody_told_to_trim_counts_for_nothing_and_is_copied_anew(
    start: int,
) -> None:
    world = alike(6)
    world.follower.logs[KEY].trim(start, UNDECIDED)
    world.settle()
    assert world.leader.counted == [], "it is not in sync, however far its end has come"
    assert world.follower.headless == [
        StopHeadless(key=KEY, log_start_offset=Offset(start), leader_start_offset=Offset(0))
    ]


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_follower_whose_head_an_earlier_leader_gave_up_counts(epoch: int) -> None:
    world = alike(6)
    world.follower.logs[KEY].trim(4, epoch)
    world.settle()
    assert world.leader.counted[-1].log_end_offset == 6
    assert not world.follower.headless
    assert start_of(world.follower.logs[KEY]) == (4, epoch), "nothing that was given up comes back"


def test_a_start_of_an_epoch_that_is_not_over_the_leader_counts_for_nothing() -> None:
    world = alike(6)
    world.follower.logs[KEY].trim(4, 4)
    world.settle()
    assert world.leader.counted == []
    assert world.follower.headless


def test_a_follower_that_loses_its_head_while_it_is_held_counts_no_more() -> None:
    world = alike(6)
    world.settle()
    counted = len(world.leader.counted)
    assert counted
    world.follower.logs[KEY].trim(6, UNDECIDED)
    world.write()
    world.settle()
    assert len(world.leader.counted) == counted
    assert world.follower.headless


def test_a_follower_believes_only_what_it_sees_itself() -> None:
    """It was told to have lost its head, and has had all of it since."""
    world = alike(6)
    follower = world.follower.logs[KEY]
    follower.trim(4, UNDECIDED)
    world.ask()
    world.deliver_request()
    world.answer()
    follower.log.log_start_epoch = LeaderEpoch(2)
    world.deliver_answer()
    assert not world.follower.headless
    world.settle()
    assert world.leader.counted


def test_what_a_follower_lacks_is_judged_behind_the_rule_of_divergence() -> None:
    """A leader that does not hold what the follower has must not have it copied anew."""
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    follower.lead(2)
    for _ in range(4):
        follower.write(b"committed in epoch 2")
    follower.commit(4)
    follower.trim(2, UNDECIDED)
    leader.write(b"of epoch 1")
    leader.lead(3)
    world.follow(KEY, 3)
    world.ask()
    world.deliver_request()
    world.answer()
    world.deliver_answer()
    assert not world.follower.headless
    world.do_one(KEY)
    assert world.follower.lost, "it lacks what is committed here: kept apart, and kept"


# -- a leader above its follower's end, or start ---------------------------------------------------


def test_a_good_copy_gives_up_nothing_to_a_leader_that_nobody_told_to_trim() -> None:
    world = alike(6)
    world.leader.logs[KEY].trim(6, UNDECIDED)
    world.settle()
    assert len(world.follower.logs[KEY].batches) == 6, "it may be the last good copy"
    assert world.leader.counted[-1].log_end_offset == 6, "and it holds all that its leader has"
    world.write()
    world.commit()
    world.settle()
    assert ends(world) == (7, 7)
    assert len(world.follower.logs[KEY].batches) == 7


def test_the_second_path_does_not_lift_a_start_either() -> None:
    """The follower's epoch is below all that the leader knows; it ends at the leader's start."""
    world = alike(6, epoch=2)
    world.write()
    leader = world.leader.logs[KEY]
    leader.commit(7)
    leader.trim(6, UNDECIDED)
    for _ in range(3):
        world.ask()
        world.deliver_request()
        world.answer()
        world.deliver_answer()
        world.now_ms += world.limits.retry_ms_max
    assert not world.seen["TrimHead"]
    assert not world.seen["RestartLog"]
    assert len(world.follower.logs[KEY].batches) == 6
    leader.trim(6, 2)
    leader.log.log_start_epoch = LeaderEpoch(2)
    world.settle()
    assert ends(world) == (7, 7), "a leader has decided: it goes on"
    assert start_of(world.follower.logs[KEY]) == (6, 2)


@pytest.mark.parametrize("end", [1, 4])
def test_a_follower_that_ends_below_such_a_start_keeps_all_until_a_leader_decides(end: int) -> None:
    world = alike(6)
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    follower.cut(end)
    follower.flush()
    world.write()
    leader.commit(7)
    leader.trim(5, UNDECIDED)
    for _ in range(3):
        world.ask()
        world.deliver_request()
        world.answer()
        world.deliver_answer()
        world.now_ms += world.limits.retry_ms_max
    assert not world.seen["RestartLog"]
    assert len(follower.batches) == end
    leader.log.log_start_epoch = LeaderEpoch(3)
    world.settle()
    assert follower.batches == leader.batches


def test_an_empty_follower_begins_at_such_a_start_and_takes_over_that_nobody_decided_it() -> None:
    world = SessionWorld()
    leader = world.leader.logs[KEY]
    for _ in range(6):
        leader.write(b"committed")
    leader.commit(6)
    leader.trim(4, UNDECIDED)
    world.settle()
    assert world.follower.logs[KEY].batches == leader.batches
    assert start_of(world.follower.logs[KEY]) == (4, UNDECIDED)


def test_the_same_start_is_taken_over_once_somebody_tells_who_moved_it() -> None:
    world = alike(6)
    for log in (world.leader.logs[KEY], world.follower.logs[KEY]):
        log.trim(4, UNDECIDED)
    world.settle()
    assert world.leader.counted, "it begins where its leader does"
    world.leader.logs[KEY].log.log_start_epoch = LeaderEpoch(3)
    world.leader_session.on_news(KEY)
    world.settle()
    assert start_of(world.follower.logs[KEY]) == (4, 3)


def test_behind_a_gap_of_a_compaction_a_follower_begins_where_its_leader_does() -> None:
    world = SessionWorld()
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    for _ in range(8):
        leader.write(b"v")
    leader.commit(8)
    leader.trim(3)
    leader.batches = [each for each in leader.batches if each[0].base_offset >= 5]
    world.settle()
    assert start_of(follower)[0] == 3, "never above its leader's start"
    assert follower.batches == leader.batches


# -- whatever both have been through ---------------------------------------------------------------


@given(
    leader_start=st.integers(0, 8),
    leader_epoch=st.integers(-1, 4),
    follower_start=st.integers(0, 8),
    follower_epoch=st.integers(-1, 4),
    follower_end=st.integers(0, 8),
)
@settings(deadline=None)
def test_no_record_goes_unless_a_leader_gave_it_up(
    leader_start: int,
    leader_epoch: int,
    follower_start: int,
    follower_epoch: int,
    follower_end: int,
) -> None:
    world = alike(8)
    leader, follower = world.leader.logs[KEY], world.follower.logs[KEY]
    follower.cut(max(follower_start, follower_end))
    follower.flush()
    follower.trim(follower_start, follower_epoch)
    leader.trim(leader_start, leader_epoch)
    before = {header.base_offset for header, _ in follower.batches}
    for _ in range(4):
        _turn(world)
    after = {header.base_offset for header, _ in follower.batches}
    limit = leader_start if is_decided(LeaderEpoch(leader_epoch), LeaderEpoch(3)) else 0
    assert all(each < limit for each in before - after), "gone, and nobody had decided it"
    is_headless = lacks_head(
        Offset(follower_start),
        LeaderEpoch(follower_epoch if follower_start else NO_EPOCH),
        leader_start_offset=Offset(leader_start),
        leader_epoch=LeaderEpoch(3),
    )
    assert bool(world.follower.headless) is is_headless
    assert bool(world.leader.counted) <= (not is_headless), "it counted without its head"


def _turn(world: SessionWorld) -> None:
    """What is asked, answered and done in one exchange, and no more."""
    while world.follower.asked[KEY]:
        world.do_one(KEY)
    world.ask()
    while world.requests:
        world.deliver_request()
    world.answer()
    while world.answers:
        world.deliver_answer()
    while world.follower.asked[KEY]:
        world.do_one(KEY)
    world.now_ms += world.limits.retry_ms_max
