"""What makes a directory a node's data directory: `node.json`, written once.

Owns the format version of the whole directory. A directory of another version, node or cluster is
refused with nothing touched; so is one that holds something else.
"""

from typing import Final

import msgspec

from tidelog.ports import Append, Disk, Random
from tidelog.wire.errors import ErrorCode, TidelogError

FORMAT_VERSION: Final = 1
FILE_NAME: Final = "node.json"
NEW_FILE_NAME: Final = "node.json.new"
TOLERATED_NAMES: Final = (NEW_FILE_NAME, "lost+found/")
"""In an empty directory: left by a start that was interrupted, or by the making of a file system
of which this is the top."""
CLEAN_MARKER: Final = "clean_shutdown.json"
_READ_BYTES: Final = 64 * 1024


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data it is."""

    format_version: int
    cluster_id: str
    node_id: int
    directory_id: str
    """Random, new with each formatting: a wiped directory is another voter."""


class CleanShutdown(msgspec.Struct, frozen=True, kw_only=True):
    """Written last at an orderly stop, removed first at the next start."""

    broker_epoch: int
    boot_id: str


class _Version(msgspec.Struct, kw_only=True):
    format_version: int


async def open_or_format(disk: Disk, random: Random, node_id: int) -> NodeIdentity:
    """The directory's identity; an empty directory becomes a new cluster's first node."""
    names = await disk.list()
    if FILE_NAME in names:
        return await _read_identity(disk, node_id)
    others = [name for name in names if name not in TOLERATED_NAMES and not name.startswith(".")]
    if others:
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=f"use {disk.name} as a data directory",
            happened=f"it has no {FILE_NAME}, but holds `{others[0]}`",
            hint="Name an empty directory, or one that a node has used before.",
        )
    identity = NodeIdentity(
        format_version=FORMAT_VERSION,
        cluster_id=random.uuid().hex(),
        node_id=node_id,
        directory_id=random.uuid().hex(),
    )
    await write_file(disk, FILE_NAME, msgspec.json.format(msgspec.json.encode(identity)))
    return identity


async def _read_identity(disk: Disk, node_id: int) -> NodeIdentity:
    content = await read_file(disk, FILE_NAME)
    tried = f"open the data directory {disk.name}"
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=tried,
                happened=f"it has format version {version}, this release reads {FORMAT_VERSION}",
            )
        identity = msgspec.json.decode(content, type=NodeIdentity)
    except msgspec.MsgspecError as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=f"read {disk.name}/{FILE_NAME}", happened=str(error)
        ) from None
    if identity.node_id != node_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to node {identity.node_id}, this is node {node_id}",
        )
    return identity


async def take_clean_marker(disk: Disk) -> CleanShutdown | None:
    """The marker of the last stop, which counts once; None after a crash."""
    if CLEAN_MARKER not in await disk.list():
        return None
    content = await read_file(disk, CLEAN_MARKER)
    await disk.remove(CLEAN_MARKER)
    await disk.flush([], directories=[""])
    try:
        return msgspec.json.decode(content, type=CleanShutdown)
    except msgspec.MsgspecError:
        return None


async def write_clean_marker(disk: Disk, marker: CleanShutdown) -> None:
    """Everything is flushed and nothing will be written any more."""
    await write_file(disk, CLEAN_MARKER, msgspec.json.encode(marker))


async def read_file(disk: Disk, name: str) -> bytes:
    """A small file."""
    file = await disk.open(name)
    try:
        return await disk.read(file, 0, _READ_BYTES)
    finally:
        await disk.close(file)


async def write_file(disk: Disk, name: str, content: bytes) -> None:
    """A small file, whole or not at all: written beside, flushed, renamed."""
    beside = f"{name}.new"
    if beside in await disk.list():
        await disk.remove(beside)
    file = await disk.open(beside, create=True)
    await disk.append([Append(file, [content])])
    await disk.flush([file], directories=[""])
    await disk.close(file)
    await disk.rename(beside, name)
    await disk.flush([], directories=[""])
