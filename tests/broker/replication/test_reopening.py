"""When a log that could not be read is tried again."""

import pytest

from tidelog.broker.replication.repair.reopening import (
    FORGOTTEN_MS,
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    Waiting,
    next_wait,
)


def test_each_wait_is_longer_up_to_a_bound() -> None:
    now_ms, waits = 0, []
    waiting: Waiting | None = None
    for _ in range(8):
        waiting = next_wait(waiting, now_ms)
        waits.append(waiting.wait_ms)
        now_ms = waiting.at_ms
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


@pytest.mark.parametrize("late_ms", [0, FORGOTTEN_MS])
def test_one_that_stops_again_soon_after_it_was_opened_waits_longer(late_ms: int) -> None:
    first = next_wait(None, 0)
    assert next_wait(first, first.at_ms + late_ms).wait_ms == 2 * WAIT_MS_MIN


def test_one_that_was_in_order_for_long_begins_with_the_shortest_wait() -> None:
    last = Waiting(at_ms=50_000, wait_ms=WAIT_MS_MAX)
    now_ms = last.at_ms + FORGOTTEN_MS + 1
    assert next_wait(last, now_ms) == Waiting(now_ms + WAIT_MS_MIN, WAIT_MS_MIN)
