"""The broker epoch that a data directory holds: read before a registration, written after it.

Thin I/O. The controller tells by it a directory that went back in time from the one that it knows
(`controller.directory_epochs`). It must never be written before the controller has given the epoch,
nor after the broker has asked to be unfenced under it: an older copy would not be told from the
directory then. A file that cannot be made out tells of no epoch, which the controller takes for an
old copy: its replicas come back from their leaders.

So does a directory whose `marks` are not the ones that its last life left. By them alone a start
tells a log that has lost its end from a whole one, so without them it knows nothing of any log:
that they are gone never means that nothing was ever flushed. Beside the epoch the file keeps the
stamp of the marks that lie there; both move so that a crash at any moment leaves one that is met:

    epoch E, stamp as found ─▶ logs opened, marks made anew with stamp E ─▶ epoch E, stamp E
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.log.marks.ballast import give_up_ballast
from tidelog.broker.log.marks.file import NAME as MARKS
from tidelog.broker.log.marks.file import read_marks, read_stamp
from tidelog.broker.log.marks.marks import NO_STAMP
from tidelog.broker.log.names import parse_directory_name
from tidelog.metadata.directory_epochs import NO_STORED_EPOCH
from tidelog.metadata_quorum.storage.small_files import read_file, rename, write_new
from tidelog.ports import Disk
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch

FILE_NAME: Final = "broker_epoch.json"


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """For people too."""

    broker_epoch: int
    checksum: int
    """CRC-32C of the epoch in decimal digits: a flipped bit must not make an old copy a new one."""
    marks_stamp: int = NO_STAMP
    """What `marks` bears, or a later stamp; `NO_STAMP`: none, as of a release that gave none."""
    stamp_checksum: int = 0
    """CRC-32C of the stamp in decimal digits."""


class StoredEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory tells of itself."""

    epoch: BrokerEpoch = NO_STORED_EPOCH
    """`NO_STORED_EPOCH` if none is stored that can be made out."""
    marks_stamp: int = NO_STAMP
    marks_doubt: str = ""
    """Why the marks are not those that the last life left; empty: they are."""

    @property
    def counts_as(self) -> BrokerEpoch:
        """What the controller is told: without its marks a directory counts as an old copy."""
        return NO_STORED_EPOCH if self.marks_doubt else self.epoch


async def read_epoch(disk: Disk) -> StoredEpoch:
    """What is stored there, and whether the marks beside it are the ones that belong to it."""
    names = await disk.list()
    stored = await _read(disk) if FILE_NAME in names else None
    if stored is None:
        return StoredEpoch()
    return StoredEpoch(
        epoch=BrokerEpoch(stored.broker_epoch),
        marks_stamp=stored.marks_stamp,
        marks_doubt=await _doubt_of_marks(disk, names, stored.marks_stamp),
    )


async def _read(disk: Disk) -> _Stored | None:
    """None: it cannot be made out."""
    try:
        stored = msgspec.json.decode(await read_file(disk, FILE_NAME), type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    is_whole = stored.broker_epoch >= 0 and stored.checksum == _sum_of(stored.broker_epoch)
    is_stamp_whole = stored.marks_stamp == NO_STAMP or (
        stored.marks_stamp >= 0 and stored.stamp_checksum == _sum_of(stored.marks_stamp)
    )
    return stored if is_whole and is_stamp_whole else None


async def _doubt_of_marks(disk: Disk, names: Sequence[str], wanted: int) -> str:
    if MARKS not in names:
        return f"`{MARKS}` is gone"
    if wanted == NO_STAMP:
        # Of a release that stamped none: with partitions they hold something.
        has_partitions = any(
            name.endswith("/") and parse_directory_name(name) is not None for name in names
        )
        return f"`{MARKS}` is empty" if has_partitions and not await read_marks(disk) else ""
    found = await read_stamp(disk)
    if found == NO_STAMP:
        return f"`{MARKS}` is empty, cut or damaged"
    if found < wanted:
        return f"`{MARKS}` is an older copy: it bears stamp {found}, {wanted} was left here"
    return ""


async def write_epoch(disk: Disk, epoch: BrokerEpoch, *, marks_stamp: int) -> None:
    """Durable at return; on a full disk in the room that was held back."""
    try:
        await _write(disk, epoch, marks_stamp)
    except TidelogError as error:
        if error.code is not ErrorCode.STORAGE_FULL or not await give_up_ballast(disk):
            raise
        await _write(disk, epoch, marks_stamp)


async def _write(disk: Disk, epoch: BrokerEpoch, marks_stamp: int) -> None:
    stored = _Stored(
        broker_epoch=epoch,
        checksum=_sum_of(epoch),
        marks_stamp=marks_stamp,
        stamp_checksum=0 if marks_stamp == NO_STAMP else _sum_of(marks_stamp),
    )
    content = msgspec.json.format(msgspec.json.encode(stored))
    await rename(disk, await write_new(disk, FILE_NAME, [content]), FILE_NAME)


def _sum_of(epoch: int) -> int:
    return checksum(str(epoch).encode())
