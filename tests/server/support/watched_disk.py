"""A node's disk that does what a test says: it is not read, or not flushed, for a while."""

import asyncio
from collections.abc import Sequence

from tests.server.support.cluster_in_world import Cluster
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import ErrorCode, TidelogError

UNREAD = TidelogError(ErrorCode.STORAGE_FAILED, tried="read", happened="the disk did not answer")


class WatchedDisk:
    """A data directory of which the files of partitions cannot be read while it is blind, and
    nothing is flushed while that is held up."""

    def __init__(self, disk: Disk, sight: "Sight") -> None:
        self._disk = disk
        self._sight = sight

    @property
    def name(self) -> str:
        return self._disk.name

    async def open(self, path: str, *, create: bool = False) -> File:
        return await self._disk.open(path, create=create)

    async def close(self, file: File) -> None:
        await self._disk.close(file)

    async def append(self, appends: Sequence[Append]) -> None:
        await self._disk.append(appends)

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        if self._sight.is_blind and "/" in file.path:
            self._sight.tries += 1
            raise UNREAD
        if "/" in file.path:
            await asyncio.sleep(self._sight.read_seconds)
        return await self._disk.read(file, byte_position, length_bytes)

    async def truncate(self, file: File, size_bytes: int) -> None:
        await self._disk.truncate(file, size_bytes)

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        await self._sight.may_flush.wait()
        await self._disk.flush(files, directories=directories)

    async def make_directory(self, path: str) -> None:
        await self._disk.make_directory(path)

    async def list(self, directory: str = "") -> list[str]:
        return await self._disk.list(directory)

    async def rename(self, old: str, new: str) -> None:
        await self._disk.rename(old, new)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def free_bytes(self) -> int:
        return await self._disk.free_bytes()

    async def shutdown(self) -> None:
        await self._disk.shutdown()


class Sight:
    """Whether a node's disk can be read, and flushed."""

    def __init__(self) -> None:
        self.is_blind = False
        self.may_flush = asyncio.Event()
        self.may_flush.set()
        self.tries = 0
        self.read_seconds = 0.0

    def hold_flushes(self) -> None:
        """Until `may_flush` is set."""
        self.may_flush.clear()

    def of(self, cluster: Cluster, number: int) -> "Sight":
        """From the node's next start on."""
        cluster.nodes[number].wrapped = lambda disk: WatchedDisk(disk, self)
        return self
