"""The leader's view of an in-sync set where logs are opened again, and replicas placed again."""

from tests.broker.support.in_sync_leader import ONE, THREE, TWO, Leader, Log


def test_a_log_that_is_opened_again_goes_on_waiting_for_whoever_was_asked_for() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    change = leader.set.take_change(0)
    assert change is not None, "broker 3 has come near"
    leader.set.on_log(Log(100, 90))
    leader.perform(leader.set.on_image(leader.set.led, 0))
    assert leader.waits_for() == (TWO, THREE), "the controller may let it in any time"
    assert [at.broker_id for at in leader.counts[-1].positions] == [THREE]


def test_nobody_is_asked_for_before_the_owner_of_a_log_opened_again_waits_for_it() -> None:
    leader = Leader(1, 2)
    leader.is_owner_slow = True
    leader.at(3, 100)
    assert leader.set.has_news
    leader.set.on_log(Log(100, 90))
    leader.perform(leader.set.on_image(leader.set.led, 0))
    assert leader.set.take_change(0) is None
    leader.take_in()
    change = leader.set.take_change(0)
    assert change is not None
    assert [broker for broker, _ in change.members] == [ONE, TWO, THREE]


def test_a_replica_that_was_dropped_and_placed_again_does_not_come_by_what_the_old_one_had() -> (
    None
):
    leader = Leader(1, 2, 3)
    leader.at(2, 100)
    leader.at(3, 100)
    # At 11 broker 2 had no replica. The leader hears of 12 only.
    leader.image(1, 3, partition_epoch=12)
    assert leader.waits_for() == (THREE,)
    assert leader.asks() is None
    leader.at(2, 100, partition_epoch=11)
    assert leader.asks() is None
    leader.at(2, 0, partition_epoch=12)
    assert leader.asks() is None, "its log is empty"
    leader.at(2, 100, partition_epoch=12)
    leader.asked(1, 2, 3)


def test_whoever_is_on_the_way_in_says_at_each_partition_epoch_where_it_stands() -> None:
    leader = Leader(1, 2)
    leader.is_owner_slow = True
    leader.at(3, 100)
    leader.image(1, 2, partition_epoch=11)
    leader.take_in()
    assert leader.waits_for() == (TWO,)
    assert leader.asks() is None
    leader.at(3, 100)
    leader.take_in()
    assert leader.waits_for() == (TWO, THREE)
    leader.asked(1, 2, 3)


def test_a_follower_may_have_heard_of_a_partition_epoch_before_its_leader() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100, partition_epoch=12)
    leader.asked(1, 2, 3)
    leader.image(1, 2, partition_epoch=12)
    leader.asked(1, 2, 3)


def test_what_was_said_at_an_earlier_partition_epoch_and_comes_late_changes_nothing() -> None:
    leader = Leader(1, 2)
    leader.at(3, 40, partition_epoch=10)
    leader.at(3, 100, partition_epoch=9)
    position = leader.set.position(THREE)
    assert position is not None
    assert position.log_end_offset == 40
    assert leader.asks() is None


def test_a_new_process_that_has_said_nothing_at_this_partition_epoch_is_not_asked_for() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    assert leader.waits_for() == (TWO, THREE)
    leader.at(3, 100, broker_epoch=8, partition_epoch=9)
    leader.brokers.epochs[THREE] = 8
    assert leader.asks() is None


def test_members_count_by_what_they_said_before() -> None:
    leader = Leader(1, 2, 3)
    leader.at(2, 100)
    leader.at(3, 100)
    leader.image(1, 2, partition_epoch=11)
    assert leader.waits_for() == (TWO,)
    assert [at.broker_id for at in leader.counts[-1].positions] == [TWO]
