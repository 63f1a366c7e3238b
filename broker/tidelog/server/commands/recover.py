"""A stopped node's quorum directory, looked at and, as the last resort, made a quorum of one.

Owns where the directory lies, the lock that proves that its node is stopped, and the order of the
two renames by which the recovered directory takes the place of the old one, which is kept. What is
written is decided in `storage.recover_unsafe`. A damaged lone voter's numbers are skipped as those
of a restored export are: brokers have used numbers that its journal has lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidelog.broker.log.names import parse_directory_name
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.recovery.survey import Survey, survey
from tidelog.metadata_quorum.recovery.unsafe import (
    Recovery,
    copy_recovered,
    decide_recovery,
    salvage,
    write_salvaged,
)
from tidelog.metadata_quorum.storage import identity as quorum_identity
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports import Disk
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.host import RealHost
from tidelog.ports.real.random import RealRandom
from tidelog.server.commands.restore import renewed
from tidelog.server.storage.format import QUORUM_DIRECTORY
from tidelog.wire.errors import ErrorCode, TidelogError

NEW_SUFFIX: Final = ".recovered"
BACKUP_SUFFIX: Final = ".before-recovery-"

_Result = TypeVar("_Result")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Of a damaged lone voter: what is left of the metadata, and what lies here beside them."""

    image: Image
    """With its numbers ahead of all that were in use."""
    unknown_directories: tuple[str, ...]
    """Of partitions in the data directory whose topics are lost with the damage."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    recovery: Recovery
    directory: Path
    backup: Path
    """The directory as it was."""


def find_quorum_directory(name: str) -> Path:
    """A node's data directory or its quorum directory → the quorum directory."""
    directory = Path(name)
    for candidate in (directory, directory / QUORUM_DIRECTORY):
        if (candidate / quorum_identity.FILE_NAME).is_file():
            return candidate
    what = "is not there" if not directory.is_dir() else "is no controller's data directory"
    raise TidelogError(
        ErrorCode.STORAGE_NOT_FORMATTED,
        tried=f"find the quorum directory in {directory}",
        happened=f"{directory} {what}: it holds neither {quorum_identity.FILE_NAME} nor "
        f"{QUORUM_DIRECTORY}/{quorum_identity.FILE_NAME}",
        hint="Name the data_dir of a node with the role `controller`.",
    )


def survey_directory(name: str) -> tuple[Path, Survey]:
    """What the directory holds, with nothing changed; STORAGE_IN_USE while a node runs on it."""
    directory = find_quorum_directory(name)
    return directory, asyncio.run(_with_disk(directory, _survey))


def plan_recovery(name: str, address: str = "") -> tuple[Path, Survey, Recovery]:
    """What `recover` would write; changes nothing."""
    directory, found = survey_directory(name)
    return directory, found, decide_recovery(found, RealRandom().uuid(), address)


def kept_of(directory: Path, found: Survey, recovery: Recovery) -> Kept | None:
    """What a damaged lone voter goes on with; None: entries and snapshot are taken over whole."""
    if not recovery.is_alone:
        return None
    image = asyncio.run(_with_disk(directory, _salvage))
    names = sorted(each.name for each in directory.parent.iterdir() if each.is_dir())
    keys = {name: parse_directory_name(f"{name}/") for name in names}
    return Kept(
        image=renewed(image, found.identity.cluster_id),
        unknown_directories=tuple(
            name
            for name, key in keys.items()
            if key is not None and image.partition(key.topic_id, key.partition) is None
        ),
    )


def recover(
    directory: Path, found: Survey, recovery: Recovery, kept: Kept | None = None
) -> Recovered:
    """Do it; refused if the directory is not as it was when the recovery was planned."""
    assert recovery.is_alone == (kept is not None), "a lone voter goes on with what is left"
    backup = directory.with_name(
        f"{directory.name}{BACKUP_SUFFIX}{recovery.survivor.id.directory_uuid.hex()[:8]}"
    )
    asyncio.run(_recover(directory, found, recovery, backup, kept))
    return Recovered(recovery=recovery, directory=directory, backup=backup)


async def _recover(
    directory: Path, found: Survey, recovery: Recovery, backup: Path, kept: Kept | None
) -> None:
    """The parent's lock is a node's lock of its data directory: it stays stopped meanwhile."""
    parent = await open_disk(directory.parent)
    try:
        disk = await open_disk(directory)
        try:
            if await _survey(disk) != found:
                raise TidelogError(
                    ErrorCode.STORAGE_IN_USE,
                    tried=f"recover {directory}",
                    happened="it was changed since it was looked at",
                    hint="Nothing was changed by this command. Keep the node stopped, try again.",
                )
            new_name = f"{directory.name}{NEW_SUFFIX}"
            if f"{new_name}/" in await parent.list():
                await parent.remove(new_name)
            new_disk = await open_disk(directory.with_name(new_name))
            try:
                if kept is None:
                    await _copy(disk, recovery, new_disk)
                else:
                    await write_salvaged(found, recovery, kept.image, new_disk)
            finally:
                await new_disk.shutdown()
            await parent.rename(directory.name, backup.name)
            await parent.rename(new_name, directory.name)
            await parent.flush([], directories=[""])
        finally:
            await disk.shutdown()
    finally:
        await parent.shutdown()


async def _copy(disk: Disk, recovery: Recovery, new_disk: Disk) -> None:
    """Opening the old directory repairs what a crash left, as every start of the node does."""
    old = await open_storage(disk, boot_id=RealHost().boot_id())
    await copy_recovered(old, recovery, new_disk)


async def _survey(disk: Disk) -> Survey:
    return await survey(disk, boot_id=RealHost().boot_id())


async def _salvage(disk: Disk) -> Image:
    return await salvage(disk, boot_id=RealHost().boot_id())


async def _with_disk(directory: Path, ask: Callable[[Disk], Awaitable[_Result]]) -> _Result:
    disk = await open_disk(directory)
    try:
        return await ask(disk)
    finally:
        await disk.shutdown()
