"""The explicit step before a node's first start: `tidelog storage format`, and dev's own.

Owns what a new directory says: whose it is, how its quorum begins, and what the cluster decided
once for all. It must never touch a directory that is formatted already, or that holds anything.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidelog.metadata.features import bootstrap_records
from tidelog.metadata.records.entries import encode_entry
from tidelog.metadata_quorum.raft.types import Member, MemberId, Members, NodeId
from tidelog.metadata_quorum.storage import identity as quorum_identity
from tidelog.ports import Disk, Random
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.random import RealRandom
from tidelog.server.storage.format import (
    FILE_NAME,
    FORMAT_VERSION,
    QUORUM_DIRECTORY,
    NodeIdentity,
    QuorumFormat,
    format_node,
)
from tidelog.server.storage.log_directories import add_log_directories, check_unused_log_directories
from tidelog.wire.errors import ErrorCode, TidelogError

UUID_BYTES: Final = 16
INTERNAL_PARTITION_COUNTS: Final[Mapping[str, int]] = {
    "__groups": 16,
    "__staging": 16,
    "__transactions": 16,
}
"""Coordinators are found by these counts, so they never change."""
REPLICAS_MAX: Final = 3
"""Unless more are asked for: any one of them may die while another one is being restarted."""


class InitialVoter(msgspec.Struct, frozen=True, kw_only=True):
    """One of the first members; every one of them is formatted with the same list."""

    node_id: int
    address: str
    """`host:port` of its cluster listener, as the others reach it."""
    directory_uuid: bytes


class FormatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    data_dir: str
    node_id: int
    cluster_id: str = ""
    """Empty: a new cluster."""
    is_controller: bool = True
    standalone_address: str = ""
    """Set: a quorum of this node alone, reached at this cluster listener."""
    voters: tuple[InitialVoter, ...] = ()
    """Set: the first members, this node among them."""
    default_replication_factor: int = 0
    """Replicas of a topic that asks for no number of them; 0: as an internal topic."""
    broker_count: int = 1
    """How many brokers are expected: internal topics get min(3, so many) replicas."""
    log_dirs: tuple[str, ...] = ()
    """Further directories, formatted as well; they have to be there."""


class Formatted(msgspec.Struct, frozen=True, kw_only=True):
    """What was made."""

    cluster_id: str
    node_id: int
    data_dir: str
    directory_uuid: str
    """Of the quorum directory, in hexadecimal; empty: the node is no controller."""
    voters: tuple[int, ...]
    """Node ids of the first members; empty: the node joins."""
    default_replication_factor: int = 0
    """Replicas of a topic that asks for no number of them; 0: the cluster has decided."""


def format_storage(options: FormatOptions) -> Formatted:
    """Format a node's directories on this machine."""
    if not (Path(options.data_dir) / FILE_NAME).exists():
        check_unused_log_directories(options.log_dirs)
    formatted = asyncio.run(_format_real(options))
    if options.log_dirs:
        add_log_directories(options.data_dir, options.node_id, options.log_dirs)
    return formatted


async def _format_real(options: FormatOptions) -> Formatted:
    data_dir = Path(options.data_dir)
    disk = await open_disk(data_dir)
    try:
        if not options.is_controller:
            return await format_disks(disk, None, RealRandom(), options)
        quorum_disk = await open_disk(data_dir / QUORUM_DIRECTORY)
        try:
            return await format_disks(disk, quorum_disk, RealRandom(), options)
        finally:
            await quorum_disk.shutdown()
    finally:
        await disk.shutdown()


async def format_disks(
    disk: Disk, quorum_disk: Disk | None, random: Random, options: FormatOptions
) -> Formatted:
    """The same on any disks."""
    _validate(options)
    cluster_id = options.cluster_id or await _interrupted(quorum_disk, options)
    cluster_id = cluster_id or random.uuid().hex()
    quorum = _plan_quorum(options, random, cluster_id) if quorum_disk is not None else None
    identity = await format_node(
        disk,
        quorum_disk,
        identity=NodeIdentity(
            format_version=FORMAT_VERSION,
            cluster_id=cluster_id,
            node_id=options.node_id,
            directory_id=random.uuid().hex(),
        ),
        quorum=quorum,
    )
    return Formatted(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        data_dir=options.data_dir,
        directory_uuid="" if quorum is None else quorum.directory_uuid.hex(),
        voters=()
        if quorum is None
        else tuple(each.id.node_id for each in quorum.bootstrap.members),
        default_replication_factor=_default_replication_factor(options)
        if quorum is not None and quorum.bootstrap.members
        else 0,
    )


async def _interrupted(quorum_disk: Disk | None, options: FormatOptions) -> str:
    """The cluster that a formatting of this very node began, and a crash kept from being whole."""
    if quorum_disk is None or quorum_identity.FILE_NAME not in await quorum_disk.list():
        return ""
    found = await quorum_identity.read_identity(quorum_disk, node_id=options.node_id)
    is_alone = [each.node_id for each in found.bootstrap.voters] == [options.node_id]
    return found.cluster_id if is_alone else ""


def _plan_quorum(options: FormatOptions, random: Random, cluster_id: str) -> QuorumFormat:
    if options.voters:
        voters = options.voters
        own = next(each for each in voters if each.node_id == options.node_id)
    else:
        own = InitialVoter(
            node_id=options.node_id,
            address=options.standalone_address,
            directory_uuid=random.uuid(),
        )
        voters = (own,) if options.standalone_address else ()
    members = sorted(
        (
            Member(
                id=MemberId(NodeId(each.node_id), each.directory_uuid),
                address=each.address,
            )
            for each in voters
        ),
        key=lambda member: member.id,
    )
    return QuorumFormat(
        directory_uuid=own.directory_uuid,
        bootstrap=Members(tuple(members)),
        bootstrap_command=_bootstrap_command(options, cluster_id) if voters else b"",
    )


def _bootstrap_command(options: FormatOptions, cluster_id: str) -> bytes:
    return encode_entry(
        bootstrap_records(
            cluster_id,
            default_replication_factor=_default_replication_factor(options),
            internal_replication_factor=min(REPLICAS_MAX, options.broker_count),
            internal_partition_counts=INTERNAL_PARTITION_COUNTS,
        )
    )


def _default_replication_factor(options: FormatOptions) -> int:
    return options.default_replication_factor or min(REPLICAS_MAX, options.broker_count)


def _validate(options: FormatOptions) -> None:
    if options.standalone_address and options.voters:
        raise _refused("both a quorum of its own and a list of voters are asked for")
    if options.voters and not options.cluster_id:
        raise _refused(
            "the voters need one cluster id, and none is given",
            "Draw one once, and give all of them the same.",
        )
    ids = [each.node_id for each in options.voters]
    uuids = [each.directory_uuid for each in options.voters]
    if len(dict.fromkeys(ids)) < len(ids) or len(dict.fromkeys(uuids)) < len(uuids):
        raise _refused("a node id or a directory uuid stands twice in the list of voters")
    if any(len(uuid) != UUID_BYTES for uuid in uuids):
        raise _refused(f"a directory uuid has {UUID_BYTES} bytes, 32 hexadecimal digits")
    if options.voters and options.node_id not in ids:
        raise _refused(
            f"node {options.node_id} is not in its own list of voters",
            "Name it there, or let it join a quorum that exists.",
        )
    is_joining = options.is_controller and not options.voters and not options.standalone_address
    if (is_joining or not options.is_controller) and not options.cluster_id:
        raise _refused(
            "a node that joins a cluster needs its id",
            "`tidelog cluster describe` shows it.",
        )


def _refused(happened: str, hint: str = "") -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT, tried="format a node's directory", happened=happened, hint=hint
    )
