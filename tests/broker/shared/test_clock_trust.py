"""Whether a node may delete by its clock."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.shared.clock_trust import VERDICT_MS, ClockTrust, StoredTime
from tidelog.metadata.broker_reports import ClockState, ClockVerdict, Reading

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000
"""What a right clock shows at uptime 0."""
TOLERANCE_MS = 60_000
ALONE = ClockVerdict(state=ClockState.ALONE, skew_max_ms=TOLERANCE_MS)


def at(uptime_ms: int, off_ms: int = 0) -> Reading:
    """A moment, seen by a clock that is right but for so much."""
    return Reading(NOON_MS + uptime_ms + off_ms, uptime_ms)


def judged(off_ms: int) -> ClockVerdict:
    """By a controller that knows a cluster's clock."""
    is_right = abs(off_ms) <= TOLERANCE_MS
    state = ClockState.RIGHT if is_right else ClockState.OFF
    return ClockVerdict(state=state, skew_ms=off_ms, skew_max_ms=TOLERANCE_MS)


def stored(uptime_ms: int = 0, boot_id: str = "this boot") -> StoredTime:
    """What a node has kept of a moment."""
    return StoredTime(wall_ms=NOON_MS + uptime_ms, uptime_ms=uptime_ms, boot_id=boot_id)


def test_before_the_first_verdict_nothing_is_deleted() -> None:
    trust = ClockTrust()
    assert not trust.may_expire(at(0))
    assert trust.state(at(0)) is ClockState.UNKNOWN
    assert trust.now_ms(at(0)) == NOON_MS


def test_a_right_clock_is_believed_until_the_verdict_lapses() -> None:
    trust = ClockTrust()
    trust.hear(judged(200), at(0, 200))
    assert trust.may_expire(at(VERDICT_MS, 200))
    assert not trust.may_expire(at(VERDICT_MS + 1, 200))
    assert trust.now_ms(at(VERDICT_MS + 1, 200)) == NOON_MS + VERDICT_MS + 201


def test_a_clock_a_day_ahead_deletes_nothing_and_stamps_the_clusters_time() -> None:
    trust = ClockTrust()
    trust.hear(judged(DAY_MS), at(0, DAY_MS))
    assert trust.state(at(10, DAY_MS)) is ClockState.OFF
    assert not trust.may_expire(at(10, DAY_MS))
    assert trust.now_ms(at(10, DAY_MS)) == NOON_MS + 10


def test_a_clock_that_is_put_right_counts_at_once_and_its_wrong_start_is_forgotten() -> None:
    trust = ClockTrust()
    trust.hear(judged(DAY_MS), at(0, DAY_MS))
    assert trust.may_expire(at(10))
    assert trust.now_ms(at(10)) == NOON_MS + 10


def test_a_jump_between_two_verdicts_is_seen_at_once() -> None:
    trust = ClockTrust()
    trust.hear(judged(0), at(0))
    for off_ms in (DAY_MS, -DAY_MS, TOLERANCE_MS + 1):
        assert not trust.may_expire(at(10, off_ms))
        assert trust.now_ms(at(10, off_ms)) == NOON_MS + 10
    assert trust.may_expire(at(10, TOLERANCE_MS))


def test_without_a_majority_nothing_is_deleted_and_the_last_line_is_kept() -> None:
    trust = ClockTrust()
    trust.hear(judged(0), at(0))
    trust.hear(ClockVerdict(state=ClockState.NO_MAJORITY, skew_max_ms=TOLERANCE_MS), at(100))
    assert not trust.may_expire(at(100))
    assert trust.now_ms(at(100, DAY_MS)) == NOON_MS + 100


def test_an_old_controller_that_says_nothing_of_clocks_lets_nothing_be_deleted() -> None:
    trust = ClockTrust()
    trust.hear(ClockVerdict(), at(0))
    assert not trust.may_expire(at(0))


def test_a_clock_that_shows_1970_before_anybody_was_asked_stamps_the_stored_time() -> None:
    trust = ClockTrust(stored=stored())
    assert trust.now_ms(Reading(4_000, 9_000)) == NOON_MS


def test_before_anybody_was_asked_the_time_goes_on_from_what_was_stored() -> None:
    trust = ClockTrust(stored=stored(), boot_id="this boot")
    trust.hear(ClockVerdict(state=ClockState.NO_MAJORITY, skew_max_ms=TOLERANCE_MS), at(5_000))
    assert trust.now_ms(at(9_000, DAY_MS)) == NOON_MS + 9_000
    assert trust.now_ms(at(9_000, -DAY_MS)) == NOON_MS + 9_000
    assert not trust.may_expire(at(9_000))


def test_a_node_whose_clock_is_off_keeps_the_clusters_time_for_its_next_start() -> None:
    for off_ms in (DAY_MS, -20_000 * DAY_MS):
        before = ClockTrust(boot_id="this boot")
        before.hear(judged(off_ms), at(0, off_ms))
        kept = before.to_store(at(5_000, off_ms))
        assert kept == stored(5_000)
        after = ClockTrust(stored=kept, boot_id="this boot")
        nobody = ClockVerdict(state=ClockState.NO_MAJORITY, skew_max_ms=TOLERANCE_MS)
        after.hear(nobody, at(9_000, off_ms))
        assert after.now_ms(at(9_000, off_ms)) == NOON_MS + 9_000
        after.hear(ALONE, at(9_000, off_ms))
        assert after.state(at(9_000, off_ms)) is ClockState.HELD, "known to be off before"


def test_what_a_node_knew_once_is_not_kept_as_the_time_that_it_is() -> None:
    trust = ClockTrust(boot_id="this boot")
    trust.hear(judged(0), at(0))
    assert trust.to_store(at(VERDICT_MS + 1)) is None
    trust.hear(ClockVerdict(state=ClockState.NO_MAJORITY, skew_max_ms=TOLERANCE_MS), at(20_000))
    assert trust.to_store(at(20_000)) is None


def test_the_first_start_of_a_lone_node_believes_its_clock() -> None:
    trust = ClockTrust(boot_id="this boot")
    trust.hear(ALONE, at(0))
    assert trust.may_expire(at(0))
    assert trust.to_store(at(5_000)) == stored(5_000)


def test_a_lone_node_that_stood_still_for_a_week_goes_on_if_its_machine_was_up() -> None:
    trust = ClockTrust(stored=stored(), boot_id="this boot")
    trust.hear(ALONE, at(7 * DAY_MS))
    assert trust.may_expire(at(7 * DAY_MS))


def test_a_lone_node_that_starts_a_day_ahead_holds_until_its_clock_returns() -> None:
    trust = ClockTrust(stored=stored(), boot_id="this boot")
    trust.hear(ALONE, at(5_000, DAY_MS))
    assert trust.state(at(5_000, DAY_MS)) is ClockState.HELD
    assert trust.skew_ms(at(5_000, DAY_MS)) == DAY_MS
    assert trust.now_ms(at(6_000, DAY_MS)) == NOON_MS + 6_000
    assert trust.to_store(at(5_000, DAY_MS)) is None, "a wrong time is not what the next start has"
    trust.hear(ALONE, at(10_000, DAY_MS))
    assert trust.state(at(10_000, DAY_MS)) is ClockState.HELD
    trust.hear(ALONE, at(15_000))
    assert trust.may_expire(at(15_000))


def test_after_a_restart_of_the_machine_a_week_away_waits_for_an_operator() -> None:
    trust = ClockTrust(stored=stored(), boot_id="another boot")
    week = Reading(NOON_MS + 7 * DAY_MS, 9_000)
    trust.hear(ALONE, week)
    assert trust.state(week) is ClockState.HELD
    trust.hear(ALONE, week, confirmed_ms=NOON_MS)
    assert trust.state(week) is ClockState.HELD, "another time was confirmed"
    trust.hear(ALONE, week, confirmed_ms=week.wall_ms + 900)
    assert trust.may_expire(week)
    later = Reading(week.wall_ms + DAY_MS, week.uptime_ms + 1_000)
    trust.hear(ALONE, later, confirmed_ms=week.wall_ms + 900)
    assert trust.state(later) is ClockState.HELD, "a confirmation is of one time"


def test_after_a_quick_restart_of_the_machine_nobody_is_asked() -> None:
    trust = ClockTrust(stored=stored(), boot_id="another boot")
    soon = Reading(NOON_MS + TOLERANCE_MS, 20_000)
    trust.hear(ALONE, soon)
    assert trust.may_expire(soon)


def test_a_lone_node_whose_operator_says_so_judges_for_itself() -> None:
    trust = ClockTrust(stored=stored(), boot_id="another boot", is_own_judge=True)
    week = Reading(NOON_MS + 7 * DAY_MS, 9_000)
    trust.hear(ALONE, week)
    assert trust.may_expire(week)


def test_a_lone_clock_behind_its_stored_time_holds_at_the_start() -> None:
    trust = ClockTrust(stored=stored(), boot_id="another boot")
    begun = Reading(4_000, 9_000)
    trust.hear(ALONE, begun)
    assert trust.state(begun) is ClockState.HELD
    assert trust.now_ms(begun) == NOON_MS
    right = Reading(NOON_MS + 30_000, 12_000)
    trust.hear(ALONE, right)
    assert trust.may_expire(right), "somebody has set it"


def test_a_lone_clock_that_is_set_back_at_work_is_followed_and_not_forward_again() -> None:
    trust = ClockTrust()
    trust.hear(ALONE, at(0, DAY_MS))
    trust.hear(ALONE, at(5_000))
    assert trust.may_expire(at(5_000))
    assert trust.now_ms(at(5_000)) == NOON_MS + 5_000
    trust.hear(ALONE, at(9_000, DAY_MS))
    assert trust.state(at(9_000, DAY_MS)) is ClockState.HELD


def test_quartz_that_drifts_for_years_is_followed() -> None:
    trust = ClockTrust(boot_id="this boot")
    for minute in range(5_000):
        # 40 ppm, a hundred times as fast.
        reading = at(minute * 10_000, minute * 40)
        trust.hear(ALONE, reading)
        assert trust.may_expire(reading)


def test_a_node_that_loses_its_others_keeps_the_line_of_the_cluster() -> None:
    trust = ClockTrust()
    trust.hear(judged(0), at(0))
    trust.hear(ALONE, at(1_000, DAY_MS))
    assert trust.state(at(1_000, DAY_MS)) is ClockState.HELD


@given(
    offs=st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=30),
    step_ms=st.integers(1, VERDICT_MS),
)
def test_whoever_may_expire_is_near_the_clusters_clock(offs: list[int], step_ms: int) -> None:
    """Whatever the wall clock does between verdicts, and whichever verdict was the last one."""
    trust = ClockTrust()
    for number, off_ms in enumerate(offs):
        now = at(number * step_ms, off_ms)
        if trust.may_expire(now):
            assert abs(off_ms) <= TOLERANCE_MS
            assert abs(trust.now_ms(now) - (NOON_MS + now.uptime_ms)) <= TOLERANCE_MS
        if number % 3 == 0:
            trust.hear(judged(off_ms), now)
