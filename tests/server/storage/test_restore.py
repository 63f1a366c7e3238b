"""A new cluster from exported metadata: what is taken over, what jumps ahead, what is refused."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.features import bootstrap_records
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.metadata.records.entries import (
    BrokerRecord,
    DirectoryEpoch,
    DirectoryEpochsRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicConfigurationRecord,
    TopicRecord,
)
from tidelog.metadata_quorum.raft.types import Members, SnapshotId
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.metadata_quorum.storage.snapshot_format import SnapshotContent, encode_snapshot
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.disk.lock import take_lock
from tidelog.server.commands import recover, restore
from tidelog.server.storage import formatting
from tidelog.server.storage.formatting import FormatOptions, InitialVoter
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    LogIndex,
    PartitionEpoch,
    PartitionId,
    ProducerId,
    Term,
    TopicId,
)

TOPIC = TopicId(bytes([7]) * 16)
VERSION = 40


def exported_image() -> Image:
    """A topic of one partition on broker 1, which is alive."""
    records = [
        *bootstrap_records(
            "c",
            default_replication_factor=1,
            internal_replication_factor=1,
            internal_partition_counts={},
        ),
        BrokerRecord(
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(3),
            incarnation=bytes(16),
            listeners={"client": "127.0.0.1:1"},
            host_name="",
            rack="",
            is_fenced=False,
        ),
        TopicRecord(topic_id=TOPIC, name="orders", configuration={}, is_internal=False),
        TopicConfigurationRecord(topic_id=TOPIC, configuration={"segment.bytes": "65536"}),
        PartitionRecord(
            topic_id=TOPIC,
            partition=PartitionId(0),
            leader_id=BrokerId(1),
            leader_epoch=LeaderEpoch(4),
            partition_epoch=PartitionEpoch(5),
            replicas=(BrokerId(1),),
            in_sync_replicas=(BrokerId(1),),
        ),
        PartitionRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            leader_id=BrokerId(2),
            leader_epoch=LeaderEpoch(4),
            partition_epoch=PartitionEpoch(5),
            replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
            in_sync_replicas=(BrokerId(2),),
            eligible_replicas=(BrokerId(1),),
        ),
        DirectoryEpochsRecord(
            is_optional=True,
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(3),
            directories=(DirectoryEpoch(bytes(16), BrokerEpoch(3)),),
        ),
        ProducerIdsRecord(
            broker_id=BrokerId(1),
            broker_epoch=BrokerEpoch(3),
            next_producer_id=ProducerId(2_000),
        ),
    ]
    return msgspec.structs.replace(apply_entry(Image(), records), version=VERSION)


def exported() -> bytes:
    """The file as a node sends it."""
    content = SnapshotContent(
        id=SnapshotId(LogIndex(VERSION + 1), Term(0)),
        members=Members(),
        state=tuple(EncodedImage(exported_image(), None)),
    )
    return b"".join(encode_snapshot(content))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metadata.tqs"
    path.write_bytes(exported())
    return path


def standalone(tmp_path: Path, **changes: object) -> FormatOptions:
    options = FormatOptions(
        data_dir=str(tmp_path / "data"), node_id=1, standalone_address="127.0.0.1:9193"
    )
    return msgspec.structs.replace(options, **changes)


def read_back(directory: Path) -> Image:
    """What a node would begin with."""

    async def read() -> Image:
        disk = await open_disk(directory)
        try:
            storage = await open_storage(disk)
            snapshot = storage.recovered.snapshot
            assert snapshot is not None
            assert snapshot.last_index == VERSION + restore.INDEXES_SKIPPED
            image, _ = decode_image(await storage.load_state(snapshot))
            return image
        finally:
            await disk.shutdown()

    return asyncio.run(read())


def test_topics_settings_and_brokers_are_taken_over(tmp_path: Path, file: Path) -> None:
    formatted, _ = restore.restore_storage(standalone(tmp_path), file)
    assert (formatted.cluster_id, formatted.voters) == ("c", (1,))
    image = read_back(tmp_path / "data/quorum")
    topic = image.topic_named("orders")
    assert topic is not None
    assert topic.configuration == {"segment.bytes": "65536"}
    assert image.cluster_id == "c"
    assert image.features == exported_image().features


def test_numbers_that_only_grow_jump_ahead_and_brokers_are_fenced(
    tmp_path: Path, file: Path
) -> None:
    restore.restore_storage(standalone(tmp_path), file)
    image = read_back(tmp_path / "data/quorum")
    partition = image.topics[TOPIC].partitions[0]
    assert partition.leader_epoch == 4 + restore.EPOCHS_SKIPPED
    assert partition.partition_epoch == 5 + restore.EPOCHS_SKIPPED
    assert image.next_producer_id == 2_000 + restore.PRODUCER_IDS_SKIPPED
    assert image.version == VERSION + restore.INDEXES_SKIPPED
    assert image.last_broker_epoch == 3 + restore.BROKER_EPOCHS_SKIPPED
    assert image.brokers[BrokerId(1)].is_fenced


def test_nobody_is_sure_to_hold_everything_and_every_replica_is_asked(
    tmp_path: Path, file: Path
) -> None:
    _, restored = restore.restore_storage(standalone(tmp_path), file)
    invariants.check(restored)
    image = read_back(tmp_path / "data/quorum")
    sole, several = image.topics[TOPIC].partitions
    assert sole.in_sync_replicas == (1,)
    assert several.leader_id == NO_LEADER
    assert (several.in_sync_replicas, several.eligible_replicas) == ((), ())
    assert several.last_known_eligible == (1, 2, 3)


def test_what_the_directories_were_expected_to_hold_is_forgotten(
    tmp_path: Path, file: Path
) -> None:
    restore.restore_storage(standalone(tmp_path), file)
    assert read_back(tmp_path / "data/quorum").brokers[BrokerId(1)].directory_epochs == ()


def test_another_cluster_id_is_that_of_the_image_as_well(tmp_path: Path, file: Path) -> None:
    restore.restore_storage(standalone(tmp_path, cluster_id="other"), file)
    assert read_back(tmp_path / "data/quorum").cluster_id == "other"


def test_every_first_voter_restores_the_same_bytes(tmp_path: Path, file: Path) -> None:
    voters = tuple(
        InitialVoter(
            node_id=number, address=f"127.0.0.1:{number}", directory_uuid=bytes([number]) * 16
        )
        for number in (1, 2)
    )
    found = []
    for number in (1, 2):
        options = FormatOptions(
            data_dir=str(tmp_path / str(number)), node_id=number, cluster_id="c", voters=voters
        )
        restore.restore_storage(options, file)
        (snapshot,) = (tmp_path / str(number) / "quorum").glob("snapshot-*")
        found.append((snapshot.name, snapshot.read_bytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("place", [0, 30, 200, -1])
def test_a_flipped_bit_of_the_file_is_refused_with_nothing_made(
    tmp_path: Path, file: Path, place: int
) -> None:
    data = bytearray(exported())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(TidelogError) as caught:
        restore.restore_storage(standalone(tmp_path), file)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    assert str(file) in caught.value.tried
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("length", [0, 10, 300])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, file: Path, length: int) -> None:
    file.write_bytes(exported()[:length])
    with pytest.raises(TidelogError) as caught:
        restore.restore_storage(standalone(tmp_path), file)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


def test_a_quorum_that_is_there_is_never_replaced(tmp_path: Path, file: Path) -> None:
    formatting.format_storage(standalone(tmp_path))
    for _ in range(2):
        with pytest.raises(TidelogError) as caught:
            restore.restore_storage(standalone(tmp_path, cluster_id="c"), file)
        assert caught.value.code is ErrorCode.STORAGE_IN_USE


def test_a_restore_is_not_done_twice(tmp_path: Path, file: Path) -> None:
    restore.restore_storage(standalone(tmp_path), file)
    with pytest.raises(TidelogError, match="formatted already") as caught:
        restore.restore_storage(standalone(tmp_path), file)
    assert caught.value.code is ErrorCode.STORAGE_IN_USE


def test_records_of_the_same_cluster_stay_those_of_another_are_refused(
    tmp_path: Path, file: Path
) -> None:
    restore.restore_storage(standalone(tmp_path), file)
    quorum = tmp_path / "data/quorum"
    identity = (tmp_path / "data/node.json").read_bytes()
    quorum.rename(tmp_path / "lost")
    with pytest.raises(TidelogError) as caught:
        restore.restore_storage(standalone(tmp_path, cluster_id="other"), file)
    assert caught.value.code is ErrorCode.WRONG_CLUSTER
    restore.restore_storage(standalone(tmp_path), file)
    assert (tmp_path / "data/node.json").read_bytes() == identity
    assert read_back(quorum).topic_named("orders") is not None


def test_a_node_that_is_no_first_voter_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(TidelogError, match="none of the first voters"):
        restore.restore_storage(standalone(tmp_path, standalone_address=""), file)


def test_a_recovered_directory_takes_the_place_of_the_old_one_which_stays(tmp_path: Path) -> None:
    voters = tuple(
        InitialVoter(
            node_id=number, address=f"127.0.0.1:{number}", directory_uuid=bytes([number]) * 16
        )
        for number in (1, 2, 3)
    )
    formatting.format_storage(
        FormatOptions(data_dir=str(tmp_path / "1"), node_id=1, cluster_id="c", voters=voters)
    )
    directory, found, recovery = recover.plan_recovery(str(tmp_path / "1"))
    before = (directory / "quorum.json").read_bytes()
    done = recover.recover(directory, found, recovery)
    assert (done.backup / "quorum.json").read_bytes() == before
    again, after = recover.survey_directory(str(tmp_path / "1"))
    assert again == directory == tmp_path / "1/quorum"
    assert after.members.voters == (recovery.survivor.id,)
    with pytest.raises(TidelogError, match="changed since"):
        recover.recover(directory, found, recovery)


def test_a_directory_that_a_process_holds_is_refused(tmp_path: Path) -> None:
    formatting.format_storage(standalone(tmp_path))

    lock = take_lock(tmp_path / "data/quorum")
    try:
        with pytest.raises(TidelogError) as caught:
            recover.survey_directory(str(tmp_path / "data"))
    finally:
        os.close(lock)
    assert caught.value.code is ErrorCode.STORAGE_IN_USE
    recover.survey_directory(str(tmp_path / "data"))


def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    for name, why in (("nowhere", "is not there"), ("", "is no controller's data directory")):
        with pytest.raises(TidelogError, match=why) as caught:
            recover.find_quorum_directory(str(tmp_path / name))
        assert caught.value.code is ErrorCode.STORAGE_NOT_FORMATTED
