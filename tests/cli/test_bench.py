"""`tidelog bench`: what samples come to, and the three measurements against a real node."""

import json
import signal
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.running import (
    ANNOUNCED,
    announced_command,
    assert_three_lines,
    cli_environment,
    run_cli,
)
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.cli.bench import report as bench_report
from tidelog.cli.bench.arguments import producer_options, shares
from tidelog.cli.bench.client import payload
from tidelog.cli.bench.load import Done
from tidelog.cli.bench.run import together


def test_a_percentile_is_a_time_that_was_measured() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    found = bench_report.percentiles(hundred)
    assert found == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 100.0, "max": 100.0}
    assert set(bench_report.percentiles([7.0]).values()) == {7.0}
    assert bench_report.percentiles([]) == {}


def test_clients_are_added_up_by_the_slowest_clock() -> None:
    done = [
        Done(records=300, seconds=2.0, samples_ms=[1.0, 3.0]),
        Done(records=100, seconds=4.0, samples_ms=[2.0]),
    ]
    report = together("produce", 1000, done, "from send() to the acknowledgement")
    shown = bench_report.as_json(report)
    assert shown["records_per_second"] == 100.0
    assert shown["bytes_per_second"] == 100_000.0
    assert shown["samples"] == 3
    assert bench_report.as_text(report).splitlines() == [
        "produce: 400 records of 1000 bytes in 4.00 s with 2 clients",
        "100 records/s, 0.1 MB/s",
        "from send() to the acknowledgement, ms (3 samples):",
        " p50   p95   p99  p99.9   max",
        "2.00  3.00  3.00   3.00  3.00",
    ]


def test_no_record_is_lost_where_clients_share_a_number() -> None:
    assert shares(10, 3) == [4, 3, 3]
    assert shares(2, 3) == [1, 1, 0]
    assert shares(None, 2) == [None, None]


def test_what_is_typed_with_x_goes_before_the_flags() -> None:
    arguments = Namespace(acks="all", linger=3, compression="lz4", option=[("linger.ms", "9")])
    assert producer_options(arguments) == [
        ("linger.ms", "9"),
        ("acks", "all"),
        ("compression_type", "lz4"),
    ]


def test_a_payload_has_its_length_and_is_the_same_each_time() -> None:
    for length in (1, 16, 100, 4_099):
        assert len(payload(length)) == length
    assert payload(64) == payload(64)
    assert payload(4_096)[:8] != payload(4_096)[16:24]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for the whole file."""
    with running_node(tmp_path_factory.mktemp("node")) as started:
        yield started


def measured(node: NodeProcess, *arguments: str) -> dict[str, Any]:
    done = run_cli("bench", *arguments, "--json", bootstrap=node.bootstrap)
    assert (done.code, done.err) == (0, "")
    shown: dict[str, Any] = json.loads(done.out)
    return shown


def topics(node: NodeProcess) -> list[str]:
    return run_cli("topic", "list", "-q", bootstrap=node.bootstrap).out.decode().split()


@pytest.mark.slow
@pytest.mark.live
def test_each_measurement_counts_every_record_and_leaves_no_topic(node: NodeProcess) -> None:
    stored = measured(node, "produce", "-n", "2501", "--clients", "2", "-z", "zstd")
    assert stored["records"] == 2501
    assert stored["clients"] == 2
    assert list(stored["milliseconds"]) == ["p50", "p95", "p99", "p99.9", "max"]
    paced = measured(node, "produce", "-n", "100", "--rate", "2000", "--acks", "1")
    assert paced["samples"] == 100
    assert paced["seconds"] >= 99 / 2000
    read = measured(node, "consume", "-n", "3000", "--size", "200")
    assert read["records"] == 3000
    both = measured(node, "end-to-end", "-n", "101", "--rate", "500", "--linger", "0")
    assert both["records"] == both["samples"] == 101
    assert both["milliseconds"]["p50"] > 0
    assert topics(node) == []


@pytest.mark.slow
@pytest.mark.live
def test_a_record_that_cannot_be_stored_ends_a_measurement_in_three_lines(
    node: NodeProcess,
) -> None:
    arguments = ("bench", "produce", "--size", "2000000", "-n", "1")
    done = run_cli(*arguments, bootstrap=node.bootstrap)
    assert done.code == 1
    assert_three_lines(done.err, why="max_request_size", hint="smaller")
    assert topics(node) == []


@pytest.mark.slow
@pytest.mark.live
def test_ctrl_c_ends_a_measurement_at_once_and_names_the_topic_that_stays(
    node: NodeProcess,
) -> None:
    bench = subprocess.Popen(
        announced_command("bench", "produce", "--seconds", "60", "--rate", "10"),
        env=cli_environment(node.bootstrap),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert bench.stdout is not None
    assert bench.stdout.readline() == ANNOUNCED.decode()

    def made() -> list[str]:
        assert bench.poll() is None
        return topics(node)

    found = wait_until(made)
    bench.send_signal(signal.SIGINT)
    _, told = bench.communicate(timeout=HANG_SECONDS)
    assert bench.returncode == 130
    assert told == f"interrupted; the topic stays: tidelog topic delete {found[0]} --execute\n"


@pytest.mark.parametrize(
    ("arguments", "why", "hint"),
    [
        (("produce", "--dev", "-b", "localhost:1"), "both", "a node of its own"),
        (("consume", "--clients", "3", "--partitions", "2"), "3 clients", "--partitions"),
        (("end-to-end", "--clients", "3", "--partitions", "2"), "more clients", "--partitions"),
        (("consume", "--rate", "3"), "no option `--rate`", "--help"),
        (("produce", "--size", "3"), "from 16 to", "tidelog bench produce"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_anything_is_started(
    arguments: tuple[str, ...], why: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelog.cli.main import main

    assert main(["bench", *arguments]) == 2
    assert_three_lines(capsys.readouterr().err, why=why, hint=hint)
