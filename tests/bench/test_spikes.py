"""The small decisions inside the spikes: crossovers, and waiting for a child with a deadline."""

import re
import sys

import msgspec
import pytest

from bench.processes import Child, ChildFailedError
from bench.spike.fsync import _crossover
from bench.spike.parking import Case
from tests.support.waiting import HANG_SECONDS


def _flush_ms(each: dict[int, float], syncfs: dict[int, float]) -> dict[int, dict[str, float]]:
    return {n: {"fdatasync each": each[n], "syncfs": syncfs[n]} for n in each}


def test_the_crossover_is_where_syncfs_stays_the_faster_one() -> None:
    each = {1: 0.3, 2: 0.6, 4: 0.3, 8: 2.4, 16: 5.0}
    syncfs = {1: 0.4, 2: 0.5, 4: 0.4, 8: 0.6, 16: 0.9}
    assert _crossover(_flush_ms(each, syncfs)) == "8 files"


def test_a_syncfs_that_never_wins_has_no_crossover() -> None:
    assert _crossover(_flush_ms({1: 0.3, 2: 0.6}, {1: 9.0, 2: 9.0})) == "no count measured"


def test_a_case_names_its_way_of_waiting_and_counts_its_connections() -> None:
    case = Case(consumers=5_001, streams_per_connection=100, wait_ms=0, ping_ms=5_000)
    assert (case.name, case.connections) == ("parked, ping 5000 ms", 51)
    assert ("grpc.keepalive_time_ms", 5_000) in case.channel_options


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a child in these tests."""

    value: int


def test_a_result_is_read_from_its_own_line_and_not_from_a_traceback() -> None:
    program = "print('    print(\"result x\")'); print('result {\"value\": 7}')"
    with Child([sys.executable, "-S", "-c", program]) as child:
        assert child.result(Figure, timeout_seconds=HANG_SECONDS) == Figure(value=7)


def test_a_child_that_ends_without_the_line_says_what_it_said_last() -> None:
    with (
        Child([sys.executable, "-S", "-c", "print('out of luck')"]) as child,
        pytest.raises(ChildFailedError, match=re.escape("out of luck")),
    ):
        child.wait_line("listening", timeout_seconds=HANG_SECONDS)


def test_a_child_that_fails_is_not_read_as_a_result() -> None:
    with (
        Child([sys.executable, "-S", "-c", "raise SystemExit(3)"]) as child,
        pytest.raises(ChildFailedError, match="exit code 3"),
    ):
        child.wait_end(timeout_seconds=HANG_SECONDS)


def test_a_silent_child_is_given_up_at_the_deadline() -> None:
    with (
        Child([sys.executable, "-S", "-c", "import signal; signal.pause()"]) as child,
        pytest.raises(ChildFailedError, match="said no 'listening' in time"),
    ):
        child.wait_line("listening", timeout_seconds=0.01)
