"""How a record is printed: kcat's letters, escapes, nulls, and bytes that are no text."""

import pytest

from tidelog.cli.records import json as record_json
from tidelog.cli.records.format import MEANINGS, Record, RecordFormat, parse
from tidelog.cli.show.errors import BadInput
from tidelog.cli.show.escapes import unescape

PLAIN: Record = (7, 1_700_000_000_000, 0, b"alice", b"1 espresso", [("till", b"4")])
NULLS: Record = (8, 1_700_000_000_001, 1, None, None, [("a", None), ("b", b"")])
BYTES: Record = (9, 0, 0, b"\xff%d", b"\x00\n%b", [])


def rendered(format_: bytes, *records: Record, null: bytes = b"") -> bytes:
    return RecordFormat(format_, null=null).render("orders", 2, records)


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        (rb"%v\n", b"1 espresso\n"),
        (rb"%s\n", b"1 espresso\n"),
        (rb"%t %p %o %k %v %h %T\n", b"orders 2 7 alice 1 espresso till=4 1700000000000\n"),
        (rb"%K %S\n", b"5 10\n"),
        (rb"100%%\t%o\x21\0", b"100%\t7!\x00"),
        (rb"%o", b"7"),
        (rb"\\n", b"\\n"),
        (b"no letters", b"no letters"),
        (b"", b""),
        (b"\xfe%v", b"\xfe1 espresso"),
    ],
)
def test_a_format_prints_the_letters_of_a_record(format_: bytes, expected: bytes) -> None:
    assert rendered(format_, PLAIN) == expected


def test_records_follow_each_other_without_anything_between_them() -> None:
    assert rendered(rb"%v\n", PLAIN, BYTES) == b"1 espresso\n\x00\n%b\n"
    assert rendered(b"%o,", PLAIN, BYTES) == b"7,9,"
    assert rendered(rb"%v\n") == b""


@pytest.mark.parametrize("format_", [b"%v|", b"%o %k %v|", b"%k %h|"])
def test_a_null_is_printed_as_nothing_or_as_it_was_asked_for(format_: bytes) -> None:
    plain = {b"%v|": b"|", b"%o %k %v|": b"8  |", b"%k %h|": b" a=,b=|"}
    named = {b"%v|": b"NULL|", b"%o %k %v|": b"8 NULL NULL|", b"%k %h|": b"NULL a=NULL,b=|"}
    assert rendered(format_, NULLS) == plain[format_]
    assert rendered(format_, NULLS, null=b"NULL") == named[format_]


def test_a_null_does_not_change_how_its_neighbours_are_printed() -> None:
    assert rendered(rb"%k=%v\n", PLAIN, NULLS, BYTES) == (b"alice=1 espresso\n=\n\xff%d=\x00\n%b\n")
    assert rendered(b"%K %S|", NULLS) == b"-1 -1|"


@pytest.mark.parametrize(
    ("format_", "why"), [(b"%q", "`%q` is not known"), (b"%", "single %"), (b"%v%", "single %")]
)
def test_an_unknown_letter_is_refused_with_the_known_ones(format_: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        parse(format_)
    assert all(f"%{letter} " in caught.value.hint for letter in MEANINGS)


@pytest.mark.parametrize("text", [rb"\q", rb"\x", rb"\x4", rb"\xzz", b"\\"])
def test_an_unknown_escape_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput, match="is no escape"):
        unescape(text, what="-K")


def test_json_keeps_text_as_text_and_other_bytes_as_base64() -> None:
    lines = record_json.render("orders", 2, [PLAIN, NULLS, BYTES]).decode().splitlines()
    assert lines[0] == (
        '{"topic": "orders", "partition": 2, "offset": 7, "timestamp": 1700000000000, '
        '"timestamp_type": "create", "key": "alice", "value": "1 espresso", '
        '"headers": [["till", "4"]]}'
    )
    assert '"timestamp_type": "append", "key": null, "value": null' in lines[1]
    assert '"key": {"base64": "/yVk"}, "value": "\\u0000\\n%b"' in lines[2]
