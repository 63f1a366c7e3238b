"""Every partition to one subscriber; even; few moves; the same answer to the same question."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.groups.support.house import key, topic_id
from tidelog.broker.groups.assignors import range as range_assignor
from tidelog.broker.groups.assignors import uniform, uniform_mixed
from tidelog.broker.groups.assignors.types import Assignment, AssignorMember, Wanted
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

TOPICS = [topic_id(name) for name in "abcde"]
ASSIGNORS = [uniform.assign, uniform_mixed.assign, range_assignor.assign]


def wanted(
    subscriptions: list[tuple[TopicId, ...]],
    counts: dict[TopicId, int],
    former: Assignment | None = None,
) -> Wanted:
    members = [
        AssignorMember(f"m{at:02}", f"m{at:02}", tuple(sorted(topics)))
        for at, topics in enumerate(subscriptions)
    ]
    subscribed = {each: None for member in members for each in member.topics}
    return Wanted(
        members=members,
        partition_counts={each: counts[each] for each in sorted(subscribed) if counts.get(each)},
        former={name: dict.fromkeys(keys) for name, keys in (former or {}).items()},
    )


@st.composite
def questions(draw: st.DrawFn, *, is_equal: bool = False) -> Wanted:
    counts = {each: draw(st.integers(0, 7)) for each in TOPICS}
    some = st.lists(st.sampled_from(TOPICS), unique=True, min_size=1).map(tuple)
    size = draw(st.integers(1, 6))
    if is_equal:
        subscriptions = [draw(some)] * size
    else:
        subscriptions = [draw(some) for _ in range(size)]
    places = draw(st.lists(st.integers(0, 9), min_size=40, max_size=40))
    former: Assignment = {}
    everything = [PartitionKey(each, PartitionId(number)) for each in TOPICS for number in range(8)]
    for place, each in zip(places, everything, strict=True):
        former.setdefault(f"m{place:02}", []).append(each)
    return wanted(subscriptions, counts, former if draw(st.booleans()) else None)


def loads(assignment: Assignment) -> list[int]:
    return sorted(len(keys) for keys in assignment.values())


def moved(question: Wanted, assignment: Assignment) -> int:
    """Partitions that a member had, and that a present one has instead of it."""
    return sum(
        key in keys and key not in question.former.get(member_id, {})
        for member_id, keys in assignment.items()
        for former in question.former.values()
        for key in former
    )


def has_lighter_way(question: Wanted, assignment: Assignment) -> bool:
    """Whether a chain of hand-overs leads from a member to one with two partitions less."""
    topics = {member.member_id: member.topics for member in question.members}
    for start in assignment:
        reached, queue = {start: None}, [start]
        while queue:
            at = queue.pop()
            held = {each.topic_id for each in assignment[at]}
            for other in assignment:
                if other not in reached and any(each in held for each in topics[other]):
                    reached[other] = None
                    queue.append(other)
        if any(len(assignment[each]) <= len(assignment[start]) - 2 for each in reached):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("assign", ASSIGNORS)
@given(question=questions())
def test_every_partition_goes_to_one_subscriber(
    assign: Callable[[Wanted], Assignment], question: Wanted
) -> None:
    assignment = assign(question)
    assert list(assignment) == [each.member_id for each in question.members]
    topics = {member.member_id: member.topics for member in question.members}
    given_out = [each for keys in assignment.values() for each in keys]
    assert len(given_out) == len(dict.fromkeys(given_out))
    assert sorted(given_out) == sorted(
        PartitionKey(each, PartitionId(number))
        for each, count in question.partition_counts.items()
        for number in range(count)
    )
    for member_id, keys in assignment.items():
        assert all(each.topic_id in topics[member_id] for each in keys)
    assert assign(question) == assignment


@pytest.mark.slow
@given(question=questions())
def test_uniform_is_as_even_as_the_subscriptions_allow(question: Wanted) -> None:
    assert not has_lighter_way(question, uniform.assign(question))
    assert not has_lighter_way(question, uniform_mixed.assign(question))


@pytest.mark.slow
@given(question=questions(is_equal=True))
def test_equal_subscriptions_differ_by_one_at_most_and_move_the_fewest(question: Wanted) -> None:
    assignment = uniform.assign(question)
    numbers = loads(assignment)
    assert numbers[-1] - numbers[0] <= 1
    present = [each.member_id for each in question.members]
    still = {each for keys in assignment.values() for each in keys}
    had = sorted(
        (sum(each in still for each in question.former.get(name, {})) for name in present),
        reverse=True,
    )
    share, over = divmod(sum(numbers), len(present))
    kept_at_best = sum(min(each, share + (at < over)) for at, each in enumerate(had))
    kept = sum(
        each in question.former.get(name, {}) for name, keys in assignment.items() for each in keys
    )
    assert kept == kept_at_best


@pytest.mark.slow
@given(question=questions(is_equal=True))
def test_both_ways_to_be_uniform_are_equally_even(question: Wanted) -> None:
    assert loads(uniform.assign(question)) == loads(uniform_mixed.assign(question))


@pytest.mark.slow
@given(question=questions())
def test_an_assignment_that_is_even_stays(question: Wanted) -> None:
    first = uniform.assign(question)
    again = Wanted(
        members=question.members,
        partition_counts=question.partition_counts,
        former={name: dict.fromkeys(keys) for name, keys in first.items()},
    )
    second = uniform.assign(again)
    assert {name: sorted(keys) for name, keys in second.items()} == {
        name: sorted(keys) for name, keys in first.items()
    }


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(0, 2))
def test_mixed_subscriptions_move_few_beside_the_optimum(size: int, shift: int) -> None:
    """Against all assignments of six partitions that are as even."""
    counts = {TOPICS[0]: 4, TOPICS[1]: 2}
    kinds = [(TOPICS[0],), (TOPICS[0], TOPICS[1]), (TOPICS[1],)]
    subscriptions = [kinds[(at + shift) % 3] for at in range(size)] + [(TOPICS[0], TOPICS[1])]
    before = uniform_mixed.assign(wanted(subscriptions[:-1], counts))
    question = wanted(subscriptions, counts, before)
    assignment = uniform_mixed.assign(question)
    keys = [each for held in assignment.values() for each in held]
    takers = [
        [member.member_id for member in question.members if each.topic_id in member.topics]
        for each in keys
    ]
    fewest = len(keys)
    for choice in itertools.product(*takers):
        other: Assignment = {name: [] for name in assignment}
        for each, name in zip(keys, choice, strict=True):
            other[name].append(each)
        if loads(other) == loads(assignment):
            fewest = min(fewest, moved(question, other))
    assert moved(question, assignment) <= fewest + 1


def test_sixty_four_partitions_from_one_to_eight_to_three_move_as_few_as_can_be() -> None:
    counts = {TOPICS[0]: 64}
    former: Assignment = {}
    for size in [1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3]:
        question = wanted([(TOPICS[0],)] * size, counts, former)
        assignment = uniform.assign(question)
        assert loads(assignment)[-1] - loads(assignment)[0] <= 1
        if size > len(former) and former:
            assert moved(question, assignment) == 64 // size
        former = assignment


def test_range_keeps_partition_n_of_topics_with_one_count_together() -> None:
    counts = {TOPICS[0]: 5, TOPICS[1]: 5, TOPICS[2]: 2}
    assignment = range_assignor.assign(wanted([tuple(TOPICS[:3])] * 2, counts))
    assert [each.partition for each in assignment["m00"] if each.topic_id == TOPICS[0]] == [0, 1, 2]
    for keys in assignment.values():
        numbers = [
            [each.partition for each in keys if each.topic_id == topic] for topic in TOPICS[:2]
        ]
        assert numbers[0] == numbers[1]


def test_range_gives_members_their_places_by_name() -> None:
    """A static member that comes back under another member id gets the same partitions."""
    members = [AssignorMember("x", "i1", (TOPICS[0],)), AssignorMember("b", "i2", (TOPICS[0],))]
    question = Wanted(members=members, partition_counts={TOPICS[0]: 3}, former={})
    assert range_assignor.assign(question) == {
        "x": [key("a", 0), key("a", 1)],
        "b": [key("a", 2)],
    }
