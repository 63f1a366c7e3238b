"""The token bucket of the catch-up lanes."""

from tidelog.broker.replication.follower.throttle import Throttle

SECOND_NS = 1_000_000_000


def test_without_a_rate_nothing_waits() -> None:
    throttle = Throttle()
    throttle.spend(1 << 40, 0)
    assert throttle.wait_ns(0) == 0
    assert throttle.answer_bytes(1_000) == 1_000


def test_what_was_copied_is_paid_for_with_time() -> None:
    throttle = Throttle()
    throttle.set_rate(1_000)
    now_ns = 10 * SECOND_NS
    throttle.spend(500, now_ns)
    assert throttle.wait_ns(now_ns) == SECOND_NS * 4 // 10, "a tenth of a second was saved up"
    assert throttle.wait_ns(now_ns + SECOND_NS) == 0


def test_over_a_long_time_the_rate_is_kept_whatever_the_pieces() -> None:
    throttle = Throttle()
    throttle.set_rate(1_000)
    now_ns, copied = SECOND_NS, 0
    while now_ns < 101 * SECOND_NS:
        wait_ns = throttle.wait_ns(now_ns)
        if wait_ns:
            now_ns += wait_ns
            continue
        throttle.spend(70, now_ns)
        copied += 70
    assert 99_000 <= copied <= 101_000


def test_a_rate_that_is_lifted_ends_the_wait() -> None:
    throttle = Throttle()
    throttle.set_rate(1)
    throttle.spend(1_000, SECOND_NS)
    throttle.set_rate(0)
    assert throttle.wait_ns(SECOND_NS) == 0


def test_an_answer_is_small_where_the_rate_is() -> None:
    throttle = Throttle()
    throttle.set_rate(100_000)
    assert throttle.answer_bytes(1 << 20) == 10_000
