"""Each invariant of replication is seen to fail on the state that it forbids."""

from collections.abc import Callable

import pytest

from tests.broker.support.copy_log import key_of
from tests.broker.support.in_sync_leader import ONE, THREE, TWO, Leader, led
from tests.broker.support.session_world import SessionWorld, in_session
from tidelog.broker.replication.follower.partition import Phase
from tidelog.broker.replication.in_sync import invariants
from tidelog.broker.replication.leader.partition import failed_news
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

KEY = key_of(0)


def asking() -> Leader:
    """A leader that asks for broker 3 beside the two that are in sync."""
    leader = Leader(1, 2)
    leader.at(3, 100)
    leader.asked(1, 2, 3)
    invariants.check(leader.set)
    return leader


def forgets_whom_it_asked_for(leader: Leader) -> None:
    leader.set._asked.clear()


def keeps_a_change_of_an_epoch_before(leader: Leader) -> None:
    leader.set.led = led(1, 2, partition_epoch=12)


def tells_its_owner_of_too_few(leader: Leader) -> None:
    leader.set._told = ((), 2)


def counts_before_it_tells(leader: Leader) -> None:
    leader.set._round_counted = leader.set._round + 1


def believes_a_position_of_another_epoch(leader: Leader) -> None:
    leader.set.led = led(1, 2, epoch=6)


def asks_for_one_that_never_said_anything(leader: Leader) -> None:
    leader.set._change = None
    leader.set._asked.clear()
    leader.set._coming[THREE] = 0
    del leader.set._positions[THREE]


def lets_in_one_that_is_in_sync(leader: Leader) -> None:
    leader.set._coming[TWO] = 0


def leads_out_of_sync(leader: Leader) -> None:
    leader.set._broker_id = THREE
    assert ONE in leader.set.led.in_sync


@pytest.mark.parametrize(
    "spoil",
    [
        forgets_whom_it_asked_for,
        keeps_a_change_of_an_epoch_before,
        tells_its_owner_of_too_few,
        counts_before_it_tells,
        believes_a_position_of_another_epoch,
        asks_for_one_that_never_said_anything,
        lets_in_one_that_is_in_sync,
        leads_out_of_sync,
    ],
)
def test_a_spoilt_in_sync_set_is_seen(spoil: Callable[[Leader], None]) -> None:
    leader = asking()
    spoil(leader)
    with pytest.raises(AssertionError):
        invariants.check(leader.set)


def leader_sent_what_is_not_there(world: SessionWorld) -> None:
    world.leader_session.partitions[KEY].next_offset = Offset(99)


def leader_confirmed_what_it_did_not_send(world: SessionWorld) -> None:
    world.leader_session.partitions[KEY].confirmed_offset = Offset(99)


def leader_heard_of_an_answer_to_come(world: SessionWorld) -> None:
    world.leader_session.confirmed_answer = world.leader_session.answer_sequence + 1


def leader_keeps_an_answer_that_is_confirmed(world: SessionWorld) -> None:
    world.leader_session.with_batches.append(world.leader_session.confirmed_answer)


def leader_holds_something_without_a_session(world: SessionWorld) -> None:
    world.leader_session.is_full_start_wanted = True


def leader_serves_what_it_does_not_hold(world: SessionWorld) -> None:
    world.leader_session.ready[key_of(7)] = None


def leader_holds_what_it_has_sent_away(world: SessionWorld) -> None:
    error = TidelogError(ErrorCode.NOT_LEADER, tried="pull", happened="another one leads")
    world.leader_session.replies.append(failed_news(KEY, LeaderEpoch(1), error))


def follower_forgets_to_name(world: SessionWorld) -> None:
    world.follower_session.partitions[KEY].phase = Phase.WANTED


def follower_forgets_to_try_again(world: SessionWorld) -> None:
    world.follower_session.partitions[KEY].phase = Phase.REFUSED


def follower_tells_more_than_it_has(world: SessionWorld) -> None:
    world.follower_session.partitions[KEY].told = (Offset(99), Offset(0))


def follower_confirms_what_has_not_come(world: SessionWorld) -> None:
    world.follower_session.confirmed_answer = world.follower_session.last_answer + 1


def follower_writes_an_answer_twice(world: SessionWorld) -> None:
    session = world.follower_session
    session.last_answer += 1
    session._unwritten.append([session.last_answer, -1])


def follower_moves_what_it_does_not_follow(world: SessionWorld) -> None:
    world.follower_session._moved[key_of(7)] = None


def follower_takes_out_what_it_holds(world: SessionWorld) -> None:
    world.follower_session._removed[KEY] = None


@pytest.mark.parametrize(
    "spoil",
    [
        leader_sent_what_is_not_there,
        leader_confirmed_what_it_did_not_send,
        leader_heard_of_an_answer_to_come,
        leader_keeps_an_answer_that_is_confirmed,
        leader_holds_something_without_a_session,
        leader_serves_what_it_does_not_hold,
        leader_holds_what_it_has_sent_away,
        follower_forgets_to_name,
        follower_forgets_to_try_again,
        follower_tells_more_than_it_has,
        follower_confirms_what_has_not_come,
        follower_writes_an_answer_twice,
        follower_moves_what_it_does_not_follow,
        follower_takes_out_what_it_holds,
    ],
)
def test_a_spoilt_session_is_seen(spoil: Callable[[SessionWorld], None]) -> None:
    world = in_session()
    world.check()
    spoil(world)
    with pytest.raises(AssertionError):
        world.check()
