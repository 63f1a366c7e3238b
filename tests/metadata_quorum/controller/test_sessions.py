"""When a broker counts as gone: silence, hints, new controllers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata_quorum.controller.brokers.sessions import Sessions
from tidelog.wire.ids import BrokerEpoch, BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)
EPOCH, NEXT_EPOCH = BrokerEpoch(5), BrokerEpoch(6)


def opened() -> Sessions:
    """A table in which broker 1 registered at 1,000 ms."""
    sessions = Sessions()
    sessions.open(ONE, EPOCH, 1_000)
    return sessions


def test_silence_ends_a_session_after_its_timeout_and_not_before() -> None:
    sessions = opened()
    assert sessions.next_deadline_ms() == 10_000
    assert sessions.tick(9_999) == []
    (expired,) = sessions.tick(10_000)
    assert (expired.broker_id, expired.epoch, expired.silent_ms) == (ONE, EPOCH, 9_000)
    assert not expired.is_hinted
    assert sessions.tick(10_000) == [], "a session ends once"
    assert sessions.next_deadline_ms() is None


def test_a_heartbeat_begins_the_silence_anew() -> None:
    sessions = opened()
    assert sessions.heard(ONE, EPOCH, 9_000)
    assert sessions.tick(10_000) == []
    assert sessions.tick(18_000) != []


def test_a_death_hint_ends_a_session_after_500_ms() -> None:
    sessions = opened()
    sessions.hint(ONE, EPOCH, 2_000)
    assert not sessions.is_living(ONE, 2_000)
    assert sessions.tick(2_499) == []
    (expired,) = sessions.tick(2_500)
    assert expired.is_hinted


def test_a_second_hint_does_not_put_the_end_off() -> None:
    sessions = opened()
    sessions.hint(ONE, EPOCH, 2_000)
    sessions.hint(ONE, EPOCH, 2_400)
    assert sessions.tick(2_500) != []


def test_whoever_is_heard_of_after_a_hint_lives() -> None:
    sessions = opened()
    sessions.hint(ONE, EPOCH, 2_000)
    assert sessions.heard(ONE, EPOCH, 2_400)
    assert sessions.is_living(ONE, 2_500)
    assert sessions.tick(2_500) == []
    assert sessions.next_deadline_ms() == 11_400


def test_a_hint_about_an_older_process_says_nothing_of_the_newer_one() -> None:
    sessions = opened()
    sessions.open(ONE, NEXT_EPOCH, 1_500)
    sessions.hint(ONE, EPOCH, 2_000)
    assert sessions.tick(9_000) == []


def test_a_heartbeat_of_an_older_process_does_not_count() -> None:
    sessions = opened()
    sessions.open(ONE, NEXT_EPOCH, 1_500)
    assert not sessions.heard(ONE, EPOCH, 9_000)
    (expired,) = sessions.tick(10_500)
    assert expired.epoch == NEXT_EPOCH


def test_a_new_controller_gives_everybody_a_fresh_session() -> None:
    sessions = opened()
    sessions.hint(ONE, EPOCH, 2_000)
    sessions.begin([(ONE, EPOCH), (TWO, NEXT_EPOCH)], 5_000)
    assert sessions.tick(13_999) == []
    assert sessions.last_contact_ms(ONE, 6_000) == -1, "not since this controller began"
    assert [each.broker_id for each in sessions.tick(14_000)] == [ONE, TWO]


def test_the_last_contact_is_told() -> None:
    sessions = opened()
    assert sessions.last_contact_ms(ONE, 1_250) == 250
    assert sessions.last_contact_ms(TWO, 1_250) == -1
    session = sessions.session(ONE)
    assert session is not None
    assert session.is_heard


def test_a_closed_session_does_not_expire() -> None:
    sessions = opened()
    sessions.close(ONE)
    sessions.close(ONE)
    assert sessions.tick(50_000) == []


def test_a_heartbeat_is_due_several_times_within_the_timeout() -> None:
    assert Sessions().heartbeat_interval_ms == 1_500
    assert Sessions(session_timeout_ms=3, hint_timeout_ms=1).heartbeat_interval_ms == 1


def test_monotonic_time_that_falls_is_a_bug() -> None:
    sessions = opened()
    with pytest.raises(AssertionError, match="fell"):
        sessions.tick(999)


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["heard", "hint", "tick"]), st.integers(0, 3), st.integers(0, 900)
        ),
        max_size=60,
    )
)
def test_nobody_expires_who_was_heard_of_within_the_hint_timeout(
    events: list[tuple[str, int, int]],
) -> None:
    sessions = Sessions(session_timeout_ms=2_000, hint_timeout_ms=300)
    now_ms, heard_ms = 0, {}
    for kind, number, passed_ms in events:
        now_ms += passed_ms
        broker = BrokerId(number)
        if kind == "heard":
            assert sessions.heard(broker, EPOCH, now_ms)
            heard_ms[broker] = now_ms
        elif kind == "hint":
            sessions.hint(broker, EPOCH, now_ms)
        else:
            for expired in sessions.tick(now_ms):
                silent_ms = now_ms - heard_ms.pop(expired.broker_id)
                assert silent_ms >= (300 if expired.is_hinted else 2_000)
            deadline_ms = sessions.next_deadline_ms()
            assert deadline_ms is None or deadline_ms > now_ms, "what was due is gone"


def test_silence_while_the_controller_was_held_up_does_not_count() -> None:
    sessions = opened()
    sessions.open(TWO, EPOCH, 1_000)
    sessions.hint(TWO, EPOCH, 1_100)
    sessions.excuse(30_000)
    assert sessions.tick(30_000) == []
    assert [each.broker_id for each in sessions.tick(30_500)] == [TWO]
    assert sessions.tick(38_999) == []
    assert [each.broker_id for each in sessions.tick(39_000)] == [ONE]
