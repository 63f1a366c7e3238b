"""Replicas of a partition in any order of events: acknowledged is never lost."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.support.replica_group import BROKERS, Group
from tidelog.metadata.settings.of_topics import TopicSettings

BROKER = st.sampled_from(BROKERS)
STEP = st.one_of(
    st.tuples(st.just("produce")),
    st.tuples(st.just("produce")),
    st.tuples(st.just("work"), BROKER, st.sampled_from(["write", "flush", "flush", "cut"])),
    st.tuples(st.just("work"), BROKER, st.sampled_from(["write", "flush", "tick", "roll"])),
    st.tuples(st.just("fetch"), BROKER, st.integers(1, 3)),
    st.tuples(st.just("fetch"), BROKER, st.integers(1, 3)),
    st.tuples(st.just("tell"), BROKER),
    st.tuples(st.just("hear"), BROKER),
    st.tuples(st.just("pass"), BROKER),
    st.tuples(st.just("pass"), BROKER),
    st.tuples(st.just("learn"), BROKER),
    st.tuples(st.sampled_from(["elect", "send_to"]), BROKER),
    st.tuples(st.sampled_from(["shrink", "ask"]), BROKER, BROKER),
    st.tuples(st.sampled_from(["expand"]), BROKER),
    st.tuples(st.just("send_again")),
    st.tuples(st.just("work"), BROKER, st.just("full")),
    st.tuples(st.just("trim"), BROKER, st.floats(0, 1)),
    st.tuples(st.just("die"), BROKER, st.booleans(), st.floats(0, 1)),
)


def play(group: Group, step: tuple[object, ...]) -> None:
    """One event."""
    match step:
        case ("produce",):
            group.produce()
        case ("send_to", int(number)):
            group.send_to(number)
        case ("send_again",):
            group.send_again()
        case ("trim", int(number), float(share)):
            group.trim(number, share)
        case ("work", int(number), str(what)):
            group.work(number, what)
        case ("fetch", int(number), int(count)):
            group.fetch(number, count)
        case ("tell", int(number)):
            group.tell_position(number)
        case ("hear", int(number)):
            group.hear_position(number)
        case ("pass", int(number)):
            # What usually happens, so that stories get far.
            for each in BROKERS:
                group.work(each, "write")
                group.work(each, "flush")
            group.fetch(number, 2)
            group.work(number, "write")
            group.work(number, "flush")
            group.tell_position(number)
            group.hear_position(group.view.leader)
        case ("elect", int(number)):
            group.elect(number)
        case ("learn", int(number)):
            group.learn(number)
        case ("shrink", int(number), int(other)):
            group.shrink(number, other)
        case ("ask", int(number), int(other)):
            group.ask_to_expand(number, other)
        case ("expand", int(number)):
            group.expand(number)
        case ("die", int(number), bool(is_machine), float(keeps)):
            group.die(number, is_machine=is_machine, keeps=keeps)
        case _:
            raise AssertionError(f"{step} is no event")


def tell_story(steps: list[tuple[object, ...]], topic: TopicSettings) -> Group:
    """All of it, and its happy end."""
    group = Group(topic)
    for step in steps:
        play(group, step)
        group.check()
    group.heal()
    return group


SYNC = TopicSettings(in_sync_replicas_min=2)
TOPICS = st.sampled_from(
    [SYNC, TopicSettings(in_sync_replicas_min=2, is_flush_sync=False), TopicSettings()]
)
SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@given(st.lists(STEP, max_size=60), TOPICS)
@settings(SETTINGS, max_examples=30)
def test_replicas_agree_and_lose_nothing_that_was_acknowledged(
    steps: list[tuple[object, ...]], topic: TopicSettings
) -> None:
    tell_story(steps, topic)


@pytest.mark.slow
@given(st.lists(STEP, min_size=40, max_size=200), TOPICS)
@settings(SETTINGS, max_examples=400)
def test_replicas_agree_and_lose_nothing_in_long_stories(
    steps: list[tuple[object, ...]], topic: TopicSettings
) -> None:
    tell_story(steps, topic)
