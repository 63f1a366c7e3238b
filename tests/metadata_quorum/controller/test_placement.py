"""Where replicas go: racks first, then hosts, then the least loaded; and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tidelog.metadata.settings.limits import REPLICAS_MAX
from tidelog.metadata_quorum.controller.placement.placement import (
    Candidate,
    Placement,
    place_partitions,
    validate_assignments,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId


def brokers(*places: str, loads: tuple[int, ...] = ()) -> list[Candidate]:
    """Candidates 1…n at `rack/host`."""
    return [
        Candidate(
            broker_id=BrokerId(number),
            rack=place.partition("/")[0],
            host=place.partition("/")[2],
            replica_count=loads[number - 1] if loads else 0,
        )
        for number, place in enumerate(places, 1)
    ]


def place(
    candidates: list[Candidate], partitions: int, factor: int, *, is_strict: bool = False
) -> Placement:
    """New partitions."""
    return place_partitions(
        candidates,
        partition_count=partitions,
        replication_factor=factor,
        tried="place",
        is_strict=is_strict,
    )


def test_replicas_stand_in_different_racks_before_anything_else() -> None:
    candidates = brokers("a/1", "a/2", "a/3", "b/4", "c/5", loads=(0, 0, 0, 900, 900))
    placed = place(candidates, 6, 3)
    racks = {candidate.broker_id: candidate.rack for candidate in candidates}
    assert all(len({racks[each] for each in replicas}) == 3 for replicas in placed.replicas)
    assert placed.warnings == ()


def test_replicas_stand_on_different_hosts_of_a_rack() -> None:
    placed = place(brokers("/m", "/m", "/m", "/n"), 8, 2)
    assert all(BrokerId(4) in replicas for replicas in placed.replicas)
    assert placed.warnings == ()


def test_the_least_loaded_broker_gets_what_is_left_over() -> None:
    placed = place(brokers("", "", "", loads=(7, 3, 5)), 1, 2)
    assert set(placed.replicas[0]) == {BrokerId(2), BrokerId(3)}


def test_a_placement_that_cannot_spread_warns_in_one_sentence_for_racks_and_one_for_hosts() -> None:
    placed = place(brokers("a/m", "a/m"), 3, 2)
    assert len(placed.warnings) == 2
    assert "3 of 3 partitions" in placed.warnings[0]
    assert "one rack" in placed.warnings[0]
    assert "one machine" in placed.warnings[1]


def test_brokers_without_a_rack_and_a_host_warn_of_nothing() -> None:
    assert place(brokers("", "", ""), 5, 3).warnings == ()


@pytest.mark.parametrize("factor", [0, 4, -1])
def test_more_replicas_than_brokers_are_refused(factor: int) -> None:
    with pytest.raises(TidelogError) as caught:
        place(brokers("", "", ""), 1, factor)
    error = clusters.raised(ErrorCode.INVALID_REPLICATION_FACTOR, caught)
    assert "3 brokers" in error.happened


def test_a_strict_placement_is_refused_where_another_one_warns() -> None:
    with pytest.raises(TidelogError) as caught:
        place(brokers("a/m", "a/n"), 1, 2, is_strict=True)
    error = clusters.raised(ErrorCode.INVALID_REPLICATION_FACTOR, caught)
    assert "placement.strict" in error.happened
    assert place(brokers("a/m", "b/n"), 1, 2, is_strict=True).warnings == ()


def test_new_partitions_of_a_topic_even_out_with_those_that_it_has() -> None:
    placed = place_partitions(
        brokers("", "", ""),
        partition_count=2,
        replication_factor=1,
        tried="place",
        existing=[(BrokerId(1),), (BrokerId(1),), (BrokerId(3),), (BrokerId(3),)],
    )
    assert placed.replicas == ((BrokerId(2),), (BrokerId(2),))


@pytest.mark.parametrize(
    ("assignments", "happened"),
    [
        ([[]], "1 to"),
        ([[1, 1]], "twice"),
        ([[1, 9]], "broker 9"),
        ([[1, 2], [3]], "different numbers"),
        ([list(range(1, REPLICAS_MAX + 2))], "1 to"),
    ],
)
def test_explicit_replicas_that_cannot_be_are_refused(
    assignments: list[list[int]], happened: str
) -> None:
    wanted = [[BrokerId(each) for each in replicas] for replicas in assignments]
    with pytest.raises(TidelogError) as caught:
        validate_assignments(brokers("", "", ""), wanted, tried="place")
    assert happened in clusters.raised(ErrorCode.INVALID_ARGUMENT, caught).happened


def test_explicit_replicas_in_one_rack_warn_or_are_refused_when_strict() -> None:
    candidates = brokers("a/1", "a/2", "b/3")
    wanted = [[BrokerId(1), BrokerId(2)]]
    assert len(validate_assignments(candidates, wanted, tried="place").warnings) == 1
    with pytest.raises(TidelogError) as caught:
        validate_assignments(candidates, wanted, tried="place", is_strict=True)
    clusters.raised(ErrorCode.INVALID_ARGUMENT, caught)


@given(
    places=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("mnop"), st.integers(0, 50)),
        min_size=1,
        max_size=9,
    ),
    partitions=st.integers(1, 20),
    factor=st.integers(1, 5),
)
def test_every_placement_is_distinct_spread_as_far_as_racks_go_and_even_in_leaders(
    places: list[tuple[str, str, int]], partitions: int, factor: int
) -> None:
    candidates = brokers(
        *(f"{rack}/{host}" for rack, host, _ in places), loads=tuple(load for _, _, load in places)
    )
    factor = min(factor, len(candidates))
    placed = place(candidates, partitions, factor).replicas
    assert placed == place(candidates, partitions, factor).replicas, "the same again"
    racks = {candidate.broker_id: candidate.rack for candidate in candidates}
    possible = min(factor, len(set(racks.values())))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[each] for each in replicas}) == possible
    leaders = [replicas[0] for replicas in placed]
    counts = [leaders.count(candidate.broker_id) for candidate in candidates]
    assert max(counts) - min(counts) <= 1
