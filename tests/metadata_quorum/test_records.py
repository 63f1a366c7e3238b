"""The persisted form of metadata records does not change by accident."""

import msgspec
import pytest

from tidelog.metadata_quorum.records import (
    BrokerRecord,
    FenceRecord,
    FormatRecord,
    MetadataRecord,
    PartitionRecord,
    TopicConfigurationRecord,
    TopicRecord,
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
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=["format", "fence", "topic"])
def test_a_record_is_stored_as_it_was_in_the_first_release(
    record: MetadataRecord, golden: str
) -> None:
    assert encode_entry((record,)).hex() == golden
    assert decode_entry(bytes.fromhex(golden)) == (record,)


def test_every_kind_of_record_comes_back_equal() -> None:
    records: tuple[MetadataRecord, ...] = (
        FormatRecord(cluster_id="abc"),
        BrokerRecord(
            broker_id=BrokerId(1),
            epoch=BrokerEpoch(2),
            incarnation=bytes(16),
            listeners={"client": "127.0.0.1:1"},
        ),
        FenceRecord(broker_id=BrokerId(1), epoch=BrokerEpoch(2), is_fenced=False),
        TopicRecord(topic_id=TOPIC, name="t"),
        PartitionRecord(
            topic_id=TOPIC,
            partition=PartitionId(0),
            leader_id=BrokerId(1),
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            replicas=(BrokerId(1),),
            in_sync_replicas=(BrokerId(1),),
        ),
        TopicConfigurationRecord(topic_id=TOPIC, configuration={"segment.bytes": "1024"}),
    )
    assert decode_entry(encode_entry(records)) == records


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
