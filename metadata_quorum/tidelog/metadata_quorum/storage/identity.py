"""What makes a directory a member's quorum directory: `quorum.json`, written once by formatting.

Owns the format version of everything beside it. A directory of another version, node or cluster
is refused with nothing touched. Formatting never overwrites: it makes `marks` first and
`quorum.json` last, so that a crash in between leaves a directory that may be formatted again.
"""

from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import MemberId, Members, NodeId
from tidelog.metadata_quorum.storage import marks
from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.metadata_quorum.storage.small_files import read_file, rename, write_new
from tidelog.ports import Disk
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError

FORMAT_VERSION: Final = 1
FILE_NAME: Final = "quorum.json"
UUID_BYTES: Final = 16
TOLERATED_NAMES: Final = (f"{FILE_NAME}.new", f"{marks.FILE_NAME}.new", "lost+found/")
"""In an empty directory: left by a formatting that was interrupted, or by the making of a file
system of which this is the top."""


class QuorumIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose directory it is, and how its quorum began."""

    format_version: int
    cluster_id: str
    node_id: int
    directory_uuid: bytes
    """Random, new with each formatting: a wiped directory is another member."""
    bootstrap: Members
    """The first members; empty: this one joins a quorum that exists."""
    bootstrap_command: bytes
    """What the first leader proposes first; opaque here."""
    checksum: int = 0
    """CRC-32C of this value encoded with a checksum of 0."""

    @property
    def member_id(self) -> MemberId:
        """The node with this directory."""
        return MemberId(NodeId(self.node_id), self.directory_uuid)


class _Version(msgspec.Struct, kw_only=True):
    format_version: int


async def format_storage(
    disk: Disk,
    *,
    cluster_id: str,
    node_id: int,
    directory_uuid: bytes,
    bootstrap: Members,
    bootstrap_command: bytes,
) -> QuorumIdentity:
    """Make an empty directory a member's; one that holds anything is refused and not touched."""
    if len(directory_uuid) != UUID_BYTES or not cluster_id or node_id < 0:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"format {disk.name}",
            happened="a cluster id, a node id from 0 on and a uuid of 16 bytes are needed",
        )
    await _check_empty(disk)
    identity = QuorumIdentity(
        format_version=FORMAT_VERSION,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_uuid=directory_uuid,
        bootstrap=bootstrap,
        bootstrap_command=bootstrap_command,
    )
    sealed = msgspec.structs.replace(identity, checksum=_sum(identity))
    content = msgspec.json.format(msgspec.json.encode(sealed))
    first_mark = await write_new(disk, marks.FILE_NAME, [marks.encode_mark(marks.FIRST_MARK)])
    beside = await write_new(disk, FILE_NAME, [content])
    await rename(disk, first_mark, marks.FILE_NAME)
    await rename(disk, beside, FILE_NAME)
    return sealed


async def _check_empty(disk: Disk) -> None:
    names = await disk.list()
    if FILE_NAME in names:
        raise TidelogError(
            ErrorCode.STORAGE_IN_USE,
            tried=f"format {disk.name}",
            happened=f"it is formatted already: it holds `{FILE_NAME}`",
            hint="Nothing was changed. Start the node on it, or name an empty directory.",
        )
    others = [name for name in names if name not in TOLERATED_NAMES and not name.startswith(".")]
    if others == [marks.FILE_NAME] and await _is_first(disk):
        return
    if others:
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=f"format {disk.name}",
            happened=f"it is not empty: it holds `{others[0]}`, but no `{FILE_NAME}`",
            hint="Nothing was changed. Name an empty directory.",
        )


async def _is_first(disk: Disk) -> bool:
    """Whether the marks are those of a formatting that was interrupted."""
    return await read_file(disk, marks.FILE_NAME) == marks.encode_mark(marks.FIRST_MARK)


async def read_identity(
    disk: Disk, *, node_id: int | None = None, cluster_id: str | None = None
) -> QuorumIdentity:
    """Whose directory it is; refused if it is not the given node's and cluster's."""
    tried = f"open the quorum directory {disk.name}"
    if FILE_NAME not in await disk.list():
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=tried,
            happened=f"it has no {FILE_NAME}",
            hint="Check the path, or format the directory with `tidelog storage format`.",
        )
    identity = _decode(await read_file(disk, FILE_NAME), f"{disk.name}/{FILE_NAME}", tried)
    if node_id is not None and identity.node_id != node_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to node {identity.node_id}, this is node {node_id}",
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to cluster {identity.cluster_id}, not to {cluster_id}",
        )
    return identity


def _decode(content: bytes, where: str, tried: str) -> QuorumIdentity:
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=tried,
                happened=f"it has format version {version}, this release reads {FORMAT_VERSION}",
            )
        identity = msgspec.json.decode(content, type=QuorumIdentity)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt(where, f"it does not decode: {error}") from None
    if identity.checksum != _sum(identity) or len(identity.directory_uuid) != UUID_BYTES:
        raise corrupt(where, "its content contradicts its checksum")
    return identity


def _sum(identity: QuorumIdentity) -> int:
    return checksum(msgspec.json.encode(msgspec.structs.replace(identity, checksum=0)))
