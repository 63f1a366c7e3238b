"""The segment files of a data directory: opened at first use, removed once nobody reads them.

Owns the open files and the pins of readers. It must never remove a file that is pinned, nor open
one for writing whose length is not what the log says. Stops 6 and 10 of a record's walk.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from tidelog.broker.directory.core.messages import SegmentWrite
from tidelog.broker.log.names import SegmentKey, directory_name
from tidelog.ports import Disk, File, FileUnusable
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import PartitionKey


class SegmentFiles:
    """Used by one owner's tasks. What bounds the descriptors behind the files is the disk's."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[SegmentKey, File] = {}
        self._pins: dict[SegmentKey, int] = {}
        self._unpinned = asyncio.Event()
        self._removing = asyncio.Lock()
        """Whoever removes has listed what there is: two at once would remove one file twice."""
        self._cut: dict[PartitionKey, None] = {}

    def update(self, files: Mapping[SegmentKey, File]) -> None:
        """Take over what recovery has opened."""
        self._files.update(files)

    def find(self, key: SegmentKey) -> File | None:
        """The file if it is open."""
        return self._files.get(key)

    async def opened(self, key: SegmentKey) -> File:
        """The file; after a clean start it is opened at its first use."""
        file = self._files.get(key)
        if file is not None:
            return file
        file = await self._disk.open(key.path)
        # Another reader may have opened it meanwhile: one of the two is enough.
        kept = self._files.setdefault(key, file)
        if kept is not file:
            await self._disk.close(file)
        return kept

    async def for_write(self, write: SegmentWrite) -> File:
        """The segment's file; FileUnusable if it is not as it was left. An empty one may be
        missing: a round that did not fit began it."""
        key = write.segment
        file = self._files.get(key)
        if file is None:
            is_there = not write.is_new and (write.byte_position > 0 or await self._exists(key))
            file = await (self.opened(key) if is_there else self._create(write))
        if file.size_bytes != write.byte_position:
            raise FileUnusable(
                ErrorCode.STORAGE_FAILED,
                tried=f"append to {self._disk.name}/{key.path}",
                happened=f"it has {file.size_bytes} bytes, {write.byte_position} are known: "
                "another program has changed it",
            )
        return file

    @contextlib.contextmanager
    def reading(self, key: SegmentKey) -> Iterator[None]:
        """As long as this is open the segment's files stay."""
        self._pins[key] = self._pins.get(key, 0) + 1
        try:
            yield
        finally:
            left = self._pins[key] - 1
            if left:
                self._pins[key] = left
            else:
                del self._pins[key]
                self._unpinned.set()

    async def close(self, key: SegmentKey) -> None:
        """Give the file up, if it is open."""
        file = self._files.pop(key, None)
        if file is not None:
            await self._disk.close(file)

    def begin_cut(self, partition: PartitionKey) -> None:
        """The tail is being cut off: what a job has made of it gets no name any more."""
        self._cut[partition] = None

    def end_cut(self, partition: PartitionKey) -> None:
        """The log knows what is left."""
        self._cut.pop(partition, None)

    def is_being_cut(self, partition: PartitionKey) -> bool:
        """Between `begin_cut` and `end_cut`."""
        return partition in self._cut

    async def remove(self, segments: Sequence[SegmentKey], sidecars: Sequence[SegmentKey]) -> None:
        """Remove segments with their sidecars, in this order, and sidecars alone."""
        for key in segments:
            await self.wait_unread(key)
        async with self._removing:
            await self._remove_all(segments, sidecars)

    async def _remove_all(
        self, segments: Sequence[SegmentKey], sidecars: Sequence[SegmentKey]
    ) -> None:
        directories = dict.fromkeys(key.partition for key in (*segments, *sidecars))
        names = {key: await self._disk.list(directory_name(key)) for key in directories}
        for key in segments:
            await self.close(key)
            await self._remove(key.path, names[key.partition])
            await self._remove(key.sidecar_path, names[key.partition])
        for key in sidecars:
            await self._remove(key.sidecar_path, names[key.partition])

    async def remove_last_first(self, segments: Sequence[SegmentKey]) -> None:
        """Remove a log's last segments, each durably before the one before it: a crash in between
        leaves no hole. Their sidecars go first."""
        for key in reversed(segments):
            await self.wait_unread(key)
            directory = directory_name(key.partition)
            async with self._removing:
                names = await self._disk.list(directory)
                await self._remove(key.sidecar_path, names)
                await self.close(key)
                await self._remove(key.path, names)
            await self._disk.flush([], directories=[directory])

    async def close_all(self, partition: PartitionKey) -> None:
        """Give all files of a partition up, once nobody reads them."""
        while any(key.partition == partition for key in self._pins):
            self._unpinned.clear()
            await self._unpinned.wait()
        for key in [key for key in self._files if key.partition == partition]:
            await self.close(key)

    async def remove_directory(self, partition: PartitionKey, *, kept_as: str = "") -> None:
        """Remove all of a partition, or give its directory that name, durably."""
        await self.close_all(partition)
        name = directory_name(partition)
        names = await self._disk.list()
        # Somebody may have put a file in its place: no directory could be made beside it.
        if f"{name}/" in names or name in names:
            if kept_as:
                await self._disk.rename(name, kept_as)
            else:
                await self._disk.remove(name)
            await self._disk.flush([], directories=[""])

    async def _exists(self, key: SegmentKey) -> bool:
        directory, _, name = key.path.rpartition("/")
        return name in await self._disk.list(directory)

    async def _create(self, write: SegmentWrite) -> File:
        key = write.segment
        if not write.has_directory:
            await self._disk.make_directory(directory_name(key.partition))
        file = self._files[key] = await self._disk.open(key.path, create=True)
        return file

    async def _remove(self, path: str, names: Sequence[str]) -> None:
        if path.rpartition("/")[2] in names:
            await self._disk.remove(path)

    async def wait_unread(self, key: SegmentKey) -> None:
        while key in self._pins:
            self._unpinned.clear()
            await self._unpinned.wait()
