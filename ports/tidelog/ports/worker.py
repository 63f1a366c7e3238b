"""Background jobs that may take long: sealing, compaction, scrubbing.

They run in a process of their own, so that they never hold up the event loop, and read and write
files of a data directory by themselves; what they made is handed over by name, and the node renames
it. A job is a generator: it yields how many bytes it has read and written since the last yield, at
least once a MiB: a real worker can keep to a rate, and the simulator can crash it in between.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from tidelog.ports.disk import Disk


class JobFiles(Protocol):
    """Files of one data directory, as a job sees them; paths as at the Disk port.

    1. A job changes only files that it has created itself; whoever ran it renames or removes them.
    2. `flush` makes the bytes and the length of one file durable; names are the node's affair.
    3. Failures are the Disk port's: STORAGE_FAILED, STORAGE_FULL.
    """

    def size_bytes(self, path: str) -> int:
        """Its length; -1: there is no such file."""
        ...

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        """Up to `length_bytes` from `byte_position`; shorter only at the end of the file."""
        ...

    def create(self, path: str) -> None:
        """An empty file, also in place of one that an earlier job left behind."""
        ...

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write at the end of a file that this job has created."""
        ...

    def flush(self, path: str) -> None:
        """Make a file that this job has created durable, but for its name."""
        ...

    def remove(self, path: str) -> None:
        """Drop a file that this job has created."""
        ...


Job = Callable[[JobFiles, bytes], Generator[int, None, bytes]]
"""Arguments in, result out, both bytes; yields how much was read and written since the last."""


class Worker(Protocol):
    """1. Jobs run one at a time, in the order submitted. 2. A job that dies raises here.

    3. A job whose caller is cancelled is given up; files that it made may be left behind.
    """

    async def run(
        self, job: str, arguments: bytes, *, disk: Disk, bytes_per_second: int = 0
    ) -> bytes:
        """Run the job that `job` names (`package.module:function`) on the files of `disk`.

        `bytes_per_second` limits its input and output; 0: no limit. A TidelogError that the job
        raised is raised here as an equal one; UNKNOWN if it raised anything else or its process
        died.
        """
        ...

    async def close(self) -> None:
        """End the process; a job in progress is given up."""
        ...
