"""A lone node in a process of its own, over a directory, at an address that stays.

Starts `tidelog dev`, kills it by its own process id, starts it again. Every wait has a deadline;
a node that does not start or stop in time raises with its log.
"""

import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.chaos.live.processes.process import Process

START_SECONDS_MAX: Final = 30.0


class NodeProcess(Process):
    """One node. `bootstrap` is its address, the same after a restart."""

    def __init__(
        self,
        directory: Path,
        *,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("lone node", directory / "node.log")
        self.data_dir = directory / "data"
        self.bootstrap = ""
        self._arguments = arguments
        self._environment = dict(environment or {})

    def start(self) -> None:
        """Start and wait until it serves."""
        port = self.bootstrap.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "tidelog", "dev", "--port", port]
        command += ["--data-dir", str(self.data_dir), *self._arguments]
        with self.log_file.open("ab") as log:
            process = self._begin(command, self._environment, output=subprocess.PIPE, errors=log)
        self.bootstrap = self._wait_bootstrap(process)

    def restart(self) -> None:
        """Kill if it runs, then start at the same address."""
        if self.is_running:
            self.kill()
        self.start()

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
        raise self.failed("start a node", "it told no address")
