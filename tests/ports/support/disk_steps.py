"""Small steps that the tests of the Disk port share."""

from collections.abc import Awaitable, Sequence

import pytest

from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import ErrorCode, TidelogError


async def append(disk: Disk, file: File, data: bytes) -> None:
    """One piece at the end of one file."""
    await disk.append([Append(file, [data])])


async def read_all(disk: Disk, file: File) -> bytes:
    """The whole file, as it is seen now."""
    return await disk.read(file, 0, file.size_bytes + 100)


async def fail(work: Awaitable[object]) -> TidelogError:
    """The error that `work` ends with."""
    with pytest.raises(TidelogError) as caught:
        await work
    return caught.value


async def code_of(work: Awaitable[object]) -> ErrorCode | None:
    """What it fails with; None if it doesn't."""
    try:
        await work
    except TidelogError as error:
        return error.code
    return None


async def codes_of(works: Sequence[Awaitable[object]]) -> list[ErrorCode | None]:
    """What each of them, one after the other, fails with."""
    return [await code_of(work) for work in works]
