"""Several clients at once, the threads of one process, and the slopes of a soak."""

import sys

import pytest

from bench import threads
from bench.interrupts import CALLS
from bench.lines import CLIENTS, kafka_lines, of_clients, pairs, tidelog_lines
from bench.processes import Child
from bench.soak import Sample, slope, warm
from bench.window import timed_together

TIMED = """
import sys
from bench.processes import print_result
from bench.table import Throughput
from bench.window import wait_let_go
wait_let_go()
print_result(Throughput(records=600, record_bytes=100, seconds=float(sys.argv[1])))
"""


class OneNode:
    """A node that is never started."""

    name = "nothing"
    nodes = 1
    bootstrap = ""
    pids: tuple[int, ...] = ()


def test_a_pair_has_as_many_clients_on_both_sides() -> None:
    by_key = {line.key: line for line in (*tidelog_lines("", 9), *kafka_lines("", 9))}
    compared = [
        (by_key[pair.ours].clients, by_key[pair.theirs].clients)
        for pair in pairs()
        if pair.ours in by_key and pair.theirs in by_key
    ]
    assert set(compared) == {(clients, clients) for clients in CLIENTS}


@pytest.mark.parametrize("kind", ["tidelog-1", "tidelog-bulk-all", "tidelog-read", "tidelog-table"])
def test_every_kind_of_line_has_a_peer_of_python_with_three_clients(kind: str) -> None:
    theirs = {pair.theirs for pair in pairs() if pair.ours == of_clients(kind, 3)}
    by_key = {line.key: line for line in kafka_lines("", 9)}
    assert any(by_key[key].client.startswith("confluent") for key in theirs & by_key.keys())


@pytest.mark.slow
def test_clients_that_are_let_go_at_once_count_for_the_longest_time() -> None:
    children = [Child([sys.executable, "-c", TIMED, seconds]) for seconds in ("2", "3")]
    try:
        done = timed_together(children)
    finally:
        for child in children:
            child.stop()
    assert (done.records, done.seconds) == (1_200, 3.0)


def test_threads_stand_beside_lines_that_exist() -> None:
    keys = {line.key for line in threads.lines(OneNode(), 8, 1.0)}  # type: ignore[arg-type]
    assert {key for pair in threads.PAIRS for key in pair} == keys


def test_a_slope_is_that_of_the_line_that_fits_best() -> None:
    assert slope([(0, 5.0), (1, 7.0), (2, 9.0)]) == pytest.approx(2.0)
    assert slope([(0, 5.0), (1, 6.0), (2, 5.0)]) == pytest.approx(0.0)
    assert slope([(0, 5.0)]) == 0.0


def test_the_beginning_of_a_soak_does_not_count_for_its_slope() -> None:
    samples = [
        Sample(at_seconds=30.0 * number, resident_bytes=1, descriptors=1, threads=1)
        for number in range(21)
    ]
    assert [each.at_seconds for each in warm(samples)][:1] == [150.0]


def test_a_poll_waits_at_a_node_that_answers() -> None:
    assert [name for name, each in CALLS.items() if not each.is_swallowed] == [
        name for name in CALLS if "no data" in name
    ]
