"""What makes a directory a node's data directory: `node.json`, written once, last, by formatting.

Owns the format version of the whole directory and the explicit step that formats it. It must never
overwrite: a directory of another version, node or cluster is refused with nothing touched; so is
one that holds something else. A formatting that a crash interrupted is completed by the next one.
"""

from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import Members
from tidelog.metadata_quorum.storage import identity as quorum_identity
from tidelog.ports import Append, Disk
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError

FORMAT_VERSION: Final = 3
FILE_NAME: Final = "node.json"
NEW_FILE_NAME: Final = "node.json.new"
QUORUM_DIRECTORY: Final = "quorum"
TOLERATED_NAMES: Final = (NEW_FILE_NAME, "lost+found/", f"{QUORUM_DIRECTORY}/")
"""In an empty directory: left by a formatting that was interrupted, or by the making of a file
system of which this is the top."""
CLEAN_MARKER: Final = "clean_shutdown.json"
_READ_BYTES: Final = 64 * 1024


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose data it is."""

    format_version: int
    cluster_id: str
    node_id: int
    directory_id: str
    """Random, new with each formatting: what was in a directory that was wiped is gone."""


class QuorumFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a controller's directory begins."""

    directory_uuid: bytes
    bootstrap: Members
    """The first members; empty: the node joins a quorum that exists."""
    bootstrap_command: bytes


class CleanShutdown(msgspec.Struct, frozen=True, kw_only=True):
    """Written last at an orderly stop, removed before anything is written again."""

    broker_epoch: int
    boot_id: str


class _Stored(NodeIdentity, frozen=True, kw_only=True):
    """As it lies there: a flipped bit in an id must not make it another node's directory."""

    checksum: int | None = None
    """CRC-32C of the other fields as JSON; None: written before there was one."""


class _Version(msgspec.Struct, kw_only=True):
    format_version: int


async def is_new_log_directory(disk: Disk, identity: NodeIdentity) -> bool:
    """Whether it is empty, and may become one of the node's; not so: it is one already."""
    names = await disk.list()
    if FILE_NAME in names:
        await check_log_directory(disk, identity)
        return False
    _check_empty(disk, names, tried=f"format {disk.name}")
    return True


async def check_unused(disk: Disk) -> None:
    """Whether any new node may take it; refused if it is somebody's or holds something."""
    names = await disk.list()
    if FILE_NAME in names:
        raise TidelogError(
            ErrorCode.STORAGE_IN_USE,
            tried=f"format {disk.name}",
            happened="it is formatted already, for a node that is not new",
            hint="Nothing was changed. Name an empty directory.",
        )
    _check_empty(disk, names, tried=f"format {disk.name}")


async def format_log_directory(disk: Disk, identity: NodeIdentity, directory_id: str) -> None:
    """Make a directory that `is_new_log_directory` one of the node's."""
    own = msgspec.structs.replace(identity, directory_id=directory_id)
    await write_file(disk, FILE_NAME, encode_identity(own))


async def check_log_directory(disk: Disk, identity: NodeIdentity) -> NodeIdentity:
    """A further directory of the node, with an id of its own; refused if it is another's."""
    try:
        found = await read_identity(disk, identity.node_id)
    except TidelogError as error:
        if error.code is not ErrorCode.STORAGE_NOT_FORMATTED:
            raise
        raise TidelogError(
            error.code,
            tried=error.tried,
            happened=error.happened,
            hint="If it is a new one, type `tidelog storage add-log-dirs`; if it should "
            "hold data, check that its disk is mounted.",
        ) from None
    happened = ""
    if found.cluster_id != identity.cluster_id:
        happened = f"it belongs to cluster {found.cluster_id}, the node to {identity.cluster_id}"
    elif found.directory_id == identity.directory_id:
        happened = "it is a copy of the data directory: both have one id"
    if happened:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=f"open the log directory {disk.name}",
            happened=happened,
            hint="Nothing was changed. Check log_dirs.",
        )
    return found


async def is_formatted(disk: Disk) -> bool:
    """Whether a formatting was completed here."""
    return FILE_NAME in await disk.list()


async def format_node(
    disk: Disk,
    quorum_disk: Disk | None,
    *,
    identity: NodeIdentity,
    quorum: QuorumFormat | None,
) -> NodeIdentity:
    """Make an empty directory a node's. A node that lost its quorum directory gets a new one."""
    assert (quorum_disk is None) == (quorum is None), "only controllers have a quorum directory"
    names = await disk.list()
    if FILE_NAME in names:
        found = await read_identity(disk, identity.node_id)
        await _refuse_formatted(disk, quorum_disk, found, identity)
        identity = found
    else:
        _check_empty(disk, names, tried=f"format {disk.name}")
    if quorum_disk is not None and quorum is not None:
        await _format_quorum(quorum_disk, identity, quorum)
    if FILE_NAME not in names:
        await write_file(disk, FILE_NAME, encode_identity(identity))
    return identity


async def _refuse_formatted(
    disk: Disk, quorum_disk: Disk | None, found: NodeIdentity, wanted: NodeIdentity
) -> None:
    tried = f"format {disk.name}"
    if quorum_disk is None or quorum_identity.FILE_NAME in await quorum_disk.list():
        raise TidelogError(
            ErrorCode.STORAGE_IN_USE,
            tried=tried,
            happened=f"it is formatted already, for node {found.node_id} "
            f"of cluster {found.cluster_id}",
            hint="Nothing was changed. Start the node on it, or name an empty directory.",
        )
    if found.cluster_id != wanted.cluster_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to cluster {found.cluster_id}, not to {wanted.cluster_id}",
            hint="Nothing was changed. Give the id of the cluster that it belongs to.",
        )


async def _format_quorum(disk: Disk, identity: NodeIdentity, quorum: QuorumFormat) -> None:
    """As asked; one that an interrupted formatting of the same cluster left is taken."""
    if quorum_identity.FILE_NAME in await disk.list():
        await quorum_identity.read_identity(
            disk, node_id=identity.node_id, cluster_id=identity.cluster_id
        )
        return
    await quorum_identity.format_storage(
        disk,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        directory_uuid=quorum.directory_uuid,
        bootstrap=quorum.bootstrap,
        bootstrap_command=quorum.bootstrap_command,
    )


def _check_empty(disk: Disk, names: list[str], *, tried: str) -> None:
    others = [name for name in names if name not in TOLERATED_NAMES and not name.startswith(".")]
    if others:
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=tried,
            happened=f"it has no {FILE_NAME}, but holds `{others[0]}`",
            hint="Nothing was changed. Name an empty directory, or one that a node has used.",
        )


async def read_identity(disk: Disk, node_id: int) -> NodeIdentity:
    """Whose directory it is; refused if it is not the given node's, or not formatted."""
    tried = f"open the data directory {disk.name}"
    names = await disk.list()
    if FILE_NAME not in names:
        _check_empty(disk, names, tried=tried)
        raise TidelogError(
            ErrorCode.STORAGE_NOT_FORMATTED,
            tried=tried,
            happened=f"it has no {FILE_NAME}: it was never formatted",
            hint=f"For the first node of a new cluster type `tidelog storage format --standalone "
            f"--node-id {node_id} --data-dir {disk.name}`; see `tidelog storage format --help` "
            "for a node of a larger one.",
        )
    content = await read_file(disk, FILE_NAME)
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
        if version != FORMAT_VERSION:
            raise _wrong_version(tried, version)
        identity = decode_identity(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT, tried=f"read {disk.name}/{FILE_NAME}", happened=str(error)
        ) from None
    if identity.node_id != node_id:
        raise TidelogError(
            ErrorCode.WRONG_CLUSTER,
            tried=tried,
            happened=f"it belongs to node {identity.node_id}, this is node {node_id}",
            hint="Nothing was changed. Check node_id, data_dir and log_dirs.",
        )
    return identity


def encode_identity(identity: NodeIdentity) -> bytes:
    """The content of `node.json`, for people too."""
    bare = msgspec.json.encode(identity)
    stored = _Stored(**msgspec.structs.asdict(identity), checksum=checksum(bare))
    return msgspec.json.format(msgspec.json.encode(stored))


def decode_identity(content: bytes) -> NodeIdentity:
    """Raises a MsgspecError if it is damaged."""
    stored = msgspec.json.decode(content, type=_Stored)
    fields = msgspec.structs.asdict(stored)
    known = fields.pop("checksum")
    identity = NodeIdentity(**fields)
    found = checksum(msgspec.json.encode(identity))
    if known is not None and known != found:
        raise msgspec.ValidationError(f"its checksum is {known}, its fields give {found}")
    return identity


def _wrong_version(tried: str, version: int) -> TidelogError:
    hint = "Upgrade this release."
    if version < FORMAT_VERSION:
        hint = (
            "Nothing was changed. It was made by a build that was never released. Read its topics "
            "with that build, and write them to a node on a new directory."
        )
    return TidelogError(
        ErrorCode.UNSUPPORTED_VERSION,
        tried=tried,
        happened=f"it has format version {version}, this release reads {FORMAT_VERSION}",
        hint=hint,
    )


async def read_clean_marker(disk: Disk) -> CleanShutdown | None:
    """The marker of the last stop; None after a crash."""
    if CLEAN_MARKER not in await disk.list():
        return None
    try:
        return msgspec.json.decode(await read_file(disk, CLEAN_MARKER), type=CleanShutdown)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


async def remove_clean_marker(disk: Disk) -> None:
    """Before anything is written: the marker counts once."""
    if CLEAN_MARKER in await disk.list():
        await disk.remove(CLEAN_MARKER)
        await disk.flush([], directories=[""])


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
