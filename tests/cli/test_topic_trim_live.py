"""`tidelog topic trim` against a real node: what it foresees, what it does, what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import run_cli
from tests.support.node import NodeProcess, running_node

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for the whole file; each test has topics of its own."""
    directory: Path = tmp_path_factory.mktemp("node")
    with running_node(directory) as started:
        yield started


def filled(node: NodeProcess, topic: str) -> None:
    """Ten records in its one partition."""
    lines = b"".join(b"%d\n" % number for number in range(10))
    assert run_cli("topic", "create", topic, bootstrap=node.bootstrap).code == 0
    assert run_cli("produce", topic, bootstrap=node.bootstrap, stdin=lines).code == 0


def test_without_execute_it_tells_what_would_go_and_nothing_goes(node: NodeProcess) -> None:
    filled(node, "seen")
    for _ in range(2):
        done = run_cli("topic", "trim", "seen:0=4", bootstrap=node.bootstrap)
        assert done.code == 0
        assert done.out.decode().splitlines() == [
            "seen:0 would begin at offset 4, now 0: 4 offsets go",
            "nothing was done; add --execute",
        ]


def test_with_execute_the_records_below_the_offset_are_gone(node: NodeProcess) -> None:
    filled(node, "cut")
    done = run_cli("topic", "trim", "cut:0=4", "--execute", bootstrap=node.bootstrap)
    assert (done.code, done.out, done.err) == (0, b"cut:0 begins at offset 4\n", "")
    left = run_cli("consume", "cut", "-o", "beginning", "-e", bootstrap=node.bootstrap)
    assert left.out.split() == [b"%d" % number for number in range(4, 10)]


def test_json_tells_each_partition_and_a_refusal_fails_the_command(node: NodeProcess) -> None:
    filled(node, "told")
    words = ("topic", "trim", "told:0=end", "--execute", "--json")
    done = run_cli(*words, bootstrap=node.bootstrap)
    assert done.code == 0
    assert json.loads(done.out) == [
        {
            "topic": "told",
            "partition": 0,
            "before_offset": -1,
            "log_start_offset": 10,
            "is_trimmed": True,
            "error": None,
        }
    ]
    for execute in ((), ("--execute",)):
        refused = run_cli(
            "topic", "trim", "told:0=11", "--json", *execute, bootstrap=node.bootstrap
        )
        assert refused.code == 1
        (row,) = json.loads(refused.out)
        assert (row["error"], row["log_start_offset"]) == ("OFFSET_OUT_OF_RANGE", -1)
        assert row["is_trimmed"] is False
