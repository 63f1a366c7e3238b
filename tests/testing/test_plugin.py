"""The pytest plugin: what its fixtures give, what they cost, what a hundred tests leave behind.

Each test runs a pytest of its own, in a process of its own.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.telling import Tell
from tests.support.waiting import HANG_SECONDS

PLUGIN_MS_MAX: Final = 50
"""Of an import of nothing: what every project pays whose environment holds Tidelog."""

pytestmark = pytest.mark.slow

NOTHING: Final = """
import sys

def test_nothing_but_the_plugin_is_imported(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("tidelog")
    found = sorted(name for name in sys.modules if name.split(".")[0] in ("tidelog", "grpc"))
    assert found == ["tidelog", "tidelog.testing", "tidelog.testing.plugin"], found
    assert "asyncio" not in sys.modules
"""
FIXTURES: Final = """
import pytest

def test_a_topic_of_its_own_is_written_and_read(tidelog_topic, tidelog_producer, tidelog_consumer):
    assert tidelog_topic.startswith("test_a_topic_of_its_own")
    tidelog_producer.send(tidelog_topic, b"1").get(10)
    assert next(tidelog_consumer).value == b"1"

@pytest.mark.parametrize("letter", ["a", "ä/b"])
def test_a_name_is_made_of_what_a_topic_may_hold(tidelog_topic, letter):
    assert tidelog_topic

@pytest.mark.tidelog(brokers=3)
class TestThree:
    @pytest.mark.tidelog(partitions=6, configs={"retention.ms": "60000"})
    def test_markers_of_test_and_class_add_up(self, tidelog_cluster, tidelog_topic):
        assert len(tidelog_cluster.nodes) == 3
        described = tidelog_cluster.admin().describe_topics([tidelog_topic])[0]
        assert (len(described.partitions), described.replication_factor) == (6, 3)
        assert described.configs["retention.ms"] == "60000"

    def test_a_test_may_kill_and_leave(self, tidelog_cluster):
        tidelog_cluster.kill(2)
        tidelog_cluster.pause(3)

    def test_the_next_one_finds_all_nodes_up(self, tidelog_cluster):
        states = [tidelog_cluster.state_of(node) for node in tidelog_cluster.nodes]
        assert states == ["running"] * 3

def test_the_setting_of_the_ini_file_holds_for_the_rest(tidelog_cluster):
    assert len(tidelog_cluster.nodes) == 2

@pytest.fixture(scope="session")
def application(tidelog_cluster):
    return tidelog_cluster.bootstrap

def test_a_session_fixture_may_stand_on_the_cluster(application):
    assert application.count(",") == 1
"""
MISTAKES: Final = """
import pytest

@pytest.mark.tidelog(broker=3)
def test_an_unknown_argument(tidelog_topic):
    pass

@pytest.mark.tidelog(3)
def test_an_argument_without_a_name(tidelog_topic):
    pass
"""
HUNDRED: Final = """
import gc, os, threading
import pytest

counts = []

def count():
    gc.collect()
    return (
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
    )

@pytest.mark.parametrize("number", range(100))
def test_one_of_a_hundred(number, tidelog_topic, tidelog_producer, tidelog_consumer):
    tidelog_producer.send(tidelog_topic, b"%d" % number)
    assert next(tidelog_consumer).value == b"%d" % number

@pytest.fixture(autouse=True)
def counted():
    counts.append(count())
    yield

def test_the_last_one_counts():
    # Threads of gRPC come and go; nothing grows with the number of tests.
    early, late = counts[20:40], counts[80:100]
    print("counts", "early", max(early), "late", min(late), max(late))
    for place in range(3):
        assert min(each[place] for each in late) <= max(each[place] for each in early) + 2, counts
"""


def run_pytest(folder: Path, tests: str, *options: str, ini: str = "") -> str:
    """The output of a pytest on these tests; whatever it leaves behind fails the test."""
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\n{ini}\n"
    )
    environment = {**os.environ, "TMPDIR": str(folder), "PYTEST_ADDOPTS": ""}
    environment.pop("PYTEST_XDIST_WORKER", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=HANG_SECONDS)[0]
    finally:
        process.kill()
    assert session_of(process.pid) == [], "no process of it is left"
    left = [each.name for each in folder.iterdir() if each.name.startswith("tidelog")]
    assert left == [], "no directory of it is left"
    return output


def session_of(leader: int) -> list[int]:
    """Processes of the session that this process had begun."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Behind the name in brackets: state, parent, group, session.
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == leader and after_name[0] != "Z":
                found.append(int(process.name))
    return found


def test_a_run_without_the_fixtures_imports_nothing_and_pays_nothing(
    tmp_path: Path, tell: Tell
) -> None:
    assert "1 passed" in run_pytest(tmp_path, NOTHING)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import pytest, tidelog.testing.plugin"],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    last = [line for line in done.stderr.splitlines() if "tidelog" in line]
    own_us = sum(int(re.split(r"[:|]", line)[1]) for line in last)
    tell(f"pytest plugin: importing it takes {own_us / 1000:.1f} ms")
    assert own_us < PLUGIN_MS_MAX * 1000, last


@pytest.mark.live
def test_fixtures_markers_and_the_setting_give_what_they_say(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, FIXTURES, ini="tidelog_brokers = 2")
    assert "8 passed" in output, output


def test_a_wrong_marker_is_refused_in_words(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, MISTAKES)
    assert "tidelog has no argument 'broker': it can be brokers, partitions" in output, output


@pytest.mark.live
def test_a_hundred_tests_leave_no_thread_descriptor_process_or_directory(
    tmp_path: Path, tell: Tell
) -> None:
    output = run_pytest(tmp_path, HUNDRED, "-s")
    assert "101 passed" in output, output
    tell("pytest plugin, 100 tests: " + re.findall(r"counts .*", output)[0])
