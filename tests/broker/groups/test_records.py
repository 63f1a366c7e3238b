"""The persisted form of `__groups` does not change by accident."""

import contextlib
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.groups.state.records import (
    NO_BROKER,
    AnyValue,
    GroupKey,
    GroupValue,
    Key,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    OwnedKey,
    OwnedPartitionsValue,
    OwnedValue,
    StagedKey,
    StagedPartitionValue,
    StagedTopicValue,
    StagedValue,
    TargetKey,
    TargetValue,
    TopicPartitionsValue,
    decode_record,
    encode_record,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    LeaderEpoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

TOPIC = TopicId(bytes(range(16)))

GOLDEN: list[tuple[Key, AnyValue, str, str]] = [
    (
        GroupKey("g"),
        GroupValue(
            group_type=1,
            group_epoch=7,
            assignment_epoch=6,
            assignor=1,
            topics_digest=b"\1\2",
            empty_since_ms=-1,
        ),
        "92a567726f7570a167",
        "99a567726f757001c201070601c4020102ff",
    ),
    (
        MemberKey("g", "m"),
        MemberValue(
            group_instance_id="i",
            rack="r",
            client_id="c",
            address="h:1",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            topics=("a", "b"),
            topic_pattern="x.*",
            assignor=2,
            broker_id=3,
            broker_epoch=9,
        ),
        "93a66d656d626572a167a16d",
        "9ea66d656d62657201c2a169a172a163a3683a31cdafc8ce000493e092a161a162a3782e2a020309",
    ),
    (
        TargetKey("g", "m"),
        TargetValue(topics=(TopicPartitionsValue(TOPIC, (0, 2)),)),
        "93a6746172676574a167a16d",
        "94a674617267657401c29192c410000102030405060708090a0b0c0d0e0f920002",
    ),
    (
        OwnedKey("g", "m"),
        OwnedValue(
            member_epoch=6,
            previous_epoch=5,
            heartbeat_sequence=300,
            is_away=False,
            assigned=(OwnedPartitionsValue(TOPIC, (0, 2), (3, 6)),),
            revoking=(OwnedPartitionsValue(TOPIC, (1,), (3,)),),
        ),
        "93a56f776e6564a167a16d",
        (
            "99a56f776e656401c20605cd012cc29193c410000102030405060708090a0b0c0d0e0f9200029203"
            "069193c410000102030405060708090a0b0c0d0e0f91019103"
        ),
    ),
    (
        OffsetKey("g", TOPIC, PartitionId(5)),
        OffsetValue(
            committed_offset=Offset(1000),
            leader_epoch=LeaderEpoch(4),
            metadata="x",
            commit_time_ms=1_700_000_000_000,
        ),
        "94a66f6666736574a167c410000102030405060708090a0b0c0d0e0f05",
        "97a66f666673657401c2cd03e804a178cf0000018bcfe56800",
    ),
    (
        StagedKey("g", ProducerId(9), 1),
        StagedValue(
            producer_epoch=ProducerEpoch(4),
            transactional_id="t",
            staged_ms=1_700_000_000_000,
            topics=(
                StagedTopicValue(
                    TOPIC,
                    (StagedPartitionValue(PartitionId(5), Offset(1000), LeaderEpoch(4), "x"),),
                ),
            ),
        ),
        "94a6737461676564a1670901",
        (
            "97a673746167656401c204a174cf0000018bcfe568009192c410000102030405060708090a0b0c0d0e"
            "0f919405cd03e804a178"
        ),
    ),
]


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"),
    GOLDEN,
    ids=[type(key).__name__ for key, *_ in GOLDEN],
)
def test_the_bytes_of_a_record_stay(
    key: Key, value: AnyValue, key_bytes: str, value_bytes: str
) -> None:
    record = encode_record(key, value)
    assert record.key.hex() == key_bytes
    assert record.value is not None
    assert record.value.hex() == value_bytes
    assert decode_record(record.key, record.value) == (key, value)
    assert decode_record(*msgspec.structs.astuple(encode_record(key, None))) == (key, None)


def test_every_kind_of_record_has_golden_bytes() -> None:
    assert {type(key) for key, *_ in GOLDEN} == set(get_args(Key))
    assert {type(value) for _, value, *_ in GOLDEN} == set(get_args(AnyValue))


def test_a_member_of_before_brokers_were_named_is_one_by_itself() -> None:
    stored = "9ca66d656d62657201c2a169a172a163a3683a31cdafc8ce000493e092a161a162a3782e2a02"
    decoded = decode_record(bytes.fromhex("93a66d656d626572a167a16d"), bytes.fromhex(stored))
    assert decoded is not None
    assert isinstance(decoded[1], MemberValue)
    assert decoded[1].topic_pattern == "x.*"
    assert (decoded[1].broker_id, decoded[1].broker_epoch) == (NO_BROKER, NO_BROKER)


def test_a_field_that_a_later_release_adds_is_passed_over() -> None:
    value = msgspec.msgpack.encode(["offset", 1, False, 10, 4, "", 99, "new"])
    key = msgspec.msgpack.encode(["offset", "g", TOPIC, 5])
    decoded = decode_record(key, value)
    assert decoded is not None
    assert isinstance(decoded[1], OffsetValue)
    assert decoded[1].committed_offset == 10


@pytest.mark.parametrize("kind", ["offset", "unheard_of"])
def test_an_unknown_optional_record_is_passed_over_and_a_required_one_stops(kind: str) -> None:
    key = msgspec.msgpack.encode([kind, "g"])
    assert decode_record(key, msgspec.msgpack.encode([kind, 2, True])) is None
    with pytest.raises(TidelogError) as caught:
        decode_record(key, msgspec.msgpack.encode([kind, 2, False]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_tombstone_of_an_unknown_kind_is_passed_over() -> None:
    assert decode_record(msgspec.msgpack.encode(["unheard_of", "g"]), None) is None


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=40))
def test_any_other_bytes_are_refused_with_a_typed_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(TidelogError):
        decode_record(key, value)


@given(which=st.integers(0, len(GOLDEN) - 1), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_gives_a_record(which: int, at: int, flip: int) -> None:
    _, _, key, value = GOLDEN[which]
    damaged = bytearray(bytes.fromhex(value))
    damaged[at % len(damaged)] ^= flip
    with contextlib.suppress(TidelogError):
        decode_record(bytes.fromhex(key), bytes(damaged))
