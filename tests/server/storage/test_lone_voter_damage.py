"""A lone voter whose journal is damaged, cut, empty or gone: what is told, and what goes on.

Whatever became of the files, there is an outcome with a type: the node would lead, or the recovery
makes a quorum directory that opens whole, or only an export helps.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.server.storage.test_restore import TOPIC
from tidelog.metadata.apply.snapshot import EncodedImage, decode_image
from tidelog.metadata.features import bootstrap_records
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    BrokerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    encode_entry,
)
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.effects import Persist
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, HardState, SnapshotId
from tidelog.metadata_quorum.recovery.survey import Survey
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles, open_storage
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.host import RealHost
from tidelog.server.commands import recover, restore
from tidelog.server.storage import formatting
from tidelog.server.storage.formatting import FormatOptions
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

TOPICS: Final = 6
SNAPSHOT_AT: Final = 5
"""Entries that a snapshot holds, where there is one."""
TERM: Final = Term(3)
FLIPS: Final = 40
"""Places in a journal at which one bit is flipped, evenly spread."""


def of_topic(number: int) -> list[MetadataRecord]:
    topic_id = TopicId(TOPIC[:-1] + bytes([number]))
    return [
        TopicRecord(topic_id=topic_id, name=f"t{number}", configuration={}, is_internal=False),
        PartitionRecord(
            topic_id=topic_id,
            partition=PartitionId(0),
            leader_id=BrokerId(1),
            leader_epoch=LeaderEpoch(4),
            partition_epoch=PartitionEpoch(5),
            replicas=(BrokerId(1),),
            in_sync_replicas=(BrokerId(1),),
        ),
    ]


def entries() -> list[Entry]:
    """The cluster, a broker, then a topic an entry."""
    first = bootstrap_records(
        "c",
        default_replication_factor=1,
        internal_replication_factor=1,
        internal_partition_counts={},
    )
    broker = BrokerRecord(
        broker_id=BrokerId(1),
        epoch=BrokerEpoch(3),
        incarnation=bytes(16),
        listeners={"client": "127.0.0.1:1"},
        host_name="",
        rack="",
        is_fenced=False,
    )
    ids = ProducerIdsRecord(
        broker_id=BrokerId(1), broker_epoch=BrokerEpoch(3), next_producer_id=ProducerId(2_000)
    )
    commands: list[list[MetadataRecord]] = [list(first), [broker, ids]]
    commands += [of_topic(number) for number in range(TOPICS)]
    return [
        Entry(
            index=LogIndex(place),
            term=TERM,
            kind=EntryKind.COMMAND,
            data=encode_entry(records),
        )
        for place, records in enumerate(commands, start=1)
    ]


async def fill(directory: Path, *, has_snapshot: bool, is_killed: bool) -> None:
    """A first life and the beginning of a second one, which ends in order or does not."""
    disk = await open_disk(directory)
    storage = await open_storage(disk, boot_id=RealHost().boot_id())
    for entry in entries():
        state = HardState(term=TERM, voted_for=storage.member_id)
        await storage.perform([Persist(sequence=0, hard_state=state, entries=(entry,))])
        if has_snapshot and entry.index == SNAPSHOT_AT:
            await save_snapshot(storage)
        if entry.index == SNAPSHOT_AT:
            storage = await open_storage(disk, boot_id=RealHost().boot_id())
    if not is_killed:
        await storage.close()
    await disk.shutdown()


async def save_snapshot(storage: QuorumStorageFiles) -> None:
    machine = MetadataStateMachine()
    machine.apply(entries()[:SNAPSHOT_AT])
    await storage.save_snapshot(
        SnapshotId(LogIndex(SNAPSHOT_AT + 1), TERM),
        storage.identity.bootstrap,
        tuple(EncodedImage(machine.image(), None)),
    )


@pytest.fixture(
    scope="module",
    params=[(True, False), (False, False), (True, True), (False, True)],
    ids=["snapshot", "no snapshot", "snapshot, killed", "no snapshot, killed"],
)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lone voter's data directory, in order."""
    data = tmp_path_factory.mktemp("lone") / "data"
    formatting.format_storage(
        FormatOptions(data_dir=str(data), node_id=1, standalone_address="127.0.0.1:9193")
    )
    has_snapshot, is_killed = request.param
    asyncio.run(fill(data / "quorum", has_snapshot=has_snapshot, is_killed=is_killed))
    return data


def journal(data: Path) -> Path:
    return max((data / "quorum").glob("journal-*.log"), key=lambda file: file.stat().st_size)


Damage = Callable[[Path], None]


def flips(size: int) -> Iterator[Damage]:
    for number in range(FLIPS):
        yield partial(flip, at=size * number // FLIPS)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def cut(file: Path, length: int) -> None:
    file.write_bytes(file.read_bytes()[:length])


def cuts(size: int) -> Iterator[Damage]:
    for length in (*range(0, size, max(1, size // FLIPS)), size - 1):
        yield partial(cut, length=length)


def removals(size: int) -> Iterator[Damage]:
    del size
    yield Path.unlink


KINDS: Final[dict[str, Callable[[int], Iterator[Damage]]]] = {
    "flipped": flips,
    "cut": cuts,
    "gone": removals,
}


def starts(data: Path) -> bool:
    """Whether the node would lead: its storage opens, and nothing has to be fetched."""

    async def ask() -> bool:
        disk = await open_disk(data / "quorum")
        try:
            storage = await open_storage(disk, boot_id=RealHost().boot_id())
            return storage.recovered.hard_state.repair is None
        except TidelogError:
            return False
        finally:
            await disk.shutdown()

    return asyncio.run(ask())


def image_of(data: Path) -> Image:
    """What a recovered node begins with; its directory opens whole."""

    async def ask() -> Image:
        disk = await open_disk(data / "quorum")
        try:
            storage = await open_storage(disk)
            assert storage.recovered.hard_state.repair is None
            assert storage.recovered.snapshot is not None
            image, _ = decode_image(await storage.load_state(storage.recovered.snapshot))
            return image
        finally:
            await disk.shutdown()

    return asyncio.run(ask())


def contents(data: Path) -> dict[str, bytes]:
    files = (each for each in (data / "quorum").iterdir() if each.name != ".lock")
    return {each.name: each.read_bytes() for each in files}


def outcome(data: Path) -> str:
    """What `storage info` says and `quorum recover` does of a copy that is damaged."""
    before = contents(data)
    _, found = recover.survey_directory(str(data))
    try:
        directory, found, recovery = recover.plan_recovery(str(data))
        kept = recover.kept_of(directory, found, recovery)
    except TidelogError as error:
        return refused(data, found, error, before)
    assert before == contents(data)
    assert kept is not None
    assert found.has_lost
    assert "`tidelog quorum recover --unsafe` goes on without them" in found.damage[-1]
    done = recover.recover(directory, found, recovery, kept)
    assert done.backup.is_dir()
    check_skipped(image_of(data))
    assert starts(data)
    return "recovered"


def refused(data: Path, found: Survey, error: TidelogError, before: dict[str, bytes]) -> str:
    """Nothing was changed, and what is said is true."""
    assert before == contents(data)
    if "it is the only voter already" in error.happened:
        assert not found.has_lost
        assert starts(data), "then it leads as soon as it runs"
        return "starts"
    assert error.code is ErrorCode.STORAGE_CORRUPT
    assert "only a file of `tidelog metadata export` helps" in error.happened
    return "export"


def check_skipped(image: Image) -> None:
    """A shortened image gives out nothing that was given out behind the damage."""
    assert image.cluster_id
    assert image.version >= restore.INDEXES_SKIPPED
    assert image.last_broker_epoch >= restore.BROKER_EPOCHS_SKIPPED
    assert image.next_producer_id >= restore.PRODUCER_IDS_SKIPPED
    assert all(broker.is_fenced for broker in image.brokers.values())
    for topic in image.topics.values():
        for partition in topic.partitions:
            assert partition.leader_epoch >= 4 + restore.EPOCHS_SKIPPED


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_damage_of_a_lone_voters_journal_has_an_outcome(
    whole: Path, tmp_path: Path, kind: str
) -> None:
    has_snapshot = any((whole / "quorum").glob("snapshot-*"))
    size = journal(whole).stat().st_size
    seen = set()
    for number, damage in enumerate(KINDS[kind](size)):
        data = tmp_path / str(number)
        shutil.copytree(whole, data, ignore=shutil.ignore_patterns(".lock"))
        damage(journal(data))
        seen.add(outcome(data))
    assert seen <= {"starts", "recovered", "export"}
    assert "recovered" in seen or kind != "flipped"
    if kind == "gone" and not has_snapshot:
        assert seen == {"export"}


def test_a_recovered_lone_voter_keeps_what_lies_before_the_damage(
    whole: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(whole, data, ignore=shutil.ignore_patterns(".lock"))
    lost = TopicId(TOPIC[:-1] + bytes([TOPICS - 1]))
    (data / f"{lost.hex()}-0").mkdir()
    content = journal(data).read_bytes()
    flip(journal(data), content.index(b"t4"))
    directory, found, recovery = recover.plan_recovery(str(data))
    kept = recover.kept_of(directory, found, recovery)
    assert kept is not None
    assert sorted(topic.name for topic in kept.image.topics.values()) == ["t0", "t1", "t2", "t3"]
    assert kept.unknown_directories == (f"{lost.hex()}-0",)
    assert recovery.lost_here == "7 to 8"
    recover.recover(directory, found, recovery, kept)
    recovered = image_of(data)
    assert len(recovered.topics) == 4
    assert msgspec.structs.replace(recovered, version=0) == msgspec.structs.replace(
        kept.image, version=0
    )


def test_without_marks_a_lone_voter_goes_on_with_its_journal(whole: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(whole, data, ignore=shutil.ignore_patterns(".lock"))
    (data / "quorum" / "marks").write_bytes(b"")
    assert not starts(data)
    assert outcome(data) == "recovered"
    assert len(image_of(data).topics) == TOPICS
