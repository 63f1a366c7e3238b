"""Snapshots as files: written beside and renamed, fetched in pieces, the newest two kept.

A file whose name is a snapshot's was whole and flushed when it got that name. A fetch goes on where
a broken one ended; its file gets its name after every checksum was found right.
"""

import re
from collections.abc import Sequence
from typing import Final

from tidelog.metadata_quorum.raft.types import Snapshot, SnapshotId
from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.metadata_quorum.storage.small_files import NEW_SUFFIX, read_file, rename
from tidelog.metadata_quorum.storage.snapshot_format import (
    SnapshotContent,
    decode_snapshot,
    encode_snapshot,
)
from tidelog.ports import Append, Disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

FETCH_SUFFIX: Final = ".fetch"
DAMAGED_FETCH: Final = "fetch.damaged"
"""A fetched snapshot that contradicts its checksums."""

WRITE_BYTES: Final = 4 * 1024 * 1024
"""Written and flushed at a time, so that blocks of the journal get through in between."""

_NAME: Final = re.compile(r"snapshot-(\d{20})-(\d{20})")


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """Sorts by end index."""
    return f"snapshot-{snapshot_id.end_index:020}-{snapshot_id.term:020}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """None: not the name of a whole snapshot."""
    match = _NAME.fullmatch(name)
    return SnapshotId(LogIndex(int(match[1])), Term(int(match[2]))) if match else None


class SnapshotFiles:
    """The snapshots of one directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def ids(self) -> list[SnapshotId]:
        """Newest first."""
        found = [parse_snapshot_name(name) for name in await self._disk.list()]
        return sorted((each for each in found if each is not None), reverse=True)

    async def load(self, snapshot_id: SnapshotId) -> tuple[Snapshot, SnapshotContent]:
        """STORAGE_CORRUPT if a byte is wrong, or it is another one than its name says."""
        return await self._load(snapshot_id, snapshot_name(snapshot_id))

    async def save(self, content: SnapshotContent) -> Snapshot:
        """Durable at return."""
        name = snapshot_name(content.id)
        beside = name + NEW_SUFFIX
        if beside in await self._disk.list():
            await self._disk.remove(beside)
        pieces = encode_snapshot(content)
        try:
            await self._write(beside, pieces)
        except TidelogError as error:
            # Without room for its name it never was: to remove it would be a failed disk's error.
            if error.code is ErrorCode.STORAGE_FULL and beside in await self._disk.list():
                await self._disk.remove(beside)
            raise
        await rename(self._disk, beside, name)
        size_bytes = sum(len(piece) for piece in pieces)
        return Snapshot(id=content.id, members=content.members, size_bytes=size_bytes)

    async def remove_older(self, newest: SnapshotId, kept: SnapshotId) -> None:
        """Remove whole snapshots before `newest`, except one. A later one may have been fetched,
        and the log is to give way to it next.
        """
        removed = [each for each in await self.ids() if each < newest and each != kept]
        for snapshot_id in removed:
            await self._disk.remove(snapshot_name(snapshot_id))
        if removed:
            await self._disk.flush([], directories=[""])

    async def set_aside(self, snapshot_id: SnapshotId) -> None:
        """A damaged one: its bytes stay, its name goes."""
        name = snapshot_name(snapshot_id)
        await rename(self._disk, name, f"{name}.damaged")

    async def check_there(self, snapshot_id: SnapshotId) -> None:
        """Before the log gives way to it: without it nothing would be left."""
        name = snapshot_name(snapshot_id)
        if name not in await self._disk.list():
            raise corrupt(f"{self._disk.name}/{name}", "the file is not there")

    async def read(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        """A piece of the file and its size; None: it is gone. Before its first piece is given away
        the whole file is checked: who fetches a damaged one would begin anew for ever.
        """
        name = snapshot_name(snapshot_id)
        if name not in await self._disk.list():
            return None
        try:
            if position == 0:
                await self.load(snapshot_id)
            file = await self._disk.open(name)
        except TidelogError as error:
            if error.code is not ErrorCode.STORAGE_CORRUPT and name in await self._disk.list():
                raise
            return None  # damaged, or removed in between
        try:
            return await self._disk.read(file, position, length_bytes), file.size_bytes
        finally:
            await self._disk.close(file)

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        """How much of it is there. Files of other fetches go: one is under way at a time."""
        name = snapshot_name(snapshot_id) + FETCH_SUFFIX
        names = [each for each in await self._disk.list() if each.endswith(FETCH_SUFFIX)]
        for other in names:
            if other != name:
                await self._disk.remove(other)
        if name not in names:
            await self._disk.close(await self._disk.open(name, create=True))
            return 0
        file = await self._disk.open(name)
        try:
            if file.size_bytes > size_bytes:
                await self._disk.truncate(file, 0)
            return file.size_bytes
        finally:
            await self._disk.close(file)

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """The next piece; one that does not fit leaves what was there before."""
        file = await self._disk.open(snapshot_name(snapshot_id) + FETCH_SUFFIX)
        try:
            if position != file.size_bytes:
                raise TidelogError(
                    ErrorCode.INVALID_ARGUMENT,
                    tried=f"write byte {position} of {file.path}",
                    happened=f"the next byte is {file.size_bytes}",
                    hint="Ask again where to go on.",
                )
            try:
                await self._disk.append([Append(file, [data])])
            except TidelogError:
                await self._disk.truncate(file, position)
                raise
        finally:
            await self._disk.close(file)

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """Check, flush, rename; what is STORAGE_CORRUPT is kept aside, the last such fetch only:
        the member that it came from has the original.
        """
        name = snapshot_name(snapshot_id)
        beside = name + FETCH_SUFFIX
        try:
            snapshot, _ = await self._load(snapshot_id, beside)
        except TidelogError as error:
            if error.code is ErrorCode.STORAGE_CORRUPT:
                await rename(self._disk, beside, DAMAGED_FETCH)
            raise
        file = await self._disk.open(beside)
        try:
            await self._disk.flush([file])
        finally:
            await self._disk.close(file)
        await rename(self._disk, beside, name)
        return snapshot

    async def _load(self, snapshot_id: SnapshotId, name: str) -> tuple[Snapshot, SnapshotContent]:
        where = f"{self._disk.name}/{name}"
        data = await read_file(self._disk, name)
        content = decode_snapshot(data, where)
        if content.id != snapshot_id:
            raise corrupt(where, f"it holds the snapshot {content.id}")
        snapshot = Snapshot(id=snapshot_id, members=content.members, size_bytes=len(data))
        return snapshot, content

    async def _write(self, name: str, pieces: Sequence[bytes]) -> None:
        file = await self._disk.open(name, create=True)
        try:
            waiting: list[bytes] = []
            size_bytes = 0
            for piece in pieces:
                for start in range(0, len(piece), WRITE_BYTES):
                    waiting.append(piece[start : start + WRITE_BYTES])
                    size_bytes += len(waiting[-1])
                    if size_bytes >= WRITE_BYTES:
                        await self._disk.append([Append(file, waiting)])
                        await self._disk.flush([file])
                        waiting, size_bytes = [], 0
            await self._disk.append([Append(file, waiting)])
            await self._disk.flush([file])
        finally:
            await self._disk.close(file)
