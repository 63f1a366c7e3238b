"""Further directories of a stopped node: `tidelog storage add-log-dirs`, and what formatting does.

Owns the explicit step that makes an empty directory one of a node's `log_dirs`. It must never
touch one that holds anything, nor make one that is missing: its disk may not be mounted.
"""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from tidelog.ports import Disk, Random
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.random import RealRandom
from tidelog.server.storage.format import (
    NodeIdentity,
    check_unused,
    format_log_directory,
    is_new_log_directory,
    read_identity,
)
from tidelog.wire.errors import ErrorCode, TidelogError


class AddedDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """One of `log_dirs`."""

    directory: str
    is_new: bool
    """False: it was one of the node's already, and was not touched."""


def add_log_directories(
    data_dir: str, node_id: int, log_dirs: tuple[str, ...]
) -> list[AddedDirectory]:
    """Format those that are empty; refused before anything is changed if one is not there."""
    for directory in (data_dir, *log_dirs):
        _check_there(directory)
    return asyncio.run(_add(data_dir, node_id, log_dirs))


def check_unused_log_directories(log_dirs: tuple[str, ...]) -> None:
    """Refuse what a new node could not take, before its data directory is formatted."""
    for directory in log_dirs:
        _check_there(directory)
    asyncio.run(_check_unused(log_dirs))


def _check_there(directory: str) -> None:
    if not Path(directory).is_dir():
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=f"format the log directory {directory}",
            happened="it is not there",
            hint="Nothing was changed. Make it, or mount its disk; check data_dir and log_dirs.",
        )


async def _check_unused(log_dirs: tuple[str, ...]) -> None:
    for directory in log_dirs:
        disk = await open_disk(Path(directory))
        try:
            await check_unused(disk)
        finally:
            await disk.shutdown()


async def _add(data_dir: str, node_id: int, log_dirs: tuple[str, ...]) -> list[AddedDirectory]:
    async with contextlib.AsyncExitStack() as opened:
        disk = await open_disk(Path(data_dir))
        opened.push_async_callback(disk.shutdown)
        identity = await read_identity(disk, node_id)
        disks: list[Disk] = []
        for directory in log_dirs:
            further = await open_disk(Path(directory))
            opened.push_async_callback(further.shutdown)
            disks.append(further)
        return await format_log_disks(disks, identity, RealRandom())


async def format_log_disks(
    disks: list[Disk], identity: NodeIdentity, random: Random
) -> list[AddedDirectory]:
    """The same on any disks."""
    are_new = [await is_new_log_directory(disk, identity) for disk in disks]
    for disk, is_new in zip(disks, are_new, strict=True):
        if is_new:
            await format_log_directory(disk, identity, random.uuid().hex())
    return [
        AddedDirectory(directory=disk.name, is_new=is_new)
        for disk, is_new in zip(disks, are_new, strict=True)
    ]
