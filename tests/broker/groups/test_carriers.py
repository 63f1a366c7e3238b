"""Members that a broker is for a client: they are none any more when the broker is gone."""

from tests.broker.groups.support.house import House, key, topic
from tidelog.broker.groups.state.answers import DescribeGroupAnswer
from tidelog.broker.groups.state.messages import (
    BrokerLife,
    BrokersChanged,
    BrokerState,
    Caller,
    DescribeGroup,
)
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.wire.calls.groups import AWAY_EPOCH, Heartbeat, HeartbeatAnswer, Subscription
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import BrokerEpoch, BrokerId


def life(broker_id: int, epoch: int) -> BrokerLife:
    return BrokerLife(BrokerId(broker_id), BrokerEpoch(epoch))


def carried(carrier: BrokerLife | None) -> Caller:
    """A broker that calls for a client, or a client."""
    return Caller(carrier=carrier)


def beat(member: str, epoch: int = 0, instance: str = "") -> Heartbeat:
    """Of a member that reads topic a."""
    return Heartbeat(
        group="g",
        member_id=member,
        member_epoch=epoch,
        group_instance_id=instance,
        subscription=None if epoch else Subscription(topics=("a",)),
        owned=None if epoch else (),
    )


def show(house: House, *brokers: tuple[int, int, bool]) -> None:
    """Id, epoch, whether it is fenced."""
    house.step(
        BrokersChanged(
            brokers={
                BrokerId(broker_id): BrokerState(BrokerEpoch(epoch), is_fenced)
                for broker_id, epoch, is_fenced in brokers
            },
            now_ms=house.now_ms,
            wall_ms=house.wall_ms,
        )
    )


def members(house: House) -> list[str]:
    found = house.ask(DescribeGroup(group="g"), DescribeGroupAnswer)
    return [each.member_id for each in found.members]


def group_of_three() -> House:
    """Carried by brokers 1 and 2, and a client that is a member itself."""
    house = House(topic("a", 3))
    show(house, (1, 5, False), (2, 6, False))
    for member, carrier in (("m1", life(1, 5)), ("m2", life(2, 6)), ("own", None)):
        house.ask(beat(member), HeartbeatAnswer, carried(carrier))
    house.pass_time(200)
    return house


def test_a_fenced_broker_is_no_member_any_more_and_what_it_owned_is_free_at_once() -> None:
    house = House(topic("a", 3))
    show(house, (1, 5, False), (2, 6, False))
    first = house.ask(beat("m1"), HeartbeatAnswer, carried(life(1, 5)))
    assert first.assignment is not None
    assert len(first.assignment) == 3
    second = house.ask(beat("m2"), HeartbeatAnswer, carried(life(2, 6)))
    show(house, (1, 5, True), (2, 6, False))
    house.pass_time(200)
    answer = house.ask(beat("m2", epoch=second.member_epoch), HeartbeatAnswer, carried(life(2, 6)))
    assert answer.assignment is not None
    assert [each.key for each in answer.assignment] == [key("a", number) for number in range(3)]
    assert members(house) == ["m2"]
    (left,) = house.core.notes.take_departures()
    assert left.reason is DepartureReason.BROKER_GONE


def test_a_broker_that_has_begun_anew_carries_nothing_from_before() -> None:
    house = group_of_three()
    show(house, (1, 7, False), (2, 6, False))
    assert members(house) == ["m2", "own"]
    house.ask(beat("m4"), HeartbeatAnswer, carried(life(1, 7)))
    assert members(house) == ["m2", "m4", "own"]


def test_a_view_older_than_the_registration_removes_nobody() -> None:
    house = group_of_three()
    house.ask(beat("m4"), HeartbeatAnswer, carried(life(1, 7)))
    show(house, (1, 5, True), (2, 6, False))
    assert members(house) == ["m2", "m4", "own"]
    show(house, (2, 6, False))
    assert members(house) == ["m2", "m4", "own"], "of one that is not there nothing is known"


def test_who_carries_survives_a_failover() -> None:
    house = group_of_three()
    house.fail_over()
    assert members(house) == ["m1", "m2", "own"]
    show(house, (1, 5, True), (2, 6, True))
    assert members(house) == ["own"]


def test_a_static_member_keeps_its_place_for_its_session() -> None:
    house = House(topic("a", 3))
    show(house, (1, 5, False), (2, 6, False))
    house.ask(beat("m1", instance="i"), HeartbeatAnswer, carried(life(1, 5)))
    show(house, (1, 5, True), (2, 6, False))
    assert members(house) == ["m1"]
    house.ask(beat("m1", epoch=AWAY_EPOCH, instance="i"), HeartbeatAnswer, carried(life(1, 5)))
    again = house.ask(beat("m2", instance="i"), HeartbeatAnswer, carried(life(2, 6)))
    assert again.assignment is not None
    assert len(again.assignment) == 3


def test_nobody_joins_through_a_broker_that_counts_as_dead() -> None:
    house = group_of_three()
    show(house, (1, 5, True), (2, 6, False))
    late, carrier = beat("late"), carried(life(1, 5))
    assert house.refusal(late, carrier) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert members(house) == ["m2", "own"]
    show(house, (1, 5, False), (2, 6, False))
    house.ask(late, HeartbeatAnswer, carrier)
    assert members(house) == ["late", "m2", "own"]
