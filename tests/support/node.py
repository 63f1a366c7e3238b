"""A real node in a process of its own, on an ephemeral port, over a directory of the test's.

`NodeProcess` starts `tidelog dev`, kills it with SIGKILL, starts it again at the same address
on the same directory. Every wait has a deadline; the node's log is part of a failure's message.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0


class NodeProcess:
    """One node. `bootstrap` is its address, the same after a restart."""

    def __init__(
        self,
        directory: Path,
        *,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.log_file = directory / "node.log"
        self.bootstrap = ""
        self._arguments = arguments
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "the node is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it serves."""
        assert not self.is_running, "the node runs already"
        port = self.bootstrap.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "tidelog", "dev", "--port", port]
        command += ["--data-dir", str(self.data_dir), *self._arguments]
        with self.log_file.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        self.bootstrap = self._wait_bootstrap()

    def kill(self) -> None:
        """SIGKILL: no marker, no flush, no goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the orderly end; the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill if it runs, then start at the same address."""
        if self.is_running:
            self.kill()
        self.start()

    def log_text(self) -> str:
        """What the node has logged so far, over all its starts."""
        return self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None, "the node is not running"
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
            raise AssertionError(
                f"the node did not stop within {STOP_SECONDS} s\n{self.log_text()}"
            ) from None
        finally:
            assert process.stdout is not None, "the node's output is read here"
            process.stdout.close()
            self._process = None
        return code

    def _wait_bootstrap(self) -> str:
        """Read lines until the one that tells the address."""
        process = self._process
        assert process is not None, "the node was just started"
        assert process.stdout is not None, "the node's output is read here"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            ready, _, _ = select.select([process.stdout], [], [], 0.1)
            line = process.stdout.readline() if ready else ""
            if line.startswith("bootstrap: "):
                return line.removeprefix("bootstrap: ").strip()
            if not line and process.poll() is not None:
                break
        self._end(signal.SIGKILL)
        raise AssertionError(f"the node did not start\n{self.log_text()}")


@contextmanager
def running_node(
    directory: Path,
    *,
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[NodeProcess]:
    """A started node, killed at the end."""
    node = NodeProcess(directory, arguments=arguments, environment=environment)
    node.start()
    try:
        yield node
    finally:
        if node.is_running:
            node.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node for one test: `from tests.support.node import NodeProcess, node`."""
    with running_node(tmp_path) as started:
        yield started
