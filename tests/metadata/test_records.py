"""The persisted form of metadata records does not change by accident."""

import contextlib
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.records.entries import (
    AbortRecord,
    BeginRecord,
    BrokerChangeRecord,
    BrokerConfigurationRecord,
    BrokerDirectory,
    BrokerRecord,
    BrokerRemovedRecord,
    ClusterConfigurationRecord,
    ClusterRecord,
    DirectoryEpoch,
    DirectoryEpochsRecord,
    EndRecord,
    FeatureRange,
    FeatureRecord,
    FenceRecord,
    FormatRecord,
    GroupConfigurationRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaRecord,
    TopicConfigurationChangeRecord,
    TopicConfigurationRecord,
    TopicRecord,
    TopicRemovedRecord,
    decode_entry,
    encode_entry,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    ProducerId,
    TopicId,
)

TOPIC = TopicId(bytes(range(16)))

GOLDEN: list[tuple[MetadataRecord, str]] = [
    (
        FormatRecord(cluster_id="c"),
        (
            "9184a474797065a6666f726d6174a776657273696f6e01ab69735f6f7074696f6e616cc2aa636c75"
            "737465725f6964a163"
        ),
    ),
    (
        FenceRecord(broker_id=BrokerId(3), epoch=BrokerEpoch(4), is_fenced=True),
        (
            "9186a474797065a566656e6365a776657273696f6e01ab69735f6f7074696f6e616cc2a962726f6b"
            "65725f696403a565706f636804a969735f66656e636564c3"
        ),
    ),
    (
        TopicRecord(topic_id=TOPIC, name="t", configuration={"segment.bytes": "2048"}),
        (
            "9187a474797065a5746f706963a776657273696f6e01ab69735f6f7074696f6e616cc2a8746f7069"
            "635f6964c410000102030405060708090a0b0c0d0e0fa46e616d65a174ad636f6e66696775726174"
            "696f6e81ad7365676d656e742e6279746573a432303438ab69735f696e7465726e616cc2"
        ),
    ),
    (
        ClusterRecord(
            default_replication_factor=3,
            internal_replication_factor=3,
            internal_partition_counts={"__offsets": 16},
        ),
        (
            "9184a474797065a7636c7573746572ba64656661756c745f7265706c69636174696f6e5f66616374"
            "6f7203bb696e7465726e616c5f7265706c69636174696f6e5f666163746f7203b9696e7465726e61"
            "6c5f706172746974696f6e5f636f756e747381a95f5f6f66667365747310"
        ),
    ),
    (
        FeatureRecord(name="metadata.version", level=1),
        (
            "9183a474797065a766656174757265a46e616d65b06d657461646174612e76657273696f6ea56c65"
            "76656c01"
        ),
    ),
    (
        BeginRecord(name="n"),
        ("9182a474797065a5626567696ea46e616d65a16e"),
    ),
    (
        EndRecord(),
        ("9181a474797065a3656e64"),
    ),
    (
        AbortRecord(reason="r"),
        ("9182a474797065a561626f7274a6726561736f6ea172"),
    ),
    (
        BrokerRecord(
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(2),
            incarnation=b"i",
            listeners={"client": "h:1"},
            host_name="h",
            rack="r",
            is_fenced=False,
            directories=(BrokerDirectory(b"d", False),),
            features={"f": FeatureRange(1, 2)},
            boot_id="b",
            release="1",
        ),
        (
            "918ca474797065a662726f6b6572a962726f6b65725f696401a565706f636802ab696e6361726e61"
            "74696f6ec40169a96c697374656e65727381a6636c69656e74a3683a31a9686f73745f6e616d65a1"
            "68a47261636ba172a969735f66656e636564c2ab6469726563746f726965739192c40164c2a86665"
            "61747572657381a166920102a7626f6f745f6964a162a772656c65617365a131"
        ),
    ),
    (
        BrokerRecord(
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(2),
            incarnation=b"i",
            listeners={},
            unflushed_since=BrokerEpoch(1),
        ),
        (
            "9186a474797065a662726f6b6572a962726f6b65725f696401a565706f636802ab696e6361726e61"
            "74696f6ec40169a96c697374656e65727380af756e666c75736865645f73696e636501"
        ),
    ),
    (
        TopicConfigurationChangeRecord(
            topic_id=TOPIC, changes={"flush": "sync"}, flushed_since=BrokerEpoch(2)
        ),
        (
            "9184a474797065ba746f7069635f636f6e66696775726174696f6e5f6368616e6765a8746f706963"
            "5f6964c410000102030405060708090a0b0c0d0e0fa76368616e67657381a5666c757368a473796e"
            "63ad666c75736865645f73696e636502"
        ),
    ),
    (
        BrokerChangeRecord(
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(2),
            is_fenced=True,
            is_shutting_down=True,
            is_draining=False,
            directories=(),
        ),
        (
            "9187a474797065ad62726f6b65725f6368616e6765a962726f6b65725f696401a565706f636802a9"
            "69735f66656e636564c3b069735f7368757474696e675f646f776ec3ab69735f647261696e696e67"
            "c2ab6469726563746f7269657390"
        ),
    ),
    (
        DirectoryEpochsRecord(
            is_optional=True,
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(2),
            directories=(
                DirectoryEpoch(b"d", BrokerEpoch(2)),
                DirectoryEpoch(b"e", BrokerEpoch(2), BrokerEpoch(2), BrokerEpoch(1)),
            ),
        ),
        (
            "9185a474797065b06469726563746f72795f65706f636873ab69735f6f7074696f6e616cc3a96272"
            "6f6b65725f696401a565706f636802ab6469726563746f726965739294c4016402c0c094c4016502"
            "0201"
        ),
    ),
    (
        BrokerRemovedRecord(broker_id=BrokerId(1), epoch=BrokerEpoch(2)),
        ("9183a474797065ae62726f6b65725f72656d6f766564a962726f6b65725f696401a565706f636802"),
    ),
    (
        TopicRemovedRecord(topic_id=TOPIC),
        (
            "9182a474797065ad746f7069635f72656d6f766564a8746f7069635f6964c4100001020304050607"
            "08090a0b0c0d0e0f"
        ),
    ),
    (
        PartitionRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            leader_id=BrokerId(2),
            leader_epoch=LeaderEpoch(3),
            partition_epoch=PartitionEpoch(4),
            replicas=(BrokerId(2), BrokerId(5)),
            in_sync_replicas=(BrokerId(2),),
            directories=(b"d", b""),
            eligible_replicas=(BrokerId(5),),
            last_known_eligible=(BrokerId(5),),
            adding_replicas=(BrokerId(5),),
            removing_replicas=(BrokerId(2),),
            is_recovered_unclean=True,
        ),
        (
            "91de000ea474797065a9706172746974696f6ea8746f7069635f6964c41000010203040506070809"
            "0a0b0c0d0e0fa9706172746974696f6e01a96c65616465725f696402ac6c65616465725f65706f63"
            "6803af706172746974696f6e5f65706f636804a87265706c69636173920205b0696e5f73796e635f"
            "7265706c696361739102ab6469726563746f7269657392c40164c400b1656c696769626c655f7265"
            "706c696361739105b36c6173745f6b6e6f776e5f656c696769626c659105af616464696e675f7265"
            "706c696361739105b172656d6f76696e675f7265706c696361739102b469735f7265636f76657265"
            "645f756e636c65616ec3"
        ),
    ),
    (
        PartitionChangeRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            partition_epoch=PartitionEpoch(5),
            leader_id=BrokerId(5),
            leader_epoch=LeaderEpoch(4),
            replicas=(BrokerId(5),),
            in_sync_replicas=(BrokerId(5),),
            directories=(b"d",),
            eligible_replicas=(),
            last_known_eligible=(),
            adding_replicas=(),
            removing_replicas=(),
            is_recovered_unclean=False,
        ),
        (
            "91de000ea474797065b0706172746974696f6e5f6368616e6765a8746f7069635f6964c410000102"
            "030405060708090a0b0c0d0e0fa9706172746974696f6e01af706172746974696f6e5f65706f6368"
            "05a96c65616465725f696405ac6c65616465725f65706f636804a87265706c696361739105b0696e"
            "5f73796e635f7265706c696361739105ab6469726563746f7269657391c40164b1656c696769626c"
            "655f7265706c6963617390b36c6173745f6b6e6f776e5f656c696769626c6590af616464696e675f"
            "7265706c6963617390b172656d6f76696e675f7265706c6963617390b469735f7265636f76657265"
            "645f756e636c65616ec2"
        ),
    ),
    (
        PartitionRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            leader_id=BrokerId(2),
            leader_epoch=LeaderEpoch(3),
            partition_epoch=PartitionEpoch(4),
            replicas=(BrokerId(2), BrokerId(5)),
            in_sync_replicas=(BrokerId(2), BrokerId(5)),
            removing_replicas=(BrokerId(5),),
            called_off_replicas=(BrokerId(5),),
        ),
        (
            "91de000aa474797065a9706172746974696f6ea8746f7069635f6964c41000010203040506070809"
            "0a0b0c0d0e0fa9706172746974696f6e01a96c65616465725f696402ac6c65616465725f65706f63"
            "6803af706172746974696f6e5f65706f636804a87265706c69636173920205b0696e5f73796e635f"
            "7265706c69636173920205b172656d6f76696e675f7265706c696361739105b363616c6c65645f6f"
            "66665f7265706c696361739105"
        ),
    ),
    (
        PartitionChangeRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            partition_epoch=PartitionEpoch(5),
            called_off_replicas=(),
        ),
        (
            "91de0005a474797065b0706172746974696f6e5f6368616e6765a8746f7069635f6964c410000102"
            "030405060708090a0b0c0d0e0fa9706172746974696f6e01af706172746974696f6e5f65706f6368"
            "05b363616c6c65645f6f66665f7265706c6963617390"
        ),
    ),
    (
        PartitionChangeRecord(
            topic_id=TOPIC,
            partition=PartitionId(1),
            partition_epoch=PartitionEpoch(5),
            unclean_epoch=LeaderEpoch(3),
        ),
        (
            "91de0005a474797065b0706172746974696f6e5f6368616e6765a8746f7069635f6964c410000102"
            "030405060708090a0b0c0d0e0fa9706172746974696f6e01af706172746974696f6e5f65706f6368"
            "05ad756e636c65616e5f65706f636803"
        ),
    ),
    (
        TopicConfigurationRecord(topic_id=TOPIC, configuration={"a": "b"}),
        (
            "9185a474797065b3746f7069635f636f6e66696775726174696f6ea776657273696f6e01ab69735f"
            "6f7074696f6e616cc2a8746f7069635f6964c410000102030405060708090a0b0c0d0e0fad636f6e"
            "66696775726174696f6e81a161a162"
        ),
    ),
    (
        TopicConfigurationChangeRecord(topic_id=TOPIC, changes={"a": "b", "c": None}),
        (
            "9183a474797065ba746f7069635f636f6e66696775726174696f6e5f6368616e6765a8746f706963"
            "5f6964c410000102030405060708090a0b0c0d0e0fa76368616e67657382a161a162a163c0"
        ),
    ),
    (
        ClusterConfigurationRecord(changes={"a": "b", "c": None}),
        (
            "9182a474797065b5636c75737465725f636f6e66696775726174696f6ea76368616e67657382a161"
            "a162a163c0"
        ),
    ),
    (
        BrokerConfigurationRecord(broker_id=BrokerId(1), changes={"a": None}),
        (
            "9183a474797065b462726f6b65725f636f6e66696775726174696f6ea962726f6b65725f696401a7"
            "6368616e67657381a161c0"
        ),
    ),
    (
        GroupConfigurationRecord(group="g", changes={"a": "b"}),
        (
            "9183a474797065b367726f75705f636f6e66696775726174696f6ea567726f7570a167a76368616e"
            "67657381a161a162"
        ),
    ),
    (
        QuotaRecord(
            client_id="c",
            produce_bytes_per_second=1,
            fetch_bytes_per_second=2,
            requests_per_second=3,
        ),
        (
            "9185a474797065a571756f7461a9636c69656e745f6964a163b870726f647563655f62797465735f"
            "7065725f7365636f6e6401b666657463685f62797465735f7065725f7365636f6e6402b372657175"
            "657374735f7065725f7365636f6e6403"
        ),
    ),
    (
        ProducerIdsRecord(
            broker_id=BrokerId(1), broker_epoch=BrokerEpoch(2), next_producer_id=ProducerId(1000)
        ),
        (
            "9184a474797065ac70726f64756365725f696473a962726f6b65725f696401ac62726f6b65725f65"
            "706f636802b06e6578745f70726f64756365725f6964cd03e8"
        ),
    ),
]


@pytest.mark.parametrize(
    ("record", "golden"), GOLDEN, ids=[type(record).__name__ for record, _ in GOLDEN]
)
def test_a_record_is_stored_as_it_was_in_the_first_release(
    record: MetadataRecord, golden: str
) -> None:
    assert encode_entry((record,)).hex() == golden
    assert decode_entry(bytes.fromhex(golden)) == (record,)


def test_every_kind_of_record_has_golden_bytes() -> None:
    assert {type(record) for record, _ in GOLDEN} == set(get_args(MetadataRecord))


def test_a_partition_as_the_skeleton_wrote_it_is_still_read() -> None:
    written = {
        "type": "partition",
        "version": 1,
        "is_optional": False,
        "topic_id": TOPIC,
        "partition": 0,
        "leader_id": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": [1],
        "in_sync_replicas": [1],
    }
    (record,) = decode_entry(msgspec.msgpack.encode([written]))
    assert isinstance(record, PartitionRecord)
    assert (record.replicas, record.directories) == ((1,), ())


@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 400), st.integers(0, 255))
def test_any_bytes_are_records_or_a_typed_error(
    noise: bytes, which: int, place: int, byte: int
) -> None:
    damaged = bytearray(bytes.fromhex(GOLDEN[which % len(GOLDEN)][1]))
    damaged[place % len(damaged)] = byte
    for payload in (noise, bytes(damaged)):
        with contextlib.suppress(TidelogError):
            decode_entry(payload)


def test_an_unknown_optional_record_is_skipped() -> None:
    known = msgspec.to_builtins(FormatRecord(cluster_id="c"))
    later = {"type": "weather", "version": 1, "is_optional": True, "degrees": 20}
    assert decode_entry(msgspec.msgpack.encode([later, known])) == (FormatRecord(cluster_id="c"),)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "weather", "version": 1},
        {"type": "fence", "version": 2, "broker_id": 1, "epoch": 1, "is_fenced": True},
    ],
    ids=["type", "version"],
)
def test_an_unknown_required_record_stops_the_node(record: dict[str, object]) -> None:
    with pytest.raises(TidelogError) as caught:
        decode_entry(msgspec.msgpack.encode([record]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91\x01", b"\x91\x81\xa4type\xa6format"])
def test_bytes_that_are_no_records_are_corruption(payload: bytes) -> None:
    with pytest.raises(TidelogError) as caught:
        decode_entry(payload)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
