"""The Disk port over a simulated medium: operations take time, fail as told, and end in order.

Operations that change something pass one writer; flushes pass a thread beside it, so that a write
ends before a flush that was asked for earlier. That is more than the real disk does, and no more
than the port permits. Each takes effect when its time is over; a process that dies leaves them
undone.
"""

import contextlib
from collections.abc import Sequence
from typing import Final, TypeVar

from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.ports.disk_turns import Turns, Work
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange
from tidelog.ports.disk import Append, File, FileUnusable, directory_gone, gone, unusable
from tidelog.ports.real.disk.lock import LOCK_NAME
from tidelog.wire.errors import ErrorCode, TidelogError

_T = TypeVar("_T")
_READ_NS: Final = (5_000, 200_000)
_WRITE_NS: Final = (5_000, 300_000)
_FLUSH_NS: Final = (200_000, 8_000_000)
_SLOW_FACTOR: Final = 200
_NOTHING_FITS: Final = 0.5
"""How often a disk that is full has not room for one byte."""


class SimulatedFile:
    """An open file of one process; opened again, it is the same one."""

    def __init__(self, path: str, inode: Inode) -> None:
        self._path = path
        self.inode = inode
        self.open_count = 1
        self.is_removed = False
        """Its process took its name away."""
        self.is_torn = False
        """An append failed, if only on its first byte: nothing is appended before a truncate."""

    @property
    def path(self) -> str:
        """Relative to the data directory."""
        return self._path

    def rename(self, path: str) -> None:
        """The file goes by another name now."""
        self._path = path

    @property
    def size_bytes(self) -> int:
        """Where the next append goes."""
        return len(self.inode.seen)


class SimulatedDisk:
    """One process's hold on a medium."""

    def __init__(
        self,
        medium: Medium,
        *,
        loop: SimulatedLoop,
        random: SeededRandom,
        faults: Faults,
        trace: Trace,
    ) -> None:
        if medium.holder is not None:
            raise TidelogError(
                ErrorCode.STORAGE_IN_USE,
                tried=f"lock {medium.name}",
                happened="another process holds it",
            )
        medium.holder = self
        self._medium = medium
        self._loop = loop
        self._random = random
        self.faults = faults
        self._trace = trace
        self._files: list[SimulatedFile] = []
        self._writes = Turns(loop)
        self._flushes = Turns(loop)
        """Nobody who waits for no flush stands behind one."""
        self._is_shut = False
        self._is_gone = False
        """A change has found the directory gone."""

    @property
    def name(self) -> str:
        """For messages."""
        return self._medium.name

    # -- files ---------------------------------------------------------------------------------

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open, or create and open."""
        tried = f"open {self._name_of(path)}"
        _check_path(path, tried)
        return await self._in_turn(lambda _: self._open_now(path, create, tried), tried, _READ_NS)

    async def close(self, file: File) -> None:
        """Give the descriptor back; what was written stays as it is."""
        own = self._own(file)
        own.open_count -= 1
        if not own.open_count:
            self._files.remove(own)

    async def append(self, appends: Sequence[Append]) -> None:
        """All of them in one turn of the writer."""
        work = [
            (self._own(append.file), b"".join(bytes(piece) for piece in append.pieces))
            for append in appends
        ]
        tried = f"append to {', '.join(self._name_of(file.path) for file, _ in work)}"
        await self._in_turn(
            lambda is_dying: self._append_now(work, tried, is_dying), tried, _WRITE_NS
        )

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        """What is seen through the page cache."""
        own = self._own(file)
        tried = f"read {self._name_of(own.path)} at {byte_position}"
        await self._wait(_READ_NS, tried)
        self._check_usable(tried)
        if self.faults.fires(FaultKind.READ_ERROR):
            raise self._fail(FaultKind.READ_ERROR, tried)
        self._trace.note(self.name, "disk:read", f"{own.path} {byte_position} {length_bytes}")
        return bytes(own.inode.seen[byte_position : byte_position + length_bytes])

    async def truncate(self, file: File, size_bytes: int) -> None:
        """Cut the tail off."""
        own = self._own(file)
        tried = f"truncate {self._name_of(own.path)} to {size_bytes}"
        await self._in_turn(lambda _: self._truncate_now(own, size_bytes, tried), tried, _WRITE_NS)

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        """Durable is what had ended before the call; of the rest nobody may rely on anything."""
        tried = f"flush {len(files)} files and {len(directories)} directories of {self.name}"
        owned = [self._own(file) for file in files]
        self._check_there(tried)
        covered = [(file.inode, file.inode.made) for file in owned]
        places = self._named(owned, directories)
        names = [(place, place.made) for place in places]
        await self._in_turn(
            lambda is_dying: self._flush_now(covered, names, tried, is_dying),
            tried,
            _FLUSH_NS,
            self._flushes,
        )

    # -- names ---------------------------------------------------------------------------------

    async def list(self, directory: str = "") -> list[str]:
        """Sorted; directories end with a slash."""
        tried = f"list {self._name_of(directory)}"
        if directory:
            _check_path(directory, tried)
        await self._wait(_READ_NS, tried)
        self._check_usable(tried)
        self._check_there(tried)
        place = self._medium.find(directory)
        if not isinstance(place, Directory):
            return []
        return sorted(
            name + "/" if isinstance(child, Directory) else name
            for name, child in place.seen.items()
        )

    async def make_directory(self, path: str) -> None:
        """With its parents."""
        tried = f"make the directory {self._name_of(path)}"
        _check_path(path, tried)
        await self._in_turn(lambda _: self._make_directory_now(path, tried), tried, _WRITE_NS)

    async def rename(self, old: str, new: str) -> None:
        """Atomic; durable once both parents are flushed."""
        tried = f"rename {self._name_of(old)} to {new}"
        _check_path(old, tried)
        _check_path(new, tried)
        await self._in_turn(lambda _: self._rename_now(old, new, tried), tried, _WRITE_NS)

    async def remove(self, path: str) -> None:
        """A file, or a directory with all in it."""
        tried = f"remove {self._name_of(path)}"
        _check_path(path, tried)
        await self._in_turn(lambda _: self._remove_now(path, tried), tried, _WRITE_NS)

    async def free_bytes(self) -> int:
        """What the capacity leaves."""
        self._check_there(f"ask for free space of {self.name}")
        return max(0, self._medium.capacity_bytes - self._medium.used_bytes())

    async def shutdown(self) -> None:
        """Close everything, let the lock go; flushes nothing."""
        await self._writes.finish()
        await self._flushes.finish()
        self._is_shut = True
        for file in self._files:
            file.open_count = 0
        self._files.clear()
        if self._medium.holder is self:
            self._medium.holder = None

    # -- the writer ----------------------------------------------------------------------------

    async def _in_turn(
        self, work: Work[_T], tried: str, cost_ns: tuple[int, int], turns: Turns | None = None
    ) -> _T:
        """Queue work for the writer, or for another thread."""
        self._check_usable(tried)
        return await (turns or self._writes).take(work, lambda: self._cost_ns(cost_ns, tried))

    def die(self, *, is_machine: bool) -> None:
        """The process died: of the work under way a part is done, of what waited nothing."""
        for work in (self._writes.die(), self._flushes.die()):
            if work is not None and not is_machine and self._random.chance(0.5):
                with contextlib.suppress(TidelogError):
                    work(True)
        self._is_shut = True
        if self._medium.holder is self:
            self._medium.holder = None

    async def _wait(self, cost_ns: tuple[int, int], tried: str) -> None:
        self._check_usable(tried)
        await sleep_ns(self._loop, self._cost_ns(cost_ns, tried))

    def _cost_ns(self, cost_ns: tuple[int, int], tried: str) -> int:
        cost = self._random.between(*cost_ns)
        if self.faults.fires(FaultKind.SLOW_DISK):
            cost *= _SLOW_FACTOR
            self.faults.took_effect(FaultKind.SLOW_DISK, self.name, f"{tried}: {cost} ns")
        return cost

    # -- effects -------------------------------------------------------------------------------

    def _open_now(self, path: str, create: bool, tried: str) -> File:
        self._check_writable(tried) if create else self._check_usable(tried)
        self._check_there(tried)
        place = self._medium.find(path)
        if create:
            if place is not None:
                raise _unusable(tried, "it exists already")
            parent, name = self._parent(path, tried)
            if self.faults.fires(FaultKind.NO_SPACE):
                self.faults.took_effect(FaultKind.NO_SPACE, self.name, f"the name {path}")
                raise _storage_full(tried)
            place = Inode()
            self._medium.change_names(NameChange(added=(parent, name, place)))
        if not isinstance(place, Inode):
            raise _unusable(tried, "there is no such file")
        if place.is_locked:
            raise _locked(tried)
        self._trace.note(self.name, "disk:create" if create else "disk:open", path)
        for file in self._files:
            if file.inode is place:
                file.open_count += 1
                return file
        file = SimulatedFile(path, place)
        self._files.append(file)
        return file

    def _append_now(
        self, work: Sequence[tuple[SimulatedFile, bytes]], tried: str, is_dying: bool
    ) -> None:
        self._check_written(tried)
        if locked := [file.path for file, _ in work if file.inode.is_locked]:
            raise unusable(_locked(tried), f"append in {self.name}", locked)
        total = sum(len(data) for _, data in work)
        failing = None
        room = total
        if is_dying:
            room = self._random.below(total + 1)
        elif work and (limit := self._append_limit(total)) is not None:
            failing, room = limit
        for left, (file, data) in zip(range(len(work) - 1, -1, -1), work, strict=True):
            self._check_whole(file, tried)
            # Torn until the last byte is written; what follows in this turn is not touched.
            file.is_torn = True
            part = b"" if self._medium.is_read_only else data[:room]
            room -= len(part)
            if part:
                file.inode.write(part)
                self._medium.changed(is_name=False)
            self._trace.note(self.name, "disk:append", f"{file.path} {len(part)}")
            if self._medium.is_read_only:
                raise self._fail(FaultKind.READ_ONLY, tried)
            if len(part) < len(data) or (failing is not None and not left):
                break
            file.is_torn = False
        if failing is FaultKind.NO_SPACE:
            self.faults.took_effect(FaultKind.NO_SPACE, self.name, f"some of {total} bytes")
            raise _storage_full(tried)
        if failing is not None:
            raise self._fail(failing, tried)

    def _check_whole(self, file: SimulatedFile, tried: str) -> None:
        if file.is_torn:
            self._trace.note(self.name, "disk:torn", file.path)
            raise _storage_failed(
                tried, f"an earlier append to {file.path} failed; truncate the file first"
            )
        self._check_open(file)

    def _append_limit(self, total: int) -> tuple[FaultKind, int] | None:
        """Why an append fails and how many bytes it writes before; None: it does not fail."""
        free = self._medium.capacity_bytes - self._medium.used_bytes()
        if total > free:
            return FaultKind.NO_SPACE, max(0, free)
        if self.faults.fires(FaultKind.NO_SPACE):
            fits = 0 if self._random.chance(_NOTHING_FITS) else self._random.below(total + 1)
            return FaultKind.NO_SPACE, fits
        if self.faults.fires(FaultKind.WRITE_ERROR):
            return FaultKind.WRITE_ERROR, self._random.below(total + 1)
        return None

    def _truncate_now(self, file: SimulatedFile, size_bytes: int, tried: str) -> None:
        self._check_writable(tried)
        if file.inode.is_locked:
            raise _locked(tried)
        if not 0 <= size_bytes <= file.size_bytes:
            raise _storage_failed(tried, f"the file has {file.size_bytes} bytes")
        self._check_open(file)
        if size_bytes < file.size_bytes:
            file.inode.truncate(size_bytes)
        file.is_torn = False
        self._trace.note(self.name, "disk:truncate", f"{file.path} {size_bytes}")

    def _flush_now(
        self,
        covered: Sequence[tuple[Inode, int]],
        names: Sequence[tuple[Directory, int]],
        tried: str,
        is_dying: bool,
    ) -> None:
        self._check_writable(tried)
        if self._medium.owes_failure or self.faults.fires(FaultKind.FLUSH_ERROR):
            self._medium.is_failed = True
            raise self._fail(FaultKind.FLUSH_ERROR, tried)
        covers_more = self._random.chance(0.5)
        for inode, until in covered:
            if is_dying and self._random.chance(0.5):
                continue
            inode.cover(inode.made if covers_more else until)
        for place, until in names:
            if is_dying and self._random.chance(0.5):
                continue
            self._medium.cover_names(place, until)
        self._trace.note(self.name, "disk:flush", f"{len(covered)} {len(names)}")

    def _make_directory_now(self, path: str, tried: str) -> None:
        self._check_writable(tried)
        place = self._medium.root
        for part in path.split("/"):
            child = place.seen.get(part)
            if child is None:
                child = Directory()
                self._medium.change_names(NameChange(added=(place, part, child)))
            if not isinstance(child, Directory):
                raise _unusable(tried, f"{part} is a file")
            place = child
        self._trace.note(self.name, "disk:make_directory", path)

    def _rename_now(self, old: str, new: str, tried: str) -> None:
        self._check_writable(tried)
        place = self._medium.find(old)
        if place is None:
            raise _unusable(tried, "there is no such file")
        old_parent, old_name = self._parent(old, tried)
        new_parent, new_name = self._parent(new, tried)
        self._medium.change_names(
            NameChange(added=(new_parent, new_name, place), removed=(old_parent, old_name))
        )
        self._forget(new)
        for file in self._files:
            if file.path == old or file.path.startswith(f"{old}/"):
                file.rename(new + file.path[len(old) :])
        self._trace.note(self.name, "disk:rename", f"{old} {new}")

    def _remove_now(self, path: str, tried: str) -> None:
        self._check_writable(tried)
        parent, name = self._parent(path, tried)
        if name not in parent.seen:
            raise _unusable(tried, "there is no such file")
        self._forget(path)
        self._medium.change_names(NameChange(removed=(parent, name)))
        self._trace.note(self.name, "disk:remove", path)

    def _forget(self, path: str) -> None:
        """Open files at or below the path lose their names, and nobody is to be told."""
        for file in self._files:
            if file.path == path or file.path.startswith(f"{path}/"):
                file.is_removed = True

    # -- checks --------------------------------------------------------------------------------

    def _check_usable(self, tried: str) -> None:
        if self._is_shut:
            raise TidelogError(ErrorCode.CLOSED, tried=tried, happened="the disk was shut down")

    def _check_there(self, tried: str) -> None:
        if self._is_gone or self._medium.is_away:
            raise directory_gone(tried, self.name)

    def _check_written(self, tried: str) -> None:
        self._check_usable(tried)
        self._is_gone = self._is_gone or self._medium.is_away
        self._check_there(tried)
        if self._medium.is_failed:
            raise _storage_failed(tried, "an earlier flush failed, so nothing is written any more")

    def _check_writable(self, tried: str) -> None:
        self._check_written(tried)
        if self._medium.is_read_only:
            raise self._fail(FaultKind.READ_ONLY, tried)

    def _fail(self, kind: FaultKind, tried: str) -> TidelogError:
        self.faults.took_effect(kind, self.name, tried)
        return _storage_failed(tried, f"simulated fault: {kind.value}")

    def _own(self, file: File) -> SimulatedFile:
        assert isinstance(file, SimulatedFile), "a file goes back to the disk that opened it"
        self._check_open(file)
        return file

    def _check_open(self, file: SimulatedFile) -> None:
        if not file.open_count:
            raise TidelogError(
                ErrorCode.CLOSED,
                tried=f"use {self._name_of(file.path)}",
                happened="the file was closed",
            )

    def _named(
        self, files: Sequence[SimulatedFile], directories: Sequence[str]
    ) -> Sequence[Directory]:
        """The directories; FileUnusable if one of all these is not there under its name."""
        places = {path: self._medium.find(path) for path in directories}
        missing = [
            file.path
            for file in files
            if not file.is_removed and self._medium.find(file.path) is not file.inode
        ]
        missing += [path for path in places if not isinstance(places[path], Directory)]
        if missing:
            raise gone(f"flush in {self.name}", missing)
        return [place for place in places.values() if isinstance(place, Directory)]

    def _directory(self, path: str, tried: str) -> Directory:
        if path:
            _check_path(path, tried)
        place = self._medium.find(path)
        if not isinstance(place, Directory):
            raise _unusable(tried, f"there is no directory {path}")
        return place

    def _parent(self, path: str, tried: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent, tried), name

    def _name_of(self, path: str) -> str:
        return f"{self.name}/{path}" if path else self.name


def _check_path(path: str, tried: str) -> None:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or parts[0] == LOCK_NAME:
        raise _storage_failed(tried, "a path is relative and stays inside the data directory")


def _storage_full(tried: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_FULL, tried=tried, happened="no space is left")


def _unusable(tried: str, happened: str) -> TidelogError:
    return FileUnusable(ErrorCode.STORAGE_FAILED, tried=tried, happened=happened)


def _locked(tried: str) -> FileUnusable:
    return FileUnusable(
        ErrorCode.STORAGE_FAILED, tried=tried, happened="EPERM Operation not permitted"
    )


def _storage_failed(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_FAILED, tried=tried, happened=happened)
