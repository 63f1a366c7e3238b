"""Counting a message on the wire: what protobuf would read, in a bounded number of steps."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.wire.bounds import UNKNOWN_FIELDS_MAX, Bounds, Field, Shape, count, steps_max
from tidelog.wire.errors import ErrorCode, TidelogError

ENTRY = Shape({0x0A: Field(), 0x10: Field()}, singles=2)
LIST = Field(is_number=True)
OUTER = Shape(
    {0x0A: Field(shape=ENTRY, is_element=True), 0x10: LIST, 0x12: LIST, 0x18: Field()},
    singles=2,
    singles_of_entry=2,
    can_hold_entries=True,
)
BOUNDS = Bounds(bytes_max=10_000, elements_max=3, numbers_max=5)


def refused(message: bytes, bounds: Bounds = BOUNDS) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        count(message, OUTER, bounds, tried="call it")
    return caught.value


def test_entries_and_numbers_packed_or_not_are_counted() -> None:
    message = b"\x0a\x00" * 2 + b"\x12\x03\x01\xac\x02" + b"\x10\x07"
    held = count(message, OUTER, BOUNDS, tried="call it")
    assert (held.elements, held.numbers, held.steps) == (2, 3, 4)


def test_the_walk_ends_with_the_one_that_is_too_many() -> None:
    error = refused(b"\x0a\x00" * 4 + b"not a message at all")
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert error.happened == "the message holds at least 4 elements; one takes at most 3"
    assert error.hint == "Split the call: send fewer at a time."


def test_fields_that_nobody_knows_are_counted() -> None:
    most = UNKNOWN_FIELDS_MAX + BOUNDS.elements_max
    unknown = b"\xf8\x07\x01"
    assert count(unknown * most, OUTER, BOUNDS, tried="call it").steps == most
    assert "not known here" in refused(unknown * (most + 1)).happened


def test_a_single_field_again_and_again_is_counted_by_the_steps() -> None:
    most = steps_max(BOUNDS, OUTER)
    assert count(b"\x18\x01" * most, OUTER, BOUNDS, tried="call it").steps == most
    assert f"at most {most}" in refused(b"\x18\x01" * (most + 1)).happened


@pytest.mark.parametrize(
    "message",
    [
        b"\x0b\x0c",  # a group
        b"\x0a\x05",  # a field behind its message
        b"\x0a\x03\x0a\x05\x00" + b"\x00" * 200,  # the same inside of an entry that is looked into
        b"\x0a",  # no length
        b"\x18",  # no value
        b"\x18" + b"\x80" * 10 + b"\x01",  # a number of eleven bytes
        b"\x81\x80\x80\x80\x80\x01\x00",  # a tag of more than 32 bits
        b"\x1d\x00\x00",  # four bytes of which two are there
    ],
)
def test_what_cannot_be_walked_is_refused(message: bytes) -> None:
    assert refused(message).code is ErrorCode.INVALID_ARGUMENT


def test_a_message_that_is_too_long_is_not_walked() -> None:
    error = refused(b"\x0b" * 10_001)
    assert error.code is ErrorCode.BATCH_TOO_LARGE
    assert error.happened == "the message has 10001 bytes; one takes at most 10000"


def test_an_entry_with_room_for_many_fields_is_looked_into() -> None:
    short, long = b"\x10\x01" * 64, b"\x10\x01" * 65
    assert count(b"\x0a\x80\x01" + short, OUTER, BOUNDS, tried="call it").steps == 1
    assert count(b"\x0a\x82\x01" + long, OUTER, BOUNDS, tried="call it").steps == 66


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_any_bytes_are_counted_or_refused_in_a_bounded_number_of_steps(message: bytes) -> None:
    with suppress(TidelogError):
        assert count(message, OUTER, BOUNDS, tried="call it").steps <= steps_max(BOUNDS, OUTER)
