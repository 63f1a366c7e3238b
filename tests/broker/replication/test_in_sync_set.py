"""The leader's view of an in-sync set: who lags, who comes, what it asks for and waits for."""

import msgspec
import pytest

from tests.broker.support.in_sync_leader import (
    LAG_MS,
    ONE,
    REFUSED,
    THREE,
    TWO,
    UNKNOWN,
    Leader,
    led,
    made,
)
from tidelog.broker.replication.in_sync.set import RETRY_MS_MAX, RETRY_MS_MIN
from tidelog.wire.ids import BrokerEpoch, Offset

# -- coming --------------------------------------------------------------------------------------


def test_a_follower_at_the_watermark_is_waited_for_and_then_asked_in() -> None:
    leader = Leader(1, 2)
    leader.at(3, 99)
    assert leader.asks() is None
    leader.at(3, 100)
    assert leader.waits_for() == (TWO, THREE)
    change = leader.asked(1, 2, 3)
    assert change.partition_epoch == 10
    assert dict(change.members)[THREE] == 7
    leader.outcome(change, made())
    assert leader.waits_for() == (TWO, THREE)
    leader.image(1, 2, 3)
    assert leader.waits_for() == (TWO, THREE)
    assert leader.counts[-1].in_sync_count == 3
    assert leader.asks() is None


def test_nobody_is_asked_in_before_the_owner_waits_for_it() -> None:
    leader = Leader(1, 2)
    leader.is_owner_slow = True
    leader.at(3, 100)
    assert leader.asks() is None
    leader.log.log_end_offset = leader.log.high_watermark = Offset(120)
    leader.take_in()
    assert leader.asks() is None, "the watermark passed it in between"
    leader.at(3, 120)
    leader.asked(1, 2, 3)


def test_what_was_written_and_not_flushed_counts_only_where_nothing_is_flushed_first() -> None:
    leader = Leader(1, 2)
    leader.at(3, 50, end=100)
    assert leader.asks() is None
    leader.perform(leader.set.on_settings(is_flush_sync=False, now_ms=0))
    leader.asked(1, 2, 3)


def test_a_follower_behind_the_start_of_the_epoch_does_not_come() -> None:
    """A new leader's watermark may lie below what the one before it had committed."""
    leader = Leader(1, 2, end=100, high_watermark=40)
    leader.at(3, 60)
    assert leader.asks() is None
    leader.at(3, 100)
    leader.asked(1, 2, 3)


def test_the_start_of_an_epoch_is_not_known_before_the_owner_has_begun_it() -> None:
    leader = Leader(1, 2, end=100, high_watermark=40)
    leader.is_owner_slow = True
    leader.image(1, 2, epoch=6)
    leader.at(3, 100, epoch=6)
    leader.log.log_end_offset = Offset(130)
    leader.take_in()
    assert leader.asks() is None
    leader.at(3, 130, epoch=6)
    leader.take_in()
    leader.asked(1, 2, 3)


@pytest.mark.parametrize("epoch", [4, 6])
def test_a_position_of_another_leader_epoch_counts_for_nothing(epoch: int) -> None:
    leader = Leader(1, 2)
    leader.at(3, 100, epoch=epoch)
    assert leader.set.position(THREE) is None
    assert leader.asks() is None


def test_who_is_fenced_stopping_or_another_process_by_now_does_not_come() -> None:
    leader = Leader(1, 2)
    leader.brokers.unable.append(THREE)
    leader.at(3, 100)
    assert leader.waits_for() == (TWO,)
    leader.brokers.unable.clear()
    leader.brokers.epochs[THREE] = 8
    leader.at(3, 100)
    assert leader.waits_for() == (TWO,)
    leader.at(3, 100, broker_epoch=8)
    assert dict(leader.asked(1, 2, 3).members)[THREE] == 8


def test_a_position_of_an_older_process_comes_too_late() -> None:
    leader = Leader(1, 2)
    leader.brokers.epochs[THREE] = 8
    leader.at(3, 10, broker_epoch=8)
    leader.at(3, 100, broker_epoch=7)
    position = leader.set.position(THREE)
    assert position is not None
    assert position.flushed_offset == 10


def test_a_broker_that_is_unfenced_comes_without_saying_anything_again() -> None:
    leader = Leader(1, 2)
    leader.brokers.unable.append(THREE)
    leader.at(3, 100)
    leader.brokers.unable.clear()
    leader.perform(leader.set.on_brokers(0))
    leader.asked(1, 2, 3)


def test_who_came_and_fell_behind_is_not_waited_for_for_ever() -> None:
    leader = Leader(1, 2)
    leader.is_owner_slow = True
    leader.at(2, 100)
    leader.at(3, 100)
    leader.log.log_end_offset = leader.log.high_watermark = Offset(120)
    leader.take_in()
    leader.is_owner_slow = False
    leader.at(2, 120)
    leader.pass_ms(LAG_MS + 200)
    assert leader.waits_for() == (TWO,)


def test_the_owner_learns_where_those_stand_for_whom_it_begins_to_wait() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100, end=110)
    (at,) = leader.counts[-1].positions
    assert (at.broker_id, at.flushed_offset, at.log_end_offset) == (THREE, 100, 110)


def test_a_follower_that_pulls_no_more_has_to_say_anew_where_it_stands() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.perform(leader.set.on_gone(THREE, BrokerEpoch(7), 0))
    assert leader.waits_for() == (TWO,)
    assert leader.asks() is None
    leader.at(3, 100)
    leader.asked(1, 2, 3)


def test_an_older_process_that_goes_takes_nothing_back() -> None:
    leader = Leader(1, 2)
    leader.brokers.epochs[THREE] = 8
    leader.at(3, 100, broker_epoch=8)
    leader.perform(leader.set.on_gone(THREE, BrokerEpoch(7), 0))
    leader.asked(1, 2, 3)


# -- lagging -------------------------------------------------------------------------------------


def test_a_member_that_was_not_caught_up_for_so_long_is_asked_out_and_counts_meanwhile() -> None:
    leader = Leader(1, 2, 3)
    leader.at(2, 100)
    leader.at(3, 90)
    leader.pass_ms(LAG_MS)
    assert leader.asks() is None
    leader.pass_ms(100)
    change = leader.asked(1, 2)
    leader.outcome(change, made())
    assert leader.waits_for() == (TWO, THREE)
    leader.image(1, 2)
    assert leader.waits_for() == (TWO,)
    assert leader.counts[-1].in_sync_count == 2


def test_a_member_that_never_said_anything_in_the_epoch_is_asked_out() -> None:
    leader = Leader(1, 2, 3)
    leader.at(2, 100)
    leader.pass_ms(LAG_MS + 100)
    leader.asked(1, 2)


def test_a_member_that_reaches_each_end_a_little_later_stays() -> None:
    leader = Leader(1, 2)
    for end in range(100, 150):
        leader.log.log_end_offset = leader.log.high_watermark = Offset(end)
        leader.at(2, end - 1)
        leader.pass_ms(100)
    assert leader.asks() is None


def test_a_member_that_is_always_further_behind_than_the_time_allows_goes() -> None:
    leader = Leader(1, 2)
    for end in range(100, 140):
        leader.log.log_end_offset = Offset(end)
        leader.at(2, max(0, end - 20))
        leader.pass_ms(100)
        assert leader.set.is_lagging(leader.now_ms) == (leader.now_ms > LAG_MS)
    leader.asked(1)


def test_a_silent_member_stays_while_nothing_is_written() -> None:
    leader = Leader(1, 2)
    leader.at(2, 100)
    leader.pass_ms(50 * LAG_MS)
    assert leader.asks() is None
    leader.log.log_end_offset = Offset(101)
    leader.pass_ms(LAG_MS)
    assert leader.asks() is None, "its time begins with the record that it lacks"
    leader.pass_ms(200)
    leader.asked(1)


def test_who_lags_goes_before_anybody_comes() -> None:
    leader = Leader(1, 2)
    leader.pass_ms(LAG_MS)
    leader.at(3, 100)
    leader.now_ms += 100
    leader.asked(1)
    leader.perform(leader.set.on_tick(leader.now_ms))
    assert leader.waits_for() == (TWO,)


def test_a_leader_that_was_held_up_itself_accuses_nobody() -> None:
    leader = Leader(1, 2)
    leader.at(2, 99)
    leader.now_ms += 10 * LAG_MS
    leader.set.on_held_up(10 * LAG_MS)
    leader.perform(leader.set.on_tick(leader.now_ms))
    assert leader.asks() is None


# -- answers -------------------------------------------------------------------------------------


def test_one_change_is_in_flight_at_a_time() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.asked(1, 2, 3)
    leader.pass_ms(LAG_MS + 100)
    assert leader.asks() is None


def test_a_refusal_lets_the_watermark_go_on_and_is_followed_by_a_pause() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.outcome(leader.asked(1, 2, 3), REFUSED)
    assert leader.asks() is None
    leader.brokers.unable.append(THREE)
    leader.perform(leader.set.on_brokers(0))
    assert leader.waits_for() == (TWO,)
    leader.brokers.unable.clear()
    leader.at(3, 100)
    leader.pass_ms(RETRY_MS_MIN)
    leader.asked(1, 2, 3)


def test_the_pauses_grow_up_to_a_limit() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    pauses = []
    for _ in range(8):
        leader.at(2, 100)
        leader.outcome(leader.asked(1, 2, 3), REFUSED)
        since_ms = leader.now_ms
        while leader.set.take_change(leader.now_ms) is None:
            leader.now_ms += 100
            leader.at(2, 100)
            leader.at(3, 100)
        pauses.append(leader.now_ms - since_ms)
        change = leader.set._change
        assert change is not None
        leader.outcome(change, REFUSED)
        leader.now_ms += 2 * RETRY_MS_MAX
    assert pauses[0] == RETRY_MS_MIN
    assert pauses[-1] == RETRY_MS_MAX


def test_without_an_answer_the_same_is_asked_again_and_the_follower_counts() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    first = leader.asked(1, 2, 3)
    leader.outcome(first, UNKNOWN)
    leader.brokers.unable.append(THREE)
    leader.perform(leader.set.on_brokers(0))
    assert leader.waits_for() == (TWO, THREE), "it may be in sync by now"
    leader.pass_ms(RETRY_MS_MIN)
    assert leader.asks() == first


def test_a_refusal_after_a_silence_is_no_answer_until_the_change_is_withdrawn() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.outcome(leader.asked(1, 2, 3), UNKNOWN)
    leader.pass_ms(RETRY_MS_MIN)
    leader.outcome(leader.asked(1, 2, 3), REFUSED)
    assert leader.waits_for() == (TWO, THREE), "the first copy may still be let in"
    leader.pass_ms(2 * RETRY_MS_MIN)
    withdrawal = leader.asked(1, 2)
    assert withdrawal.is_withdrawal
    leader.outcome(withdrawal, made())
    assert leader.waits_for() == (TWO, THREE)
    leader.brokers.unable.append(THREE)
    leader.image(1, 2, partition_epoch=11)
    assert leader.waits_for() == (TWO,)


def test_a_withdrawal_without_an_answer_or_refused_is_sent_again() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.outcome(leader.asked(1, 2, 3), UNKNOWN)
    leader.pass_ms(RETRY_MS_MIN)
    leader.outcome(leader.asked(1, 2, 3), REFUSED)
    for outcome in (UNKNOWN, REFUSED):
        leader.pass_ms(RETRY_MS_MAX)
        leader.at(2, 100)
        withdrawal = leader.asks()
        assert withdrawal is not None
        assert withdrawal.is_withdrawal
        leader.outcome(withdrawal, outcome)
        assert THREE in leader.waits_for()


def test_an_image_that_is_faster_than_the_answer_decides() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    change = leader.asked(1, 2, 3)
    leader.brokers.unable.append(THREE)
    leader.image(1, 2)
    assert leader.waits_for() == (TWO,)
    leader.outcome(change, UNKNOWN)
    assert leader.waits_for() == (TWO,)


def test_a_change_that_turned_out_to_be_none_is_done() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.outcome(leader.asked(1, 2, 3), made(partition_epoch=10))
    leader.at(2, 100)
    leader.asked(1, 2, 3)


def test_a_new_leader_epoch_forgets_positions_and_what_was_asked_for() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.outcome(leader.asked(1, 2, 3), UNKNOWN)
    leader.image(1, 2, epoch=6)
    assert leader.waits_for() == (TWO,)
    assert leader.counts[-1].leader_epoch == 6
    assert leader.counts[-1].positions == ()
    leader.pass_ms(LAG_MS // 2)
    assert leader.asks() is None


def test_an_image_without_the_member_s_registration_asks_for_nothing_yet() -> None:
    leader = Leader(1, 2, 3)
    leader.at(2, 90)
    leader.at(3, 100)
    del leader.brokers.epochs[THREE]
    leader.pass_ms(LAG_MS + 100)
    assert leader.asks() is None


def test_a_leader_that_hears_of_no_change_commits_nothing_without_its_old_set() -> None:
    """What makes a leader harmless that has lost its session: it never waits for fewer."""
    leader = Leader(1, 2, 3)
    leader.pass_ms(LAG_MS + 100)
    for _ in range(20):
        change = leader.asks()
        if change is not None:
            leader.outcome(change, UNKNOWN)
        leader.pass_ms(RETRY_MS_MAX)
        assert leader.waits_for() == (TWO, THREE)
        assert leader.counts[-1].in_sync_count == 3


def test_replicas_that_have_moved_away_are_forgotten() -> None:
    leader = Leader(1, 2)
    leader.at(3, 50)
    moved = msgspec.structs.replace(led(1, 2, partition_epoch=11), replicas=(ONE, TWO))
    leader.perform(leader.set.on_image(moved, 0))
    assert leader.set.position(THREE) is None
    leader.at(3, 100)
    assert leader.set.position(THREE) is None
