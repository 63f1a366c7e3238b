"""Brings a stopped node's directories to this release's format: `tidelog storage upgrade`.

Owns the steps from each older version. A step makes what is new beside what is old, durably, then
`node.json` says the new version, then what is old goes: a crash in between is gone over again. It
must never change a segment, nor anything at all on a dry run.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.broker.log.marks.file import make_marks_file
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.names import PartitionKey
from tidelog.ports import Disk
from tidelog.ports.real.disk.disk import open_disk
from tidelog.server.storage.format import (
    FILE_NAME,
    FORMAT_VERSION,
    OLDEST_UPGRADABLE,
    NodeIdentity,
    encode_identity,
    read_file,
    read_format_version,
    write_file,
)
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, TopicId

FLUSH_MARKS: Final = "flush_marks"
"""Of format 2: topic id, partition, flushed offset, CRC-32C."""
_FLUSH_MARK: Final = struct.Struct(">16sIqI")
_READ_BYTES: Final = 1024 * 1024 // _FLUSH_MARK.size * _FLUSH_MARK.size


class UpgradeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    directories: tuple[str, ...]
    """data_dir first, then every one of log_dirs."""
    is_dry_run: bool = False


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """One directory."""

    directory: str
    from_version: int
    to_version: int
    steps: tuple[str, ...]
    """What was done, or would be; empty: it has this release's format already."""
    is_done: bool


def upgrade_storage(options: UpgradeOptions) -> list[Upgraded]:
    """Every directory, or none: all are looked at before the first is changed."""
    for directory in options.directories:
        if not Path(directory).is_dir():
            raise TidelogError(
                ErrorCode.STORAGE_NOT_FORMATTED,
                tried=f"upgrade {directory}",
                happened="it is not there",
                hint="Nothing was changed. Check data_dir and log_dirs.",
            )
    return asyncio.run(_upgrade_real(options))


async def _upgrade_real(options: UpgradeOptions) -> list[Upgraded]:
    async with _opened(options.directories) as disks:
        return await upgrade_disks(disks, is_dry_run=options.is_dry_run)


@contextlib.asynccontextmanager
async def _opened(directories: Sequence[str]) -> AsyncIterator[list[Disk]]:
    disks: list[Disk] = []
    try:
        for directory in directories:
            disks.append(await open_disk(Path(directory)))
        yield disks
    finally:
        for disk in reversed(disks):
            await disk.shutdown()


async def upgrade_disks(disks: Sequence[Disk], *, is_dry_run: bool) -> list[Upgraded]:
    """The same on any disks."""
    plans = [await _plan(disk) for disk in disks]
    if is_dry_run:
        return plans
    for disk, plan in zip(disks, plans, strict=True):
        if plan.from_version == 2:
            await _from_2(disk)
    return [msgspec.structs.replace(plan, is_done=True) for plan in plans]


async def _plan(disk: Disk) -> Upgraded:
    version = await read_format_version(disk)
    if not OLDEST_UPGRADABLE <= version <= FORMAT_VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=f"upgrade {disk.name}",
            happened=f"it has format version {version}, this release upgrades "
            f"{OLDEST_UPGRADABLE} to {FORMAT_VERSION}",
            hint="Nothing was changed."
            + (" Use the release that wrote it, or a newer one." if version > 2 else ""),
        )
    steps: list[str] = []
    if version == 2:
        marks = await _read_flush_marks(disk)
        steps = [
            f"write `marks` with what `flush_marks` tells of {len(marks)} partitions",
            f"write format version {FORMAT_VERSION} into {FILE_NAME}",
            "remove `flush_marks`",
            "at the next start: make the sidecars of sealed segments, in the background",
        ]
    return Upgraded(
        directory=disk.name,
        from_version=version,
        to_version=FORMAT_VERSION,
        steps=tuple(steps),
        is_done=False,
    )


async def _from_2(disk: Disk) -> None:
    names = await disk.list()
    if FLUSH_MARKS in names:
        marks = await make_marks_file(disk, await _read_flush_marks(disk))
        await marks.close()
    identity = msgspec.json.decode(await read_file(disk, FILE_NAME), type=NodeIdentity)
    upgraded = msgspec.structs.replace(identity, format_version=3)
    await write_file(disk, FILE_NAME, encode_identity(upgraded))
    if FLUSH_MARKS in names:
        await disk.remove(FLUSH_MARKS)
        await disk.flush([], directories=[""])


async def _read_flush_marks(disk: Disk) -> dict[PartitionKey, PartitionMarks]:
    """The highest offset that a whole entry gives of each partition, as format 2 had it."""
    if FLUSH_MARKS not in await disk.list():
        return {}
    file = await disk.open(FLUSH_MARKS)
    marks: dict[PartitionKey, PartitionMarks] = {}
    for start in range(0, file.size_bytes, _READ_BYTES):
        data = await disk.read(file, start, _READ_BYTES)
        whole = len(data) - len(data) % _FLUSH_MARK.size
        for position in range(0, whole, _FLUSH_MARK.size):
            body = data[position : position + _FLUSH_MARK.size - 4]
            topic_id, partition, offset, stored = _FLUSH_MARK.unpack_from(data, position)
            if checksum(body) != stored:
                continue
            key = PartitionKey(TopicId(topic_id), PartitionId(partition))
            known = marks.get(key)
            if known is None or known.flushed_offset < offset:
                marks[key] = PartitionMarks(flushed_offset=offset)
    await disk.close(file)
    return marks
