"""Whole files through the Disk port: read at once, or written beside and renamed into place."""

from collections.abc import Sequence
from typing import Final

from tidelog.ports import Append, Disk

NEW_SUFFIX: Final = ".new"
"""A file that a crash may leave half written; removed at the next start."""

_READ_BYTES: Final = 8 * 1024 * 1024


async def read_file(disk: Disk, name: str) -> bytes:
    """All of it."""
    file = await disk.open(name)
    try:
        pieces = [
            await disk.read(file, position, _READ_BYTES)
            for position in range(0, file.size_bytes, _READ_BYTES)
        ]
    finally:
        await disk.close(file)
    return b"".join(pieces)


async def write_new(disk: Disk, name: str, pieces: Sequence[bytes]) -> str:
    """Write a file beside `name` and flush it; returns what it is called until it is renamed."""
    beside = name + NEW_SUFFIX
    if beside in await disk.list():
        await disk.remove(beside)
    file = await disk.open(beside, create=True)
    try:
        await disk.append([Append(file, pieces)])
        await disk.flush([file], directories=[""])
    finally:
        await disk.close(file)
    return beside


async def rename(disk: Disk, old: str, new: str) -> None:
    """Durable at return."""
    await disk.rename(old, new)
    await disk.flush([], directories=[""])
