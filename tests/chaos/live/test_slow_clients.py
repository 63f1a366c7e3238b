"""Callers that behave badly on purpose: their frames, and the verdict over what they did."""

import msgspec

from tidelog.chaos.live.single.slow_clients import (
    ALLOWANCE_MIB,
    HEADER,
    KINDS,
    Row,
    faults,
    line_of,
)
from tidelog.chaos.live.single.slow_clients_caller import KINDS as CALLERS
from tidelog.chaos.live.single.slow_clients_load import Pace, pace_of, quantile
from tidelog.chaos.live.single.slow_clients_wire import (
    DATA,
    END_STREAM,
    FRAME_HEADER_BYTES,
    call_headers,
    frame,
    literal,
    message_prefix,
    split_frames,
)

FAST = Pace(per_second=100.0, p50_ms=1.0, p99_ms=2.0, max_ms=3.0, failed=0)


def row(**changes: object) -> Row:
    """A sound one, but for the changes."""
    sound = Row(
        kind=KINDS[0],
        before_mib=60.0,
        peak_mib=160.0,
        after_mib=60.0,
        hung_up=1,
        left=0,
        gone_s=1.0,
        quiet=FAST,
        beside=FAST,
    )
    return msgspec.structs.replace(sound, **changes)


def test_frames_come_apart_as_they_were_put_together() -> None:
    first = frame(DATA, END_STREAM, 7, b"abc")
    second = frame(DATA, 0, 9, b"")
    frames, rest = split_frames(first + second + first[:-1])
    assert [(each.flags, each.stream_id, each.payload) for each in frames] == [
        (END_STREAM, 7, b"abc"),
        (0, 9, b""),
    ]
    assert rest == first[:-1]
    assert split_frames(first[: FRAME_HEADER_BYTES - 1]) == ([], first[: FRAME_HEADER_BYTES - 1])


def test_headers_are_literals_and_messages_tell_their_length() -> None:
    assert literal(b"te", b"trailers") == b"\x00\x02te\x08trailers"
    assert literal(b"a", bytes(126)) == b"\x00\x01a\x7e" + bytes(126)
    assert literal(b"a", bytes(1_337)) == b"\x00\x01a\x7f\xba\x09" + bytes(1_337)
    assert literal(b":path", b"/s/M") in call_headers(b"/s/M")
    assert message_prefix(258) == b"\x00\x00\x00\x01\x02"


def test_every_kind_of_the_table_is_one_that_callers_know() -> None:
    assert {each.name for each in KINDS} == set(CALLERS)


def test_a_sound_row_is_no_fault_and_fits_below_the_header() -> None:
    assert faults([row()]) == []
    assert len(line_of(row())) == len(HEADER)


def test_memory_that_grew_too_much_is_found() -> None:
    found = faults([row(peak_mib=61.0 + ALLOWANCE_MIB)])
    assert found == [f"unread 1 x 200: memory grew by 385 MiB, {ALLOWANCE_MIB} are allowed"]


def test_callers_that_stay_connected_are_found_unless_they_may() -> None:
    stuck = next(each for each in KINDS if each.name == "no-window")
    silent = next(each for each in KINDS if each.name == "silent")
    assert len(faults([row(kind=stuck, left=3)])) == 1
    assert faults([row(kind=silent, left=3)]) == []


def test_a_healthy_producer_that_was_refused_or_stood_still_is_found() -> None:
    assert len(faults([row(beside=msgspec.structs.replace(FAST, failed=2))])) == 1
    assert len(faults([row(beside=msgspec.structs.replace(FAST, per_second=0.0))])) == 1


def test_paces_are_of_what_was_done() -> None:
    pace = pace_of([3.0, 1.0, 2.0], 2.0, 1)
    assert (pace.per_second, pace.p50_ms, pace.max_ms, pace.failed) == (1.5, 2.0, 3.0, 1)
    assert pace_of([], 1.0, 0).p99_ms == 0.0
    assert quantile([1.0, 2.0], 0.99) == 2.0
