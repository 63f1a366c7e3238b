"""The list of invariants sees what it is there to see."""

import pytest
from msgspec.structs import replace

from tests.broker.groups.support.house import House, key, topic
from tidelog.broker.groups.state.invariants import GroupView, MemberView, Told, check, check_step
from tidelog.broker.groups.state.messages import Asked, Tick
from tidelog.wire.calls.groups import Heartbeat, HeartbeatAnswer, Subscription
from tidelog.wire.ids import PartitionKey

A0, A1 = key("a", 0), key("a", 1)


def beat(
    member: str, epoch: int = 0, group: str = "g", owned: tuple[PartitionKey, ...] | None = None
) -> Heartbeat:
    """A heartbeat."""
    return Heartbeat(
        group=group,
        member_id=member,
        member_epoch=epoch,
        owned=owned,
        subscription=Subscription(topics=("a",)) if epoch == 0 else None,
    )


def asked(told: Heartbeat | Tick) -> Told:
    """As a core is told it."""
    if isinstance(told, Heartbeat):
        return Asked(request=told, request_id=1, now_ms=0, wall_ms=0)
    return told


def test_the_invariants_see_two_owners() -> None:
    house = House(topic("a", 2))
    house.ask(beat("m1"), HeartbeatAnswer)
    house.pass_time(200)
    house.ask(beat("m2"), HeartbeatAnswer)
    house.core.groups["g"].members["m2"].assigned = {key("a", 0): 1}
    with pytest.raises(AssertionError, match="belongs to m1 and m2"):
        check(house.core.groups)


@pytest.mark.parametrize(
    ("told", "after", "complaint"),
    [
        (beat("m1", 2, owned=(A1,)), {"assigned": {A1: 2}, "revoking": {}}, ""),
        (beat("m1", 0), {"assigned": {A1: 3}, "revoking": {}, "epoch": 3}, ""),
        (beat("m1", -2), {"assigned": {}, "revoking": {}}, ""),
        (beat("m1", 2), {"assigned": {}, "revoking": {A0: 1, A1: 2}}, ""),
        (beat("m1", 2), {"epoch": 1}, "member_epoch fell"),
        (beat("m1", 2), {"assigned": {A1: 1}}, "has epoch 1 after 2"),
        (beat("m1", 2), {"assigned": {}}, "went without having been given up"),
        (beat("m1", 2), {"revoking": {}}, "went without having been given up"),
        (beat("m1", 2), {"assigned": {A1: 3}, "epoch": 3}, "went without having been given up"),
        (beat("m1", 2, owned=(A0, A1)), {"assigned": {}}, "went without having been given up"),
        (beat("m1", 2), {"assigned": {A0: 1, A1: 2}, "revoking": {}}, "is its own again"),
        (beat("m2", 2, owned=()), {"assigned": {}}, "changed behind its back"),
        (beat("m1", 0, group="h"), {"assigned": {}}, "changed behind its back"),
        (Tick(now_ms=0, wall_ms=0), {"revoking": {}}, "changed behind its back"),
        (Tick(now_ms=0, wall_ms=0), {"is_away": True}, "changed behind its back"),
    ],
)
def test_the_invariants_see_what_a_step_takes_from_a_living_member(
    told: Heartbeat | Tick, after: dict[str, object], complaint: str
) -> None:
    """m1 owns a-1 since its present epoch, 2, and is to give up a-0."""
    before = MemberView(2, "", {A1: 2}, {A0: 1}, is_away=False)
    old = {"g": GroupView(3, 3, {"m1": before})}
    new = {"g": GroupView(3, 3, {"m1": replace(before, **after)})}
    if complaint:
        with pytest.raises(AssertionError, match=complaint):
            check_step(old, new, asked(told))
    else:
        check_step(old, new, asked(told))


@pytest.mark.parametrize(
    ("assigned", "complaint"), [({A0: 1}, ""), ({A0: 1, A1: 2}, "given more"), ({A0: 2}, "given")]
)
def test_the_invariants_let_an_absent_member_lose_and_not_gain(
    assigned: dict[PartitionKey, int], complaint: str
) -> None:
    before = MemberView(2, "i", {A0: 1, key("a", 2): 1}, {}, is_away=True)
    old = {"g": GroupView(3, 3, {"m1": before})}
    new = {"g": GroupView(3, 3, {"m1": replace(before, assigned=assigned)})}
    if complaint:
        with pytest.raises(AssertionError, match=complaint):
            check_step(old, new, Tick(now_ms=0, wall_ms=0))
    else:
        check_step(old, new, Tick(now_ms=0, wall_ms=0))
