"""What time it is in the cluster, by the clocks that the controller has heard."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.broker_reports import ClockState
from tidelog.metadata_quorum.controller.brokers.clock import SAMPLE_MS, ClusterClock, electorate

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000
"""What a right clock shows when the controller's ticks stand at 0."""
TOLERANCE_MS = 60_000


def heard(off_ms: dict[int, int], now_ms: int = 5_000) -> ClusterClock:
    """Each node told its clock at that moment: right, but for so much."""
    clock = ClusterClock()
    for node_id, each in off_ms.items():
        clock.see(node_id, NOON_MS + now_ms + each, now_ms)
    return clock


def states(clock: ClusterClock, nodes: set[int], now_ms: int = 5_000) -> dict[int, ClockState]:
    """What each node is told."""
    return {
        each: clock.judge(each, nodes, now_ms, skew_max_ms=TOLERANCE_MS).state
        for each in sorted(nodes)
    }


def test_a_clock_that_is_a_day_ahead_is_off_and_the_others_are_right() -> None:
    clock = heard({1: 0, 2: DAY_MS, 3: 40})
    right, off = ClockState.RIGHT, ClockState.OFF
    assert states(clock, {1, 2, 3}) == {1: right, 2: off, 3: right}
    verdict = clock.judge(2, {1, 2, 3}, 5_000, skew_max_ms=TOLERANCE_MS)
    assert verdict.skew_ms == DAY_MS - 40, "the median is the third node's clock"


def test_samples_of_different_moments_are_compared_by_the_ticks_between_them() -> None:
    clock = ClusterClock()
    clock.see(1, NOON_MS + 1_000, 1_000)
    clock.see(2, NOON_MS + 9_000, 9_000)
    clock.see(3, NOON_MS + 4_000, 4_000)
    assert set(states(clock, {1, 2, 3}, 9_000).values()) == {ClockState.RIGHT}


def test_a_minority_is_not_asked_whoever_else_is_down() -> None:
    clock = heard({2: DAY_MS})
    unknown, nobody = ClockState.UNKNOWN, ClockState.NO_MAJORITY
    assert states(clock, {1, 2, 3}) == {1: unknown, 2: nobody, 3: unknown}


def test_two_wrong_clocks_of_three_that_live_are_no_majority_of_five() -> None:
    clock = heard({1: 0, 2: DAY_MS, 3: DAY_MS})
    told = states(clock, {1, 2, 3, 4, 5})
    assert {told[each] for each in (1, 2, 3)} == {ClockState.NO_MAJORITY}


def test_of_two_that_disagree_neither_is_right() -> None:
    told = states(heard({1: 0, 2: DAY_MS}), {1, 2})
    assert set(told.values()) == {ClockState.NO_MAJORITY}
    assert set(states(heard({1: 0, 2: 500}), {1, 2}).values()) == {ClockState.RIGHT}


def test_an_only_node_is_alone() -> None:
    assert states(heard({1: DAY_MS}), {1}) == {1: ClockState.ALONE}


def test_a_controller_that_is_no_broker_is_something_to_compare_with() -> None:
    nodes = electorate([1], 9)
    assert set(states(heard({1: 0, 9: 20}), set(nodes)).values()) == {ClockState.RIGHT}
    assert set(states(heard({1: DAY_MS, 9: 0}), set(nodes)).values()) == {ClockState.NO_MAJORITY}
    assert electorate([1, 2], 2) == {1, 2}


def test_a_clock_that_was_not_heard_for_long_has_no_say() -> None:
    clock = heard({1: 0, 2: 0}, now_ms=0)
    clock.see(3, NOON_MS + SAMPLE_MS + 1, SAMPLE_MS + 1)
    assert states(clock, {1, 2, 3}, SAMPLE_MS)[1] is ClockState.RIGHT
    assert states(clock, {1, 2, 3}, SAMPLE_MS + 1)[3] is ClockState.NO_MAJORITY
    assert states(clock, {1, 2, 3}, SAMPLE_MS + 1)[1] is ClockState.UNKNOWN


def test_another_process_of_a_node_is_heard_anew() -> None:
    clock = heard({1: 0, 2: DAY_MS, 3: 0})
    clock.forget(2)
    assert states(clock, {1, 2, 3})[2] is ClockState.UNKNOWN
    clock.see(2, NOON_MS + 5_000, 5_000)
    assert states(clock, {1, 2, 3})[2] is ClockState.RIGHT


def test_an_operator_is_shown_what_a_lone_node_says_of_itself() -> None:
    clock = ClusterClock()
    clock.see(1, NOON_MS + DAY_MS, 0, off_own_ms=DAY_MS)
    shown = clock.show(1, {1}, 3_000, skew_max_ms=TOLERANCE_MS)
    assert (shown.state, shown.skew_ms) == (ClockState.HELD, DAY_MS)
    assert shown.wall_ms == NOON_MS + DAY_MS + 3_000
    assert clock.show(2, {1, 2}, 3_000, skew_max_ms=TOLERANCE_MS).state is ClockState.UNKNOWN


def test_who_is_off_and_who_is_right_can_be_listed() -> None:
    clock, nodes = heard({1: 0, 2: -DAY_MS, 3: 0}), {1, 2, 3}
    assert clock.in_state(ClockState.OFF, nodes, 5_000, skew_max_ms=TOLERANCE_MS) == {2}
    assert clock.in_state(ClockState.RIGHT, nodes, 5_000, skew_max_ms=TOLERANCE_MS) == {1, 3}


@given(
    count=st.integers(2, 9),
    wrong_ms=st.lists(st.integers(-(10**12), 10**12), max_size=4),
    deaf=st.sets(st.integers(0, 8)),
    jitter_ms=st.lists(st.integers(-20_000, 20_000), min_size=9, max_size=9),
)
def test_no_minority_of_wrong_clocks_is_ever_believed(
    count: int, wrong_ms: list[int], deaf: set[int], jitter_ms: list[int]
) -> None:
    """Whichever nodes are down: a clock that counts as right is near those of the majority."""
    wrong = dict(enumerate(wrong_ms[: (count - 1) // 2]))
    off_ms = {node_id: wrong.get(node_id, jitter_ms[node_id]) for node_id in range(count)}
    clock = heard({node_id: each for node_id, each in off_ms.items() if node_id not in deaf})
    told = states(clock, set(range(count)))
    for node_id, state in told.items():
        if state is ClockState.RIGHT:
            assert abs(off_ms[node_id]) <= 2 * TOLERANCE_MS + 20_000
    if not wrong and not deaf:
        assert set(told.values()) == {ClockState.RIGHT}
