"""The producers of a live run: a process each, and how far they are together.

Owns these processes; they end when their standard input does, and are killed by their process id
when they do not.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.cluster_journal import Progress
from tidelog.chaos.live.cluster_under_test import ClusterUnderTest
from tidelog.wire.errors import ErrorCode, TidelogError

WRITERS: Final = 4
STOP_SECONDS_MAX: Final = 90.0
ERROR_CHARACTERS: Final = 2_000


class WriterProcess:
    """One of them."""

    def __init__(self, command: Sequence[str], journal: Path) -> None:
        self.journal = journal
        self.progress = Progress()
        self.errors_file = journal.with_suffix(".errors")
        with self.errors_file.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "the writer was started with a pipe"
        for line in self._process.stdout:
            self.progress = msgspec.json.decode(line, type=Progress)

    def check_running(self) -> None:
        """A writer that is gone has spoilt the run."""
        if self._process.poll() is not None:
            raise self._failed("keep a producer running", f"it ended: {self._process.returncode}")

    def ask_end(self) -> None:
        """It sends no more, and ends when all is answered."""
        assert self._process.stdin is not None, "the writer was started with a pipe"
        self._process.stdin.close()

    def wait_end(self, deadline: float) -> None:
        """Until it has ended."""
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed("end a producer", f"not within {STOP_SECONDS_MAX} s") from None
        self._let_go()
        if code != 0:
            raise self._failed("end a producer", f"exit code {code}")

    def kill(self) -> None:
        """It is gone, whatever it was doing."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
        self._let_go()

    def _let_go(self) -> None:
        """Of its pipes; again and again does no harm."""
        self._thread.join(STOP_SECONDS_MAX)
        assert self._process.stdin is not None, "the writer was started with a pipe"
        assert self._process.stdout is not None, "the writer was started with a pipe"
        self._process.stdin.close()
        self._process.stdout.close()

    def _failed(self, tried: str, happened: str) -> TidelogError:
        said = self.errors_file.read_text("utf-8", "replace")[-ERROR_CHARACTERS:]
        return TidelogError(
            ErrorCode.UNAVAILABLE, tried=tried, happened=f"{happened}; it said: {said}"
        )


class ClusterLoad:
    """All of them; `rate` is theirs together, in records a second."""

    def __init__(
        self, cluster: ClusterUnderTest, directory: Path, *, rate: float, writers: int = WRITERS
    ) -> None:
        self._commands = {
            f"w{number}": cluster.writer(
                f"w{number}", directory / f"w{number}.journal", rate / writers
            )
            for number in range(writers)
        }
        self._directory = directory
        self._writers: dict[str, WriterProcess] = {}

    def begin(self) -> None:
        """All of them start."""
        for name, command in self._commands.items():
            self._writers[name] = WriterProcess(command, self._directory / f"{name}.journal")

    def check_running(self) -> None:
        """All of them are there."""
        for writer in self._writers.values():
            writer.check_running()

    @property
    def acknowledged(self) -> int:
        """So far."""
        return sum(each.progress.acknowledged for each in self._writers.values())

    @property
    def held_back(self) -> int:
        """Records that were due and not sent."""
        return sum(each.progress.held_back for each in self._writers.values())

    @property
    def unanswered(self) -> int:
        """Under way now."""
        return sum(each.progress.unanswered for each in self._writers.values())

    @property
    def oldest_ns(self) -> int:
        """Each producer got an acknowledgement of each partition for what it sent since then."""
        return min((each.progress.oldest_ns for each in self._writers.values()), default=0)

    def end(self) -> dict[str, Path]:
        """No more is sent, all is answered; the journals by producer."""
        for writer in self._writers.values():
            writer.ask_end()
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for writer in self._writers.values():
            writer.wait_end(deadline)
        return {name: writer.journal for name, writer in self._writers.items()}

    def kill(self) -> None:
        """Of a run that has failed."""
        for writer in self._writers.values():
            writer.kill()
