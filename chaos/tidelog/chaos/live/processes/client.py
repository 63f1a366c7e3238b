"""A client of a live run in a process of its own, which tells how far it is on standard output.

Owns the process: it ends when its standard input does, and is killed by its process id when it
does not.
"""

import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

STOP_SECONDS_MAX: Final = 90.0
ERROR_CHARACTERS: Final = 2_000
Told = TypeVar("Told", bound=msgspec.Struct)


class ClientProcess(Generic[Told]):
    """One of them; `progress` is what it told last, a line of JSON each time."""

    def __init__(self, command: Sequence[str], journal: Path, *, nothing: Told) -> None:
        self.journal = journal
        self.progress = nothing
        self.errors_file = journal.with_suffix(".errors")
        with self.errors_file.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "the client was started with a pipe"
        for line in self._process.stdout:
            self.progress = msgspec.json.decode(line, type=type(self.progress))

    def check_running(self) -> None:
        """A client that is gone has spoilt the run."""
        if self._process.poll() is not None:
            raise self._failed("keep a client running", f"it ended: {self._process.returncode}")

    def let_go(self) -> None:
        """It waits for a line, and begins."""
        assert self._process.stdin is not None, "the client was started with a pipe"
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def ask_end(self) -> None:
        """It finishes what it has begun, and ends."""
        assert self._process.stdin is not None, "the client was started with a pipe"
        self._process.stdin.close()

    def wait_end(self, deadline: float) -> None:
        """Until it has ended."""
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed("end a client", f"not within {STOP_SECONDS_MAX} s") from None
        self._let_go()
        if code != 0:
            raise self._failed("end a client", f"exit code {code}")

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, by itself or not."""
        return self._process.poll() is not None

    def pause(self) -> None:
        """SIGSTOP: it holds what it holds, and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on with what it believes."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, whatever it was doing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
        self._let_go()

    def _let_go(self) -> None:
        """Of its pipes; again and again does no harm."""
        self._thread.join(STOP_SECONDS_MAX)
        assert self._process.stdin is not None, "the client was started with a pipe"
        assert self._process.stdout is not None, "the client was started with a pipe"
        self._process.stdin.close()
        self._process.stdout.close()

    def _failed(self, tried: str, happened: str) -> TidelogError:
        said = self.errors_file.read_text("utf-8", "replace")[-ERROR_CHARACTERS:]
        return TidelogError(
            ErrorCode.UNAVAILABLE, tried=tried, happened=f"{happened}; it said: {said}"
        )
