"""A client in another language, written from the .proto files alone, works against a real node.

Owns the example's set-up: its npm packages are installed beside it, exactly as its lock says.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.contract.descriptors import TOP
from tests.support.node import running_node
from tests.support.waiting import HANG_SECONDS

EXAMPLE = TOP / "examples/grpc/node"
LOCK = EXAMPLE / "package-lock.json"
LINES_MAX = 100
SERVED = ("Admin", "Fetch", "Metadata", "Produce", "Records")

pytestmark = [pytest.mark.slow, pytest.mark.live]


def missing(what: str) -> None:
    """Under CI=true a failure, elsewhere a skip."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def install(npm: str) -> None:
    """The packages, unless they are there as the lock says."""
    installed = EXAMPLE / "node_modules/.package-lock.json"
    if installed.is_file() and installed.stat().st_mtime >= LOCK.stat().st_mtime:
        return
    done = subprocess.run(
        [npm, "ci", "--no-progress"],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    if done.returncode:
        missing(f"npm ci failed, is its registry within reach? {done.stderr[-500:]}")


@pytest.fixture(scope="module")
def node_program() -> str:
    """Node, with the example's packages installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("no Node: put node (18 or newer) and npm on PATH")
    assert node is not None, "a missing program has ended the test"
    assert npm is not None, "a missing program has ended the test"
    # Another worker of the same run may be at it: npm empties the folder first.
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install(npm)
    return node


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real node, started for this test."""
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield node.bootstrap


def run_example(node: str, address: str) -> "subprocess.CompletedProcess[str]":
    """The example's output."""
    return subprocess.run(
        [node, "produce_fetch.js", address],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_a_node_client_lists_services_produces_fetches_and_is_refused_with_documented_errors(
    node_program: str, bootstrap: str
) -> None:
    done = run_example(node_program, bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for name in SERVED:
        assert f"service: tidelog.v1.{name}Service" in lines
    produced = [f"produced: offset {offset}" for offset in range(3)]
    fetched = [f"fetched: offset {at} {text}" for at, text in enumerate(("one", "two", "three"))]
    assert [line for line in lines if line.startswith(("produced", "fetched"))] == [
        *produced,
        *fetched,
    ]
    refused = [line for line in lines if line.startswith("refused: ")]
    assert [line.split(" | ")[0] for line in refused] == [
        "refused: in the answer ERROR_CODE_INVALID_TOPIC_NAME",
        "refused: NOT_FOUND ERROR_CODE_UNKNOWN_TOPIC",
        "refused: OUT_OF_RANGE ERROR_CODE_OFFSET_OUT_OF_RANGE",
    ]
    assert all("| hint: " in line and not line.endswith("hint: ") for line in refused)


def test_a_node_client_says_what_is_wrong_when_nobody_listens(node_program: str) -> None:
    done = run_example(node_program, "127.0.0.1:1")
    assert done.returncode == 1
    assert "UNAVAILABLE" in done.stderr


def test_the_example_stays_short() -> None:
    assert len((EXAMPLE / "produce_fetch.js").read_text().splitlines()) <= LINES_MAX


def test_the_example_pins_its_packages_and_its_lock_names_no_registry() -> None:
    package = (EXAMPLE / "package.json").read_text()
    versions = re.findall(r'"@grpc/[a-z-]+": "([^"]+)"', package)
    assert len(versions) == 2
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert '"resolved"' not in (EXAMPLE / "package-lock.json").read_text()
