"""The state machine: any way to the same entries gives the same image; a group is seen whole."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.apply.snapshot import decode_image
from tidelog.metadata.features import bootstrap_records
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    AbortRecord,
    BeginRecord,
    BrokerChangeRecord,
    BrokerConfigurationRecord,
    BrokerDirectory,
    BrokerRecord,
    BrokerRemovedRecord,
    ClusterConfigurationRecord,
    EndRecord,
    FeatureRecord,
    GroupConfigurationRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    TopicConfigurationChangeRecord,
    TopicRecord,
    TopicRemovedRecord,
    encode_entry,
)
from tidelog.metadata_quorum.quorum.state_machine import MetadataStateMachine
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, Members, Snapshot, SnapshotId
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

Choice = tuple[int, int, int]
CHOICES = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=40,
)

POPULATED: list[Choice] = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 2, 3), (1, 5, 1)]
"""Three brokers and two topics, so that what is drawn finds something to change."""


def entry(index: int, *records: MetadataRecord) -> Entry:
    """A command; without records an EMPTY entry."""
    kind = EntryKind.COMMAND if records else EntryKind.EMPTY
    data = encode_entry(records) if records else b""
    return Entry(index=LogIndex(index), term=Term(1), kind=kind, data=data)


def broker(image: Image, number: int) -> BrokerRecord:
    """A registration."""
    known = image.brokers.get(BrokerId(number))
    return BrokerRecord(
        broker_id=BrokerId(number),
        epoch=BrokerEpoch(image.last_broker_epoch + 1),
        incarnation=bytes(16),
        listeners={"client": f"h:{number}"},
        directories=(BrokerDirectory(bytes([number]) * 16),),
        unflushed_since=None if known is None else known.epoch,
    )


def records_for(image: Image, choice: Choice, drawn: int) -> list[MetadataRecord]:
    """Valid records for the image; none if the choice makes no sense there."""
    kind, one, two = choice
    brokers = list(image.brokers)
    topics = list(image.topics)
    if kind == 0:
        return [broker(image, one)]
    if kind == 1 and brokers:
        return _new_topic(brokers, one, two, drawn)
    if kind in (2, 3) and topics:
        return _partition_change(image, topics[one % len(topics)], two)
    if kind == 4 and brokers:
        known = image.brokers[brokers[one % len(brokers)]]
        if two == 0 and not image.held_by(known.broker_id).count:
            return [BrokerRemovedRecord(broker_id=known.broker_id, epoch=known.epoch)]
        return [
            BrokerChangeRecord(
                broker_id=known.broker_id,
                epoch=known.epoch,
                is_fenced=two % 2 == 0,
                is_draining=two % 3 == 0,
                is_shutting_down=None if two < 4 else two == 5,
            )
        ]
    if kind == 5 and topics:
        return [TopicRemovedRecord(topic_id=topics[one % len(topics)])]
    if kind == 6 and topics:
        changes = {f"s{one}": None if two < 3 else str(two)}
        epoch = image.last_broker_epoch if two % 2 else None
        changed = TopicConfigurationChangeRecord(
            topic_id=topics[two % len(topics)], changes=changes, flushed_since=epoch
        )
        return [changed]
    return _cluster_wide(image, choice)


def _cluster_wide(image: Image, choice: Choice) -> list[MetadataRecord]:
    kind, one, two = choice
    value = None if two < 3 else str(two)
    match kind:
        case 7:
            return [ClusterConfigurationRecord(changes={f"s{one}": value})]
        case 8:
            broker_id = BrokerId(one)
            return [BrokerConfigurationRecord(broker_id=broker_id, changes={f"s{two}": value})]
        case 9:
            return [GroupConfigurationRecord(group=f"g{one}", changes={"s": value})]
        case 10:
            return [QuotaRecord(client_id=f"c{one}", fetch_bytes_per_second=two or None)]
        case 11:
            return [
                ProducerIdsRecord(
                    broker_id=BrokerId(one),
                    broker_epoch=BrokerEpoch(1),
                    next_producer_id=ProducerId(image.next_producer_id + 1_000),
                )
            ]
        case 12:
            return [FeatureRecord(name="metadata.version", level=1)]
        case _:
            return []


def _new_topic(brokers: list[BrokerId], one: int, two: int, drawn: int) -> list[MetadataRecord]:
    topic_id = TopicId(drawn.to_bytes(16, "big"))
    made: list[MetadataRecord] = [TopicRecord(topic_id=topic_id, name=f"t{drawn}")]
    for number in range(two + 1):
        start = (one + number) % len(brokers)
        replicas = tuple((brokers[start:] + brokers[:start])[: 1 + one % 3])
        made.append(
            PartitionRecord(
                topic_id=topic_id,
                partition=PartitionId(number),
                leader_id=replicas[0],
                leader_epoch=LeaderEpoch(0),
                partition_epoch=PartitionEpoch(0),
                replicas=replicas,
                in_sync_replicas=replicas,
                directories=tuple(bytes([each]) * 16 for each in replicas),
            )
        )
    return made


def _partition_change(image: Image, topic_id: TopicId, two: int) -> list[MetadataRecord]:
    topic = image.topics[topic_id]
    known = topic.partitions[two % len(topic.partitions)]
    leader = known.replicas[two % len(known.replicas)] if two < 5 else BrokerId(-1)
    adding: tuple[BrokerId, ...] = ()
    new = [each for each in image.brokers if each not in known.replicas]
    if two == 3 and new and not known.adding_replicas:
        adding = (new[0],)
    return [
        PartitionChangeRecord(
            topic_id=topic_id,
            partition=known.partition,
            partition_epoch=PartitionEpoch(known.partition_epoch + 1),
            leader_id=leader,
            leader_epoch=LeaderEpoch(known.leader_epoch + 1),
            in_sync_replicas=(leader,) if leader >= 0 else (),
            eligible_replicas=tuple(each for each in known.replicas if each != leader),
            replicas=known.replicas + adding if adding else None,
            directories=(*known.directories, b"") if adding else None,
            adding_replicas=adding or (() if two == 4 else None),
            is_recovered_unclean=True if two == 6 else None,
        )
    ]


def history(choices: Sequence[Choice]) -> list[Entry]:
    """A valid log: single entries, groups over several ones, groups that end in nothing."""
    image = Image()
    entries: list[Entry] = []

    def write(*records: MetadataRecord) -> None:
        entries.append(entry(len(entries) + 1, *records))

    first = bootstrap_records(
        "c",
        default_replication_factor=3,
        internal_replication_factor=3,
        internal_partition_counts={"__offsets": 16},
    )
    write(*first)
    image = apply_entry(image, first)
    for drawn, choice in enumerate(choices):
        records = records_for(image, choice, drawn)
        after = apply_entry(image, records)
        style = choice[1]
        if style == 6:
            write(BeginRecord(name="n"), *records)
            write()
            write(EndRecord())
        elif style == 7:
            write(BeginRecord())
            write(*records)
            write(AbortRecord() if choice[2] % 2 else BeginRecord())
            write(AbortRecord())
            after = image
        else:
            write(*records)
        image = after
    return entries


def snapshot_at(machine: MetadataStateMachine) -> tuple[Snapshot, list[bytes]]:
    """What the runner would save now."""
    state = list(machine.capture()())
    snapshot_id = SnapshotId(end_index=LogIndex(machine.applied_index + 1), term=Term(1))
    size_bytes = sum(len(piece) for piece in state)
    return Snapshot(id=snapshot_id, members=Members(), size_bytes=size_bytes), state


@given(CHOICES, st.integers(0, 1_000), st.integers(1, 9))
def test_one_by_one_and_in_batches_and_from_a_snapshot_the_image_is_the_same(
    choices: list[Choice], cut: int, batch: int
) -> None:
    entries = history([*POPULATED, *choices])
    cut %= len(entries) + 1
    shown: list[Image] = [Image()]

    def see(image: Image) -> None:
        invariants.check_step(shown[-1], image)
        shown.append(image)

    one_by_one = MetadataStateMachine(see)
    copies: list[bytes] = []
    restored = MetadataStateMachine()
    for place, each in enumerate(entries):
        if place == cut:
            snapshot, state = snapshot_at(one_by_one)
            if place:
                restored.restore(snapshot, state)
        one_by_one.apply((each,))
        copies.append(repr(one_by_one.image()).encode())
        invariants.check(one_by_one.image())
    restored.apply(entries[cut:]) if cut < len(entries) else restored.restore(
        *snapshot_at(one_by_one)
    )
    in_batches = MetadataStateMachine()
    for start in range(0, len(entries), batch):
        in_batches.apply(entries[start : start + batch])
    assert one_by_one.image() == in_batches.image() == restored.image()
    assert list(one_by_one.capture()()) == list(restored.capture()())
    printed = [repr(image).encode() for image in shown[1:]]
    assert all(each in copies for each in printed), "an older image changed"


def test_a_group_is_seen_at_its_end_and_not_before() -> None:
    machine = MetadataStateMachine()
    machine.apply([entry(1, broker(Image(), 1)), entry(2, BeginRecord(), broker(Image(), 2))])
    assert machine.has_open_group()
    assert list(machine.image().brokers) == [1]
    assert machine.image().version == 1
    machine.apply([entry(3)])
    assert machine.image().version == 1
    machine.apply([entry(4, EndRecord())])
    assert list(machine.image().brokers) == [1, 2]
    assert machine.image().version == 4


def test_an_abort_forgets_the_group_and_a_second_begin_forgets_the_first() -> None:
    machine = MetadataStateMachine()
    machine.apply([entry(1, BeginRecord(), broker(Image(), 1)), entry(2, AbortRecord())])
    assert not machine.has_open_group()
    machine.apply([entry(3, BeginRecord(), broker(Image(), 2))])
    machine.apply([entry(4, BeginRecord(), broker(Image(), 3)), entry(5, EndRecord())])
    assert list(machine.image().brokers) == [3]
    assert machine.image().version == 5


def test_an_open_group_lives_on_in_a_snapshot() -> None:
    machine = MetadataStateMachine()
    machine.apply([entry(1), entry(2, BeginRecord(), broker(Image(), 2))])
    other = MetadataStateMachine()
    other.restore(*snapshot_at(machine))
    assert other.has_open_group()
    assert other.applied_index == 2
    other.apply([entry(3, EndRecord())])
    assert list(other.image().brokers) == [2]


def test_a_feature_level_that_this_release_does_not_know_stops_the_node() -> None:
    with pytest.raises(TidelogError) as caught:
        MetadataStateMachine().apply([entry(1, FeatureRecord(name="metadata.version", level=99))])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_snapshot_of_which_a_piece_is_missing_is_corruption() -> None:
    machine = MetadataStateMachine()
    machine.apply(history([(0, 1, 1), (0, 2, 1), (1, 1, 7)]))
    _, state = snapshot_at(machine)
    assert decode_image(state)[0] == machine.image()
    with pytest.raises(TidelogError) as caught:
        decode_image(state[:-1])
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_bytes_that_are_no_snapshot_give_a_typed_error(state: list[bytes]) -> None:
    with pytest.raises(TidelogError):
        decode_image(state)


def test_a_snapshot_is_stored_as_it_was_in_the_first_release() -> None:
    machine = MetadataStateMachine()
    machine.apply([entry(1, FeatureRecord(name="metadata.version", level=1))])
    pieces = [msgspec.msgpack.decode(piece) for piece in machine.capture()()]
    assert pieces == [
        {
            "snapshot_version": 1,
            "image_version": 1,
            "last_broker_epoch": 0,
            "broker_count": 0,
            "topic_count": 0,
            "partition_count": 0,
            "open_group_records": -1,
        },
        [{"type": "feature", "name": "metadata.version", "level": 1}],
    ]
