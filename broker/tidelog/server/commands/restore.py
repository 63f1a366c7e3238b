"""A new cluster from an exported copy of the metadata: `tidelog storage format --restore FILE`.

Owns what of the copy is taken over, and the form of the file: a snapshot of the quorum, whose
checksums are all checked. Numbers that only ever grow jump ahead, so that nothing which was given
out after the export is given out a second time. Records that lie in the directory stay, if they are
of the same cluster. Who was in sync when the export was made says nothing of who is now, and what
the directories were expected to hold nothing of what they hold: nobody counts as sure, every
replica is asked, and the longest log leads. It must never replace a quorum's directory. One that
was interrupted is completed by the next.
"""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.image.image import (
    NO_LEADER,
    BrokerImage,
    Image,
    ImageMap,
    PartitionImage,
    TopicImage,
)
from tidelog.metadata.image.index import IndexChanges, PartitionIndex
from tidelog.metadata_quorum.raft.effects import ResetLog
from tidelog.metadata_quorum.raft.types import (
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    SnapshotId,
)
from tidelog.metadata_quorum.recovery.survey import survey
from tidelog.metadata_quorum.storage import identity as quorum_identity
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.metadata_quorum.storage.snapshot_format import decode_snapshot
from tidelog.ports import Disk, Random
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.random import RealRandom
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import NodeIdentity, QuorumFormat
from tidelog.server.storage.formatting import FormatOptions, Formatted
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, LeaderEpoch, LogIndex, PartitionEpoch, ProducerId, Term

EPOCHS_SKIPPED: Final = 1_000
"""Leader and partition epochs that may have been used since the export, for each partition."""
BROKER_EPOCHS_SKIPPED: Final = 1_000_000
PRODUCER_IDS_SKIPPED: Final = 1_000_000_000
INDEXES_SKIPPED: Final = 1_000_000_000
"""Entries that may have followed the export: a broker that still runs must find itself behind."""
RESTORED_TERM: Final = Term(1)


def decode_export(data: bytes, where: str) -> Image:
    """What was exported; STORAGE_CORRUPT, naming the byte, if a byte of the file is wrong."""
    try:
        image, _ = decode_image(decode_snapshot(data, where).state)
    except TidelogError as error:
        raise TidelogError(
            error.code,
            tried=f"read the exported metadata in {where}",
            happened=error.happened,
            hint="Nothing was changed. Take another copy: this one is damaged, cut off, or no "
            "file of `tidelog metadata export`."
            if error.code is ErrorCode.STORAGE_CORRUPT
            else "Nothing was changed. Use the release that wrote it, or a later one.",
        ) from None
    return image


def renewed(image: Image, cluster_id: str) -> Image:
    """As a new cluster begins with it: brokers fenced, numbers ahead of all that were in use."""
    assert cluster_id, "a cluster has an id"
    topics = {topic.topic_id: _renewed_topic(topic) for topic in image.topics.values()}
    brokers = {broker.broker_id: _renewed_broker(broker) for broker in image.brokers.values()}
    changes = IndexChanges()
    for topic_id, topic in topics.items():
        for partition in topic.partitions:
            changes.add(topic_id, None, partition)
    return msgspec.structs.replace(
        image,
        version=image.version + INDEXES_SKIPPED,
        cluster_id=cluster_id,
        topics=ImageMap.of(topics),
        index=changes.apply_to(PartitionIndex()),
        brokers=ImageMap.of(brokers),
        last_broker_epoch=BrokerEpoch(image.last_broker_epoch + BROKER_EPOCHS_SKIPPED),
        next_producer_id=ProducerId(image.next_producer_id + PRODUCER_IDS_SKIPPED),
    )


def _renewed_broker(broker: BrokerImage) -> BrokerImage:
    return msgspec.structs.replace(
        broker, is_fenced=True, is_shutting_down=False, directory_epochs=()
    )


def _renewed_topic(topic: TopicImage) -> TopicImage:
    partitions = tuple(_renewed_partition(each) for each in topic.partitions)
    return msgspec.structs.replace(topic, partitions=partitions)


def _renewed_partition(partition: PartitionImage) -> PartitionImage:
    ahead = msgspec.structs.replace(
        partition,
        leader_epoch=LeaderEpoch(partition.leader_epoch + EPOCHS_SKIPPED),
        partition_epoch=PartitionEpoch(partition.partition_epoch + EPOCHS_SKIPPED),
    )
    if len(partition.replicas) == 1:
        return ahead
    return msgspec.structs.replace(
        ahead,
        leader_id=NO_LEADER,
        in_sync_replicas=(),
        eligible_replicas=(),
        last_known_eligible=partition.replicas,
    )


def restore_storage(options: FormatOptions, file: Path) -> tuple[Formatted, Image]:
    """Format a node's directory on this machine with what was exported."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"read the exported metadata in {file}",
            happened=error.strerror or str(error),
            hint="Name a file that `tidelog metadata export` wrote and that you may read.",
        ) from None
    return asyncio.run(_restore_real(options, data, str(file)))


async def _restore_real(options: FormatOptions, data: bytes, where: str) -> tuple[Formatted, Image]:
    image = decode_export(data, where)
    directory = Path(options.data_dir)
    disk = await open_disk(directory)
    try:
        quorum_disk = await open_disk(directory / storage_format.QUORUM_DIRECTORY)
        try:
            return await restore_disks(disk, quorum_disk, RealRandom(), options, image)
        finally:
            await quorum_disk.shutdown()
    finally:
        await disk.shutdown()


async def restore_disks(
    disk: Disk, quorum_disk: Disk, random: Random, options: FormatOptions, image: Image
) -> tuple[Formatted, Image]:
    """The same on any disks."""
    cluster_id = options.cluster_id or image.cluster_id
    members = _members(options, random)
    own = next(each for each in members if each.id.node_id == options.node_id)
    restored = renewed(image, cluster_id)
    await _check_data(disk, quorum_disk, options.node_id, cluster_id)
    uuid = await _format_quorum(quorum_disk, options, cluster_id, own, members)
    await _write_snapshot(quorum_disk, members, restored)
    if not await storage_format.is_formatted(disk):
        await storage_format.format_node(
            disk,
            quorum_disk,
            identity=NodeIdentity(
                format_version=storage_format.FORMAT_VERSION,
                cluster_id=cluster_id,
                node_id=options.node_id,
                directory_id=random.uuid().hex(),
            ),
            quorum=QuorumFormat(directory_uuid=uuid, bootstrap=members, bootstrap_command=b""),
        )
    formatted = Formatted(
        cluster_id=cluster_id,
        node_id=options.node_id,
        data_dir=options.data_dir,
        directory_uuid=uuid.hex(),
        voters=tuple(each.id.node_id for each in members),
    )
    return formatted, restored


async def _check_data(disk: Disk, quorum_disk: Disk, node_id: int, cluster_id: str) -> None:
    """Records that are here stay, if they are the restored cluster's; a quorum is not replaced."""
    tried = f"restore metadata to {disk.name}"
    if quorum_identity.FILE_NAME in await quorum_disk.list():
        found = await quorum_identity.read_identity(quorum_disk, node_id=node_id)
        is_restored = bool(found.bootstrap.members) and not found.bootstrap_command
        if not is_restored or await _has_content(quorum_disk):
            raise TidelogError(
                ErrorCode.STORAGE_IN_USE,
                tried=tried,
                happened=f"{quorum_disk.name} is formatted already",
                hint="Nothing was changed. Name an empty directory, or move that one away.",
            )
    if await storage_format.is_formatted(disk):
        kept = await storage_format.read_identity(disk, node_id)
        if kept.cluster_id != cluster_id:
            raise TidelogError(
                ErrorCode.WRONG_CLUSTER,
                tried=tried,
                happened=f"it belongs to cluster {kept.cluster_id}, not to {cluster_id}",
                hint="Nothing was changed. Name an empty directory, or the other cluster's export.",
            )


async def _has_content(quorum_disk: Disk) -> bool:
    """Whether a restore was completed, or the node has run since."""
    found = await survey(quorum_disk)
    return found.snapshot is not None or found.last_index > 0


def _members(options: FormatOptions, random: Random) -> Members:
    voters = [
        Member(id=MemberId(NodeId(each.node_id), each.directory_uuid), address=each.address)
        for each in options.voters
    ]
    if not voters and options.standalone_address:
        own = MemberId(NodeId(options.node_id), random.uuid())
        voters = [Member(id=own, address=options.standalone_address)]
    if options.node_id not in [each.id.node_id for each in voters]:
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried="restore metadata",
            happened=f"node {options.node_id} is none of the first voters",
            hint="Restore to the first voters only; what joins later gets everything from them.",
        )
    return Members(tuple(sorted(voters, key=lambda each: each.id)))


async def _format_quorum(
    disk: Disk, options: FormatOptions, cluster_id: str, own: Member, members: Members
) -> bytes:
    """The directory's uuid; one that an interrupted restore left is completed."""
    if quorum_identity.FILE_NAME in await disk.list():
        found = await quorum_identity.read_identity(
            disk, node_id=options.node_id, cluster_id=cluster_id
        )
        return found.directory_uuid
    await quorum_identity.format_storage(
        disk,
        cluster_id=cluster_id,
        node_id=options.node_id,
        directory_uuid=own.id.directory_uuid,
        bootstrap=members,
        bootstrap_command=b"",
    )
    return own.id.directory_uuid


async def _write_snapshot(disk: Disk, members: Members, image: Image) -> None:
    """As if it had been fetched from a leader."""
    storage = await open_storage(disk)
    if storage.recovered.snapshot is None:
        in_force = _as_formatted(members, storage.identity)
        snapshot = await storage.save_snapshot(
            SnapshotId(end_index=LogIndex(image.version + 1), term=RESTORED_TERM),
            in_force,
            tuple(EncodedImage(image, None)),
        )
        state = HardState(term=RESTORED_TERM)
        await storage.perform([ResetLog(sequence=0, snapshot=snapshot, hard_state=state)])
    await storage.close()


def _as_formatted(members: Members, identity: quorum_identity.QuorumIdentity) -> Members:
    """A restore that was interrupted has drawn the uuid of a standalone voter already."""
    return identity.bootstrap if identity.bootstrap.members else members
