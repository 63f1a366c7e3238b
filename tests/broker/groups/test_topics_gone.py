"""A topic that is deleted while the next target of its group is put off."""

from tests.broker.groups.support.house import House, topic
from tests.broker.groups.test_core import beat
from tidelog.wire.calls.groups import HeartbeatAnswer, Subscription

ALL = Subscription(topics=("a", "b", "c"))


def with_all_topics() -> House:
    house = House(topic("a", 1), topic("b", 1), topic("c", 1))
    first = house.ask(beat(subscription=ALL), HeartbeatAnswer)
    assert told(first) == {"a", "b", "c"}
    house.pass_time(5_000)
    return house


def told(answer: HeartbeatAnswer) -> set[str]:
    assert answer.assignment is not None
    return {each.topic_name for each in answer.assignment}


def test_no_partition_is_told_without_the_name_of_its_topic() -> None:
    house = with_all_topics()
    house.delete_topic("b")
    house.pass_time(10)
    house.delete_topic("c")
    group = house.core.groups["g"]
    assert group.assignment_epoch == group.epoch, "it is not put off behind the first"
    assert told(house.ask(beat(epoch=1), HeartbeatAnswer)) == {"a"}


def test_nor_that_of_a_topic_that_no_member_means_any_more() -> None:
    house = with_all_topics()
    house.set_topic("a", 2)
    house.pass_time(10)
    only_a = Subscription(topics=("a",))
    answer = house.ask(beat(epoch=1, subscription=only_a), HeartbeatAnswer)
    group = house.core.groups["g"]
    assert group.assignment_epoch < group.epoch, "put off"
    house.delete_topic("c")
    epoch = answer.member_epoch
    assert "" not in told(house.ask(beat(epoch=epoch), HeartbeatAnswer))
