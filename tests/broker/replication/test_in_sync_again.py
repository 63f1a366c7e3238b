"""The leader's view of an in-sync set while its log is opened again."""

from tests.broker.replication.in_sync_leader import ONE, THREE, TWO, Leader, Log


def test_a_log_that_is_opened_again_goes_on_waiting_for_whoever_was_asked_for() -> None:
    leader = Leader(1, 2)
    leader.at(3, 100)
    change = leader.set.take_change(0)
    assert change is not None, "broker 3 has come near"
    leader.set.on_log(Log(100, 90))
    leader.perform(leader.set.on_image(leader.set.led, 0))
    assert leader.waits_for() == (TWO, THREE), "the controller may let it in any time"
    assert [broker for broker, _ in leader.counts[-1].positions] == [THREE]


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
