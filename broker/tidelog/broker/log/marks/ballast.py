"""A file that only takes room, given up when a trim finds none. Thin I/O.

To free room a log is trimmed, and before anything goes a mark of some bytes is written and flushed.
On a disk that others have filled to the last byte there would be no room for it, and nothing could
ever be freed. So a little is held back: it is given up for the mark of a trim, and taken again when
there is plenty of room. The free-space floor keeps appends from eating it up.
"""

import contextlib
from typing import Final

from tidelog.ports import Append, Disk
from tidelog.wire.errors import TidelogError

NAME: Final = "ballast"
SIZE_BYTES: Final = 1024 * 1024
"""As much as the marks of 29,000 partitions take."""
_CONTENT: Final = bytes(range(256)) * (SIZE_BYTES // 256)


async def take_ballast(disk: Disk) -> bool:
    """Make the file unless it is there; whether it is there now."""
    try:
        if NAME in await disk.list():
            file = await disk.open(NAME)
            size_bytes = file.size_bytes
            await disk.close(file)
            if size_bytes == SIZE_BYTES:
                return True
            await disk.remove(NAME)
        return await _make(disk)
    except TidelogError:
        # A directory that is broken shows it elsewhere.
        return False


async def _make(disk: Disk) -> bool:
    file = await disk.open(NAME, create=True)
    try:
        await disk.append([Append(file, [_CONTENT])])
        await disk.flush([file], directories=[""])
    except TidelogError:
        with contextlib.suppress(TidelogError):
            await disk.remove(NAME)
        return False
    finally:
        await disk.close(file)
    return True


async def give_up_ballast(disk: Disk) -> bool:
    """Remove the file; whether there is more room now."""
    if NAME not in await disk.list():
        return False
    await disk.remove(NAME)
    # Some file systems give room back with the removal's own commit only.
    await disk.flush([], directories=[""])
    return True
