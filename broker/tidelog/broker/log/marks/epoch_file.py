"""The broker epoch that a data directory holds: read before a registration, written after it.

Thin I/O. The controller tells by it a directory that went back in time from the one that it knows
(`controller.directory_epochs`). It must never be written before the controller has given the epoch,
nor after the broker has asked to be unfenced under it: an older copy would not be told from the
directory then. A file that cannot be made out tells of no epoch, which the controller takes for an
old copy: its replicas come back from their leaders.
"""

from typing import Final

import msgspec

from tidelog.broker.log.marks.ballast import give_up_ballast
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


async def read_epoch(disk: Disk) -> BrokerEpoch:
    """What is stored there; `NO_STORED_EPOCH` if nothing is that can be made out."""
    if FILE_NAME not in await disk.list():
        return NO_STORED_EPOCH
    try:
        stored = msgspec.json.decode(await read_file(disk, FILE_NAME), type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return NO_STORED_EPOCH
    if stored.broker_epoch < 0 or stored.checksum != _sum_of(stored.broker_epoch):
        return NO_STORED_EPOCH
    return BrokerEpoch(stored.broker_epoch)


async def write_epoch(disk: Disk, epoch: BrokerEpoch) -> None:
    """Durable at return; on a full disk in the room that was held back."""
    try:
        await _write(disk, epoch)
    except TidelogError as error:
        if error.code is not ErrorCode.STORAGE_FULL or not await give_up_ballast(disk):
            raise
        await _write(disk, epoch)


async def _write(disk: Disk, epoch: BrokerEpoch) -> None:
    stored = _Stored(broker_epoch=epoch, checksum=_sum_of(epoch))
    content = msgspec.json.format(msgspec.json.encode(stored))
    await rename(disk, await write_new(disk, FILE_NAME, [content]), FILE_NAME)


def _sum_of(epoch: int) -> int:
    return checksum(str(epoch).encode())
