"""Lines, tables, options and counts: the parts of the commands that need no cluster."""

import os
import re
from pathlib import Path

import pytest

from tidelog.cli.config.show import as_toml
from tidelog.cli.frame.client_options import convert
from tidelog.cli.node import settings as node_settings
from tidelog.cli.node.settings import Effective
from tidelog.cli.show.errors import BadInput, CommandError
from tidelog.cli.show.lines import LINE_BYTES_MAX, LineSplitter, read_lines
from tidelog.cli.show.table import size, table
from tidelog.client.arguments.options import ConsumerOptions, ProducerOptions
from tools.repository import TOP


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_lines_are_the_same_however_the_bytes_arrive(step: int) -> None:
    data = b"one\n\ntwo \xff\r\nthree"
    splitter = LineSplitter()
    lines = []
    for place in range(0, len(data), step):
        lines += splitter.feed(data[place : place + step])
    assert lines + splitter.finish() == [b"one", b"", b"two \xff\r", b"three"]


@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_delimiter_of_several_bytes_may_be_cut_in_two(step: int) -> None:
    data = b"one<>two\n<>three<>"
    splitter = LineSplitter(b"<>")
    lines = []
    for place in range(0, len(data), step):
        lines += splitter.feed(data[place : place + step])
    assert lines + splitter.finish() == [b"one", b"two\n", b"three"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter()
    splitter.feed(b"short\n")
    with pytest.raises(CommandError, match="read line 2 of stdin"):
        splitter.feed(bytes(LINE_BYTES_MAX + 1))


def test_a_line_is_given_on_before_the_next_one_comes() -> None:
    reading, writing = os.pipe()
    try:
        lines = read_lines(reading, b"\n")
        for word in (b"first", b"second"):
            os.write(writing, word + b"\n")
            assert next(lines) == [word]
        os.write(writing, b"last")
        os.close(writing)
        assert list(lines) == [[b"last"]]
    finally:
        os.close(reading)


def test_columns_are_aligned_and_no_line_ends_with_blanks() -> None:
    text = table(("Name", "Count"), [("a", 1), ("longer", 1000)], right="Count")
    assert text == "Name    Count\na           1\nlonger   1000"
    assert table(("A", "B"), [("x", "")]) == "A  B\nx"
    assert table(("A", "B"), [("x\ny", "\x1b[2J"), ("ä b", "")]).split("\n") == [
        "A     B",
        r"x\ny  \x1b[2J",
        "ä b",
    ], "a name cannot break a line, nor speak to the terminal"


@pytest.mark.parametrize(
    ("count", "text"),
    [(-1, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB")],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert size(count) == text


def test_client_options_get_the_type_of_the_argument() -> None:
    pairs = [("acks", "1"), ("linger.ms", "0.5"), ("batch_size", "1000"), ("retries", "0")]
    given = convert(pairs, ProducerOptions, "tidelog produce")
    assert given["linger_ms"] == 0.5
    assert given["batch_size"] == 1000
    assert given["retries"] == 0
    assert given["acks"] in (1, "1")
    assert convert([("check_crcs", "false")], ConsumerOptions, "x") == {"check_crcs": False}


@pytest.mark.parametrize(
    ("pair", "hint"),
    [
        (("linger_mss", "1"), "did you mean linger_ms?"),
        (("quite-else", "1"), "docs/configuration.md"),
        (("batch_size", "many"), "correct the value"),
        (("bootstrap.servers", "x"), "-b"),
        (("transactional_id", "x"), "leave"),
        (("value_serializer", "x"), "bytes"),
    ],
)
def test_a_wrong_client_option_is_refused(pair: tuple[str, str], hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        convert([pair], ProducerOptions, "tidelog produce")
    assert hint in caught.value.hint


def test_a_client_option_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="given twice"):
        convert([("linger_ms", "1"), ("linger.ms", "2")], ProducerOptions, "tidelog produce")


def test_settings_are_shown_as_toml_with_their_source() -> None:
    text = as_toml(
        [
            Effective("node_id", 1, "default"),
            Effective("rack", "a", "node.toml"),
            Effective("listeners.client.bind", "127.0.0.1:0", "TIDELOG_LISTENERS_CLIENT_BIND"),
        ]
    )
    assert text == (
        'node_id = 1\nrack = "a"  # node.toml\n\n'
        '[listeners.client]\nbind = "127.0.0.1:0"  # TIDELOG_LISTENERS_CLIENT_BIND'
    )


def test_the_example_of_a_configuration_loads_and_changes_nothing(tmp_path: Path) -> None:
    text = (TOP / "docs/node.toml").read_text("utf-8")
    file = tmp_path / "node.toml"
    for written in (text, re.sub(r"(?m)^#(?=[a-z_]+ = )", "", text)):
        file.write_text(written, "utf-8")
        found = {each.path: each.value for each in node_settings.load(str(file), "x", {})}
        assert found == {each.path: each.value for each in node_settings.defaults()}
    assert {each.source for each in node_settings.load(str(file), "x", {})} == {str(file)}


def test_every_setting_of_a_node_is_explained() -> None:
    assert [each.path for each in node_settings.defaults() if not each.description] == []
    assert "# " in as_toml(node_settings.defaults())
