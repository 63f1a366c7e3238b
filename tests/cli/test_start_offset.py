"""Where reading begins: the spellings of -o, and what each means in a partition."""

import pytest

from tidelog.cli.records.start_offset import Start, parse_start, resolve
from tidelog.cli.show.errors import BadInput


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start("beginning")),
        ("earliest", Start("beginning")),
        ("end", Start("end")),
        ("latest", Start("end")),
        ("0", Start("offset", 0)),
        ("17", Start("offset", 17)),
        ("-5", Start("before_end", 5)),
        ("@1700000000000", Start("time", 1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Start("time", 1_700_000_000_000)),
        ("@2023-11-14T23:13:20.5+01:00", Start("time", 1_700_000_000_500)),
    ],
)
def test_every_spelling_of_a_start_is_understood(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text",
    ["", "begin", "1.5", "--1", "-", "@", "@yesterday", "@2023-11-14T22:13:20", "٣", "9" * 20],
)
def test_another_spelling_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_start(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def at(start: Start, at_time: int | None = None) -> int:
    return resolve(start, 10, 20, at_time, topic="orders", partition=1)


def test_a_start_is_an_offset_within_the_partition() -> None:
    assert at(Start("beginning")) == 10
    assert at(Start("end")) == 20
    assert at(Start("before_end", 3)) == 17
    assert at(Start("before_end", 300)) == 10
    assert at(Start("offset", 10)) == 10
    assert at(Start("offset", 20)) == 20
    assert at(Start("time", 1), at_time=12) == 12
    assert at(Start("time", 1)) == 20


@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_outside_names_the_partition_and_its_bounds(offset: int) -> None:
    with pytest.raises(BadInput, match="orders-1 begins at 10 and ends before 20"):
        at(Start("offset", offset))


def test_a_time_in_seconds_is_refused_with_what_was_meant() -> None:
    with pytest.raises(BadInput) as caught:
        parse_start("@1795153973")
    assert "looks like seconds (2026-11-20T05:52:53Z)" in caught.value.why
    assert "@1795153973000" in caught.value.hint
    assert parse_start("@1795153973000").number == 1_795_153_973_000
    assert parse_start("@0").number == 0
