"""A real node in a process of its own, over a directory, at an address that stays.

Starts `tidelog dev`, kills it by its own process id, starts it again. Every wait has a deadline;
a node that does not start or stop in time raises with its log.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.wire.errors import ErrorCode, TidelogError

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 15.0
_LOG_TAIL_CHARACTERS: Final = 4_000


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
        self.bootstrap = self._wait_bootstrap(self._process)

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
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)
            raise self._failed("stop the node", f"it ran on for {STOP_SECONDS_MAX} s") from None
        finally:
            assert process.stdout is not None, "the node's output is read here"
            process.stdout.close()
            self._process = None
        return code

    def _wait_bootstrap(self, process: "subprocess.Popen[str]") -> str:
        """Read lines until the one that tells the address."""
        assert process.stdout is not None, "the node's output is read here"
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            ready, _, _ = select.select([process.stdout], [], [], 0.1)
            line = process.stdout.readline() if ready else ""
            if line.startswith("bootstrap: "):
                return line.removeprefix("bootstrap: ").strip()
            if not line and process.poll() is not None:
                break
        self._end(signal.SIGKILL)
        raise self._failed("start a node", "it told no address")

    def _failed(self, tried: str, happened: str) -> TidelogError:
        tail = self.log_text()[-_LOG_TAIL_CHARACTERS:]
        return TidelogError(
            ErrorCode.UNAVAILABLE, tried=tried, happened=f"{happened}; its log ends:\n{tail}"
        )
