"""A client in another language, written from the .proto files alone, works against a real node.

Owns the example's set-up: its npm packages are installed beside it, exactly as its lock says.
"""

import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.descriptors import TOP

EXAMPLE = TOP / "examples/grpc/node"
LINES_MAX = 100
INSTALL_TIMEOUT_S = 300
START_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d+)\b")
SERVED = ("Admin", "Fetch", "Metadata", "Produce", "Records")

pytestmark = [pytest.mark.slow, pytest.mark.live]


def missing(what: str) -> None:
    """Under CI=true a failure, elsewhere a skip."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def node_program() -> str:
    """Node, with the example's packages installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("no Node: put node (18 or newer) and npm on PATH")
    assert node is not None, "a missing program has ended the test"
    assert npm is not None, "a missing program has ended the test"
    installed = EXAMPLE / "node_modules/.package-lock.json"
    lock = EXAMPLE / "package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        done = subprocess.run(
            [npm, "ci", "--no-progress"],
            cwd=EXAMPLE,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            missing(f"npm ci failed, is its registry within reach? {done.stderr[-500:]}")
    return node


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real node, started for this test."""
    folder = tmp_path_factory.mktemp("node")
    command = ["-m", "tidelog", "dev", "--port", "0", "--data-dir", str(folder / "data")]
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        yield wait_address(process, folder / "stderr")
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        assert process.stdout is not None, "the process was started with a pipe"
        process.stdout.close()


def wait_address(process: "subprocess.Popen[str]", stderr: Path) -> str:
    """What the node prints once it can be reached."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None, "the process was started with a pipe"
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    seen = []
    deadline = time.monotonic() + START_TIMEOUT_S
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if line is None:
            break
        seen.append(line)
        found = ADDRESS.search(line)
        if found and found[1] != "0":
            return f"127.0.0.1:{found[1]}"
    raise AssertionError(f"the node printed no address: {''.join(seen)}{stderr.read_text()}")


def run_example(node: str, address: str) -> "subprocess.CompletedProcess[str]":
    """The example's output."""
    return subprocess.run(
        [node, "produce_fetch.js", address],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
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
