"""What a job of the simulated worker does to a medium, and which faults it feels there.

It must never change a file that the job has not created, nor anything once the job is over.
"""

from collections.abc import Sequence

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange
from tidelog.ports.real.disk.lock import LOCK_NAME
from tidelog.wire.errors import ErrorCode, TidelogError


class WorkerDied(BaseException):
    """The worker's process is gone; no code of a job sees another line run."""


class MediumFiles:
    """The JobFiles of one job."""

    def __init__(
        self, medium: Medium, *, random: SeededRandom, faults: Faults, trace: Trace
    ) -> None:
        self._medium = medium
        self._random = random
        self._faults = faults
        self._trace = trace
        self._created: dict[str, Inode] = {}
        self._torn: dict[str, None] = {}
        """Created files of which an append failed."""
        self.is_over = False
        """The job ended or its process died: what it still tries does nothing."""

    def size_bytes(self, path: str) -> int:
        """Its length; -1: there is no such file."""
        self._begin("look at", path)
        inode = self._find(path)
        return -1 if inode is None else len(inode.seen)

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        """What is seen through the page cache."""
        tried = self._begin("read", path)
        assert byte_position >= 0, f"no byte lies at {byte_position}"
        assert length_bytes >= 0, f"nobody reads {length_bytes} bytes"
        inode = self._find(path)
        if inode is None:
            raise _failed(tried, "there is no such file")
        if self._faults.fires(FaultKind.READ_ERROR):
            raise self._fail(FaultKind.READ_ERROR, tried)
        return bytes(inode.seen[byte_position : byte_position + length_bytes])

    def create(self, path: str) -> None:
        """An empty file with a new inode, also in place of one that an earlier job left behind."""
        tried = self._begin_change("create", path)
        parent_path, _, name = path.rpartition("/")
        parent = self._medium.find(parent_path)
        if not isinstance(parent, Directory):
            raise _failed(tried, f"there is no directory {parent_path}")
        if name in parent.seen:
            self._medium.change_names(NameChange(removed=(parent, name)))
        inode = self._created[path] = Inode()
        self._torn.pop(path, None)
        self._medium.change_names(NameChange(added=(parent, name, inode)))
        self._trace.note(self._medium.name, "job:create", path)

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write at the end of a file that this job has created."""
        tried = self._begin_change("append to", path)
        inode = self._own(path)
        if path in self._torn:
            raise _failed(tried, "an earlier write of it failed")
        data = b"".join(bytes(piece) for piece in pieces)
        failing, room = self._limit(len(data))
        if part := data[:room]:
            inode.write(part)
            self._medium.changed(is_name=False)
        self._trace.note(self._medium.name, "job:append", f"{path} {len(part)}")
        if failing is None:
            return
        self._torn[path] = None
        if failing is FaultKind.WORKER_CRASH:
            self._die(tried)
        if failing is not FaultKind.NO_SPACE:
            raise self._fail(failing, tried)
        self._faults.took_effect(FaultKind.NO_SPACE, self._medium.name, tried)
        raise TidelogError(ErrorCode.STORAGE_FULL, tried=tried, happened="no space is left")

    def flush(self, path: str) -> None:
        """Make a file that this job has created durable, but for its name."""
        tried = self._begin_change("flush", path)
        inode = self._own(path)
        if self._faults.fires(FaultKind.FLUSH_ERROR):
            inode.is_lost = True
            # A flush of the whole file system would hear of it too, one of single files not.
            self._medium.owes_failure = self._medium.owes_failure or self._random.chance(0.5)
            raise self._fail(FaultKind.FLUSH_ERROR, tried)
        inode.cover(inode.made)
        self._trace.note(self._medium.name, "job:flush", path)

    def remove(self, path: str) -> None:
        """Drop a file that this job has created."""
        self._begin_change("remove", path)
        self._own(path)
        parent_path, _, name = path.rpartition("/")
        parent = self._medium.find(parent_path)
        assert isinstance(parent, Directory), "a created file has a directory"
        del self._created[path]
        if name in parent.seen:
            self._medium.change_names(NameChange(removed=(parent, name)))
        self._trace.note(self._medium.name, "job:remove", path)

    def _limit(self, total: int) -> tuple[FaultKind | None, int]:
        """Why an append fails, and how many of its bytes are written."""
        free = self._medium.capacity_bytes - self._medium.used_bytes()
        if total > free:
            return FaultKind.NO_SPACE, max(0, free)
        for kind in (FaultKind.NO_SPACE, FaultKind.WRITE_ERROR, FaultKind.WORKER_CRASH):
            if self._faults.fires(kind):
                return kind, self._random.below(total + 1)
        return None, total

    def _begin(self, verb: str, path: str) -> str:
        tried = f"{verb} {self._medium.name}/{path}"
        if self.is_over:
            raise TidelogError(ErrorCode.CLOSED, tried=tried, happened="the job is over")
        parts = path.split("/")
        if "\0" in path or any(part in ("", ".", "..") for part in parts) or parts[0] == LOCK_NAME:
            raise _failed(tried, "it is not a relative path of plain names")
        return tried

    def _begin_change(self, verb: str, path: str) -> str:
        tried = self._begin(verb, path)
        if self._medium.is_read_only:
            raise self._fail(FaultKind.READ_ONLY, tried)
        if verb != "append to" and self._faults.fires(FaultKind.WORKER_CRASH):
            self._die(tried)
        return tried

    def _die(self, tried: str) -> None:
        self.is_over = True
        self._faults.took_effect(FaultKind.WORKER_CRASH, self._medium.name, tried)
        raise WorkerDied

    def _find(self, path: str) -> Inode | None:
        found = self._created.get(path) or self._medium.find(path)
        return found if isinstance(found, Inode) else None

    def _own(self, path: str) -> Inode:
        assert path in self._created, f"a job changes only what it has created, not {path}"
        return self._created[path]

    def _fail(self, kind: FaultKind, tried: str) -> TidelogError:
        self._faults.took_effect(kind, self._medium.name, tried)
        return _failed(tried, f"simulated fault: {kind.value}")


def _failed(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=tried, happened=happened)
