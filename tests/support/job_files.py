"""Files of a data directory in memory, as a job sees them: holds a job to the port's rules."""

from collections.abc import Callable, Sequence

from tidelog.ports.worker import Job
from tidelog.wire.errors import ErrorCode, TidelogError

READ_BYTES_MAX = 1024 * 1024
"""A job yields at least once a MiB."""


class MemoryJobFiles:
    """`files` are there before the job; what it makes is added, and is durable once flushed."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {path: bytearray(data) for path, data in (files or {}).items()}
        self.made: set[str] = set()
        self.flushed: dict[str, bytes] = {}
        self.read_bytes = 0
        self.fail: Callable[[str, str], None] = lambda operation, path: None
        """Called before each operation; may raise."""

    def size_bytes(self, path: str) -> int:
        return len(self.files[path]) if path in self.files else -1

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        self.fail("read", path)
        assert byte_position >= 0, f"read {path} from {byte_position}"
        assert 0 <= length_bytes <= READ_BYTES_MAX, f"read {length_bytes} bytes of {path}"
        data = bytes(self.files[path][byte_position : byte_position + length_bytes])
        self.read_bytes += len(data)
        return data

    def create(self, path: str) -> None:
        self.fail("create", path)
        assert path.endswith(".new"), f"a job writes unfinished files only, not {path}"
        self.files[path] = bytearray()
        self.made.add(path)
        self.flushed.pop(path, None)

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        self.fail("append", path)
        assert path in self.made, f"a job appends to its own files only, not to {path}"
        for piece in pieces:
            self.files[path] += piece

    def flush(self, path: str) -> None:
        self.fail("flush", path)
        assert path in self.made, f"a job flushes its own files only, not {path}"
        self.flushed[path] = bytes(self.files[path])

    def remove(self, path: str) -> None:
        self.fail("remove", path)
        assert path in self.made, f"a job removes its own files only, not {path}"
        del self.files[path]


def run_job(job: Job, files: MemoryJobFiles, arguments: bytes) -> bytes:
    """Run it to its end; a job that never ends is caught."""
    work = job(files, arguments)
    before = files.read_bytes
    for _ in range(100_000):
        try:
            done_bytes = next(work)
        except StopIteration as end:
            result = end.value
            assert isinstance(result, bytes), "a job answers with bytes"
            return result
        assert done_bytes >= 0, "a job tells how much it has read and written"
        assert files.read_bytes - before <= 2 * READ_BYTES_MAX, "it yields at least once a MiB"
        before = files.read_bytes
    raise AssertionError("the job does not end")


def disk_failed(tried: str) -> TidelogError:
    """What the port raises when a disk refuses."""
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=tried, happened="Input/output error")
