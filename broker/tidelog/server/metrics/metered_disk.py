"""A disk whose flush rounds are timed and whose open files are counted.

Stands before a Disk of the ports and changes nothing of what it does. The round that took longest
lately is kept for the slow-request log: it is the usual reason of a slow produce.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from tidelog.broker.shared.meter import Histogram
from tidelog.ports import Append, Clock, Disk, File

ROUNDS_KEPT: Final = 256


class MeteredDisk:
    """The same disk; see the attributes."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self.flushes = Histogram()
        self.failed_flushes = 0
        self.open_files = 0
        self._rounds: deque[tuple[int, int]] = deque(maxlen=ROUNDS_KEPT)
        """When each ended, and how long it took."""

    def longest_flush_ns(self, since_ns: int) -> int:
        """Of the rounds that ended since then, as far as they are remembered; 0: there was none."""
        return max((took for ended, took in self._rounds if ended >= since_ns), default=0)

    @property
    def name(self) -> str:
        """For messages: where the directory is."""
        return self._disk.name

    async def open(self, path: str, *, create: bool = False) -> File:
        """Open a file."""
        file = await self._disk.open(path, create=create)
        self.open_files += 1
        return file

    async def close(self, file: File) -> None:
        """Give the descriptor back."""
        self.open_files -= 1
        await self._disk.close(file)

    async def append(self, appends: Sequence[Append]) -> None:
        """Write all of them."""
        await self._disk.append(appends)

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        """Up to so many bytes."""
        return await self._disk.read(file, byte_position, length_bytes)

    async def truncate(self, file: File, size_bytes: int) -> None:
        """Cut the tail off."""
        await self._disk.truncate(file, size_bytes)

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        """Make durable, and note how long that took."""
        begun_ns = self._clock.monotonic_ns()
        is_done = False
        try:
            await self._disk.flush(files, directories=directories)
            is_done = True
        finally:
            ended_ns = self._clock.monotonic_ns()
            self.flushes.add(ended_ns - begun_ns)
            self._rounds.append((ended_ns, ended_ns - begun_ns))
            self.failed_flushes += not is_done

    async def list(self, directory: str = "") -> list[str]:
        """The names in a directory."""
        return await self._disk.list(directory)

    async def make_directory(self, path: str) -> None:
        """With its parents."""
        await self._disk.make_directory(path)

    async def rename(self, old: str, new: str) -> None:
        """Replace atomically."""
        await self._disk.rename(old, new)

    async def remove(self, path: str) -> None:
        """A file, or a directory with all in it."""
        await self._disk.remove(path)

    async def free_bytes(self) -> int:
        """Room left on the file system."""
        return await self._disk.free_bytes()

    async def shutdown(self) -> None:
        """Close every file, stop, let the lock go."""
        await self._disk.shutdown()
