"""Child processes of a measurement: started, waited for, weighed, and ended by their pid.

Owns every process that this room starts. It must never end a process by name, and never wait
without a deadline.
"""

import os
import queue
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

STOP_TIMEOUT_SECONDS: Final = 15.0
START_TIMEOUT_SECONDS: Final = 60.0
CLOCK_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
LINES_KEPT_MAX: Final = 10_000


RESULT_MARK: Final = "result "
RESULT_LINE: Final = re.compile("^" + RESULT_MARK)  # a traceback may quote the word further right
Result = TypeVar("Result", bound=msgspec.Struct)


class ChildFailedError(RuntimeError):
    """A child ended or stayed silent before it said what was waited for."""


class Child:
    """One child process whose output is read line by line on a thread of its own."""

    def __init__(
        self, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = " ".join(arguments[:4])
        self.started = time.perf_counter()
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_KEPT_MAX)
        self._seen: list[str] = []
        self._process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "the child was started with a pipe"
        for line in self._process.stdout:
            if not self._lines.full():  # a chatty server must not stop at a full pipe
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_line(self, marker: str, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> str:
        """The first line from now on that contains `marker`."""
        return self.wait_match(re.compile(re.escape(marker)), timeout_seconds=timeout_seconds)

    def wait_match(
        self, pattern: re.Pattern[str], *, timeout_seconds: float = START_TIMEOUT_SECONDS
    ) -> str:
        """The first line from now on that `pattern` is found in."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ChildFailedError(self._told(f"said no '{pattern.pattern}' in time")) from None
            if line is None:
                raise ChildFailedError(self._told(f"ended without saying '{pattern.pattern}'"))
            self._seen.append(line)
            if pattern.search(line):
                return line

    def wait_end(self, *, timeout_seconds: float) -> list[str]:
        """Every line until the child ends by itself; its exit code must be 0."""
        try:
            code = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise ChildFailedError(self._told(f"ran over {timeout_seconds:.0f} s")) from None
        self._reader.join(STOP_TIMEOUT_SECONDS)
        while not self._lines.empty():
            line = self._lines.get_nowait()
            if line is not None:
                self._seen.append(line)
        if code != 0:
            raise ChildFailedError(self._told(f"ended with exit code {code}"))
        return self._seen

    def result(self, kind: type[Result], *, timeout_seconds: float) -> Result:
        """What the child printed with `print_result`."""
        line = self.wait_match(RESULT_LINE, timeout_seconds=timeout_seconds)
        return msgspec.json.decode(line.removeprefix(RESULT_MARK), type=kind)

    def check_running(self) -> None:
        """A child that went away in between has spoilt what was measured."""
        if self._process.poll() is not None:
            self.wait_end(timeout_seconds=STOP_TIMEOUT_SECONDS)
            raise ChildFailedError(self._told("ended before it was told to"))

    def _told(self, what: str) -> str:
        return "\n".join([f"{self.name} {what}; its last lines:", *self._seen[-8:]])

    def send(self, number: signal.Signals) -> None:
        """A signal, if it is still there to hear it."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def tell_to_end(self) -> None:
        """SIGTERM, without waiting: what it still has to say is waited for with `result`."""
        self.send(signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when it has not gone by the deadline. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_SECONDS)
        self._reader.join(STOP_TIMEOUT_SECONDS)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def print_result(result: msgspec.Struct) -> None:
    """The one line by which a child hands its figures to whoever started it."""
    print(RESULT_MARK + msgspec.json.encode(result).decode(), flush=True)


def python_child(module: str, *arguments: str) -> Child:
    """A child that runs a module of this checkout under the same interpreter."""
    return Child([sys.executable, "-W", "ignore", "-m", module, *arguments])


def resident_bytes(pid: int) -> int:
    """Memory of a process that lies in RAM now."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_SECOND


def raise_open_files_limit() -> int:
    """Raises the soft limit on descriptors to the hard one; gives what is allowed now."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
