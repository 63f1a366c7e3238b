"""A node in a process of its own, ended by its own process id only. Every end has a deadline.

Owns the process, its log and what is said when it does not do what it should: an error ends with
the node's log.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tidelog.wire.errors import ErrorCode, TidelogError

END_SECONDS_MAX: Final = 20.0
LOG_TAIL_CHARACTERS: Final = 3_000


class Process:
    """One node, over a log file that outlives its processes."""

    def __init__(self, name: str, log_file: Path) -> None:
        self._name = name
        self.log_file = log_file
        self._process: subprocess.Popen[str] | None = None
        self._is_paused = False

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended; a paused one runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped with SIGSTOP."""
        return self._is_paused

    def kill(self) -> None:
        """SIGKILL: no marker, no flush, no goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the orderly end; the exit code."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: alive to the kernel, silent to everybody."""
        os.kill(self.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False

    def wait_ended(self, seconds_max: float = END_SECONDS_MAX) -> int:
        """Until it ends by itself; the exit code."""
        try:
            return self._running().wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise self.failed("wait for the node's own end", "it runs on") from None

    def log_text(self) -> str:
        """What it has said so far, over all its starts."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def failed(self, tried: str, happened: str) -> TidelogError:
        """An error that ends with the node's log."""
        tail = self.log_text()[-LOG_TAIL_CHARACTERS:]
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"{tried} ({self._name})",
            happened=f"{happened}; its log ends:\n{tail}",
        )

    def _begin(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        output: IO[bytes] | int,
        errors: IO[bytes],
    ) -> "subprocess.Popen[str]":
        assert not self.is_running, "the node runs already"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
        self._is_paused = False
        return self._process

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "the node is not running"
        return self._process

    def _end(self, number: signal.Signals) -> int:
        process = self._running()
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS_MAX)
            raise self.failed("stop the node", f"it ran on for {END_SECONDS_MAX} s") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
            self._is_paused = False
        return code
