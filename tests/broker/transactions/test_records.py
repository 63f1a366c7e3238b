"""The persisted form of `__transactions` does not change by accident."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.transactions.support.house import identity, topic_id
from tidelog.broker.transactions.state.records import (
    DecidedToken,
    TouchedTopic,
    TransactionKey,
    TransactionValue,
    decode_record,
    encode_record,
)
from tidelog.broker.transactions.state.states import Decision, Succession, TransactionState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerId

KEY = TransactionKey("t")
FRESH = TransactionValue(
    state=TransactionState.EMPTY,
    current=identity(7, 0),
    last=None,
    succession=Succession.NONE,
    next_producer_id=None,
    timeout_ms=60_000,
    started_ms=-1,
    updated_ms=1_700_000_000_000,
    topics=(),
    principal="",
    decided=None,
)
FULL = TransactionValue(
    state=TransactionState.PREPARE_COMMIT,
    current=identity(7, 32_767),
    last=identity(7, 32_766),
    succession=Succession.COMMITTED,
    next_producer_id=ProducerId(2**40),
    timeout_ms=900_000,
    started_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_001,
    topics=(TouchedTopic(topic_id("a"), (0, 2)), TouchedTopic(topic_id("b"), (1_000,))),
    principal="",
    decided=DecidedToken(identity(7, 32_766), Decision.COMMIT, is_by_operator=False),
)
PREPARED = TransactionValue(
    state=TransactionState.PREPARED,
    current=identity(7, 3),
    last=identity(7, 2),
    succession=Succession.OPERATOR,
    next_producer_id=None,
    timeout_ms=60_000,
    started_ms=1,
    updated_ms=2,
    topics=(),
    principal="alice",
    decided=DecidedToken(identity(7, 2), Decision.ABORT, is_by_operator=True),
)
KEY_BYTES = "92ab7472616e73616374696f6ea174"
GOLDEN: list[tuple[TransactionValue, str]] = [
    (
        FRESH,
        ("9fab7472616e73616374696f6e01c20201920700c000c0cdea60ffcf0000018bcfe5680090a0c0"),
    ),
    (
        FULL,
        (
            "9fab7472616e73616374696f6e01c202039207cd7fff9207cd7ffe01cf0000010000000000ce000d"
            "bba0cf0000018bcfe56800cf0000018bcfe568019292c41061000000000000000000000000000000"
            "92000292c4106200000000000000000000000000000091cd03e8a0939207cd7ffe01c2"
        ),
    ),
    (
        PREPARED,
        ("9fab7472616e73616374696f6e01c2020792070392070204c0cdea60010290a5616c6963659392070202c3"),
    ),
]


@pytest.mark.parametrize(
    ("value", "value_bytes"), GOLDEN, ids=[value.state.name for value, _ in GOLDEN]
)
def test_the_bytes_of_a_record_stay(value: TransactionValue, value_bytes: str) -> None:
    record = encode_record(KEY, value)
    assert record.key.hex() == KEY_BYTES
    assert record.value is not None
    assert record.value.hex() == value_bytes
    assert decode_record(record.key, record.value) == (KEY, value)


def test_a_tombstone_is_a_key_without_value() -> None:
    assert decode_record(*msgspec.structs.astuple(encode_record(KEY, None))) == (KEY, None)


def test_the_numbers_that_are_stored_stay() -> None:
    assert {each.name: each.value for each in TransactionState} == {
        "EMPTY": 1,
        "ONGOING": 2,
        "PREPARE_COMMIT": 3,
        "PREPARE_ABORT": 4,
        "COMPLETE_COMMIT": 5,
        "COMPLETE_ABORT": 6,
        "PREPARED": 7,
    }
    assert {each.name: each.value for each in Decision} == {"COMMIT": 1, "ABORT": 2}
    assert {each.name: each.value for each in Succession} == {
        "NONE": 0,
        "COMMITTED": 1,
        "ABORTED": 2,
        "TIMED_OUT": 3,
        "OPERATOR": 4,
        "TAKEN_OVER": 5,
        "RENEWED": 6,
    }


def test_a_field_that_a_later_release_adds_is_passed_over() -> None:
    stored = msgspec.msgpack.decode(encode_record(KEY, FULL).value or b"")
    decoded = decode_record(
        bytes.fromhex(KEY_BYTES), msgspec.msgpack.encode([*stored, "new", {"deep": 1}])
    )
    assert decoded == (KEY, FULL)


def test_a_state_that_no_release_has_named_is_refused() -> None:
    stored = msgspec.msgpack.decode(encode_record(KEY, FRESH).value or b"")
    stored[4] = 99
    with pytest.raises(TidelogError) as caught:
        decode_record(bytes.fromhex(KEY_BYTES), msgspec.msgpack.encode(stored))
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


@pytest.mark.parametrize("kind", ["transaction", "sink"])
def test_an_unknown_optional_record_is_passed_over_and_a_required_one_stops(kind: str) -> None:
    key = msgspec.msgpack.encode([kind, "t"])
    assert decode_record(key, msgspec.msgpack.encode([kind, 2, True])) is None
    with pytest.raises(TidelogError) as caught:
        decode_record(key, msgspec.msgpack.encode([kind, 2, False]))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_tombstone_of_an_unknown_kind_is_passed_over() -> None:
    assert decode_record(msgspec.msgpack.encode(["sink", "t"]), None) is None


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=40))
def test_any_other_bytes_are_refused_with_a_typed_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(TidelogError):
        decode_record(key, value)


@given(which=st.integers(0, len(GOLDEN) - 1), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_gives_a_record(which: int, at: int, flip: int) -> None:
    damaged = bytearray(encode_record(KEY, GOLDEN[which][0]).value or b"")
    damaged[at % len(damaged)] ^= flip
    with contextlib.suppress(TidelogError):
        decode_record(bytes.fromhex(KEY_BYTES), bytes(damaged))
