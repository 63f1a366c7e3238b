"""Bad input that needs no cluster: three lines on stderr, exit code 2, nothing on stdout."""

from pathlib import Path

import pytest

from tests.cli.running import assert_three_lines
from tidelog.cli.frame.commands import COMMANDS
from tidelog.cli.frame.parser import BYTES_ARGUMENTS
from tidelog.cli.main import main
from tidelog.cli.node.dev import check_directory
from tidelog.cli.show.errors import BadInput

MISTAKES = [
    # what was typed, what the second line says, what the hint says
    ("topik list", "no such command", "did you mean `tidelog topic`?"),
    ("consum orders", "no such command", "did you mean `tidelog consume`?"),
    ("xyzzy", "no such command", "tidelog --help"),
    (
        "topic crate",
        "`topic` has create, list, describe, alter, delete",
        "did you mean `tidelog topic create`?",
    ),
    ("topic xyzzy orders", "no such command", "tidelog topic --help"),
    ("-b localhost topic list", "option stands before the command", "COMMAND"),
    ("topic create", "TOPIC is missing", "tidelog topic create orders -p 3"),
    ("topic create orders -p", "-p/--partitions: expected one argument", "--help"),
    ("topic create orders -p three", "`three` is not a number from 1", "--help"),
    ("topic create orders -p 0", "`0` is not a number from 1", "--help"),
    ("topic create orders --partition 3", "no option `--partition`", "--partitions"),
    ("topic create orders --config retention", "`retention` is not name=value", "--help"),
    ("topic create o --config a=1 --config a=2", "given twice", "leave"),
    ("topic create orders more", "`more` is one argument too many", "--help"),
    ("topic list --jsn", "no option `--jsn`", "--json"),
    ("topic describe -q", "no option `-q`", "--help"),
    ("topic list -b localhost:port", "'localhost:port' is not host:port", "localhost:9192"),
    ("topic list -b localhost:0", "'localhost:0' is not host:port", "localhost:9192"),
    ("topic list -b ,", "names no address", "localhost:9192"),
    ("produce", "TOPIC is missing", "tidelog produce"),
    ("produce orders -z zip", "invalid choice", "--help"),
    ("produce orders -z lz4 -X compression_type=gzip", "given both", "leave"),
    ("produce orders -X acks", "`acks` is not name=value", "--help"),
    ("produce orders -X aks=1", "no client option `aks`", "did you mean acks?"),
    ("produce orders -X acks=7", "acks is ", "setting"),
    ("produce orders -X batch_size=big", "expected", "batch_size"),
    ("produce orders -p -1", "`-1` is not a partition", "--help"),
    ("produce orders -H novalue", "`novalue` is not name=value", "--help"),
    ("produce orders -K \\q", "`\\q` is no escape", "\\xHH"),
    ("consume", "TOPIC is missing", "tidelog consume orders"),
    ("consume orders -o middle", "`middle` is not a place", "beginning"),
    ("consume orders -o @noon", "ISO 8601", "@1700000000000"),
    ("consume orders -o @2024-01-01T00:00:00", "no time zone", "Z"),
    ("consume orders -c 0", "`0` is not a number from 1", "--help"),
    ("consume orders -f %x", "`%x` is not known", "%v value"),
    ("consume orders -f %v --json", "given both", "leave"),
    ("consume orders -K , --json", "--json and -K are given both", "leave"),
    ("cluster features metadata.version", "`metadata.version` is not NAME=LEVEL", "--help"),
    ("cluster features a=1 a=2", "named twice", "once"),
    ("consume orders -g readers -p 1", "assigns partitions itself", "leave -p out"),
    ("consume orders -g readers -o 5", "not -o 5", "reset-offsets readers orders"),
    ("consume orders -X group_id=readers", "cannot be set with -X", "say -g GROUP"),
    ("dev --port 70000", "`70000` is not a port from 0 to 65535", "--help"),
    ("dev --partitions none", "`none` is not a number", "--help"),
    ("dev --config nowhere.toml", "No such file", "name a file"),
    ("config check", "FILE is missing", "node.toml"),
    ("config check nowhere.toml", "No such file", "there"),
    ("config show --defaults node.toml", "the same", "leave"),
    ("config show --default", "no option `--default`", "--defaults"),
    ("completion tcsh", "invalid choice", "bash"),
    ("completion", "SHELL is missing", "bash"),
    ("version now", "one argument too many", "--help"),
]


@pytest.mark.parametrize(("typed", "why", "hint"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_mistake_costs_three_lines_and_exit_code_2(
    typed: str,
    why: str,
    hint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(typed.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_three_lines(captured.err, why=why, hint=hint)


def test_an_argument_that_is_not_text_is_named_and_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topic", "create", "orders\udcff"]) == 2
    assert_three_lines(capsys.readouterr().err, why=r"'orders\udcff' is not valid", hint="bytes")
    assert main(["produce", "orders", "-H", "\udcff=x", "-b", "localhost:1"]) == 2
    assert_three_lines(capsys.readouterr().err, why="the name of a header", hint="UTF-8")
    assert "format" in BYTES_ARGUMENTS


@pytest.mark.parametrize("text", ["= 1", "node_id = 0", "nodeid = 1", "[listeners]\nclient = 1"])
def test_a_wrong_configuration_is_refused_by_check_and_show(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text, encoding="utf-8")
    for command in ("check", "show"):
        assert main(["config", command, str(file)]) == 2
        assert_three_lines(capsys.readouterr().err, why="", hint="")


SEVEN_MISTAKES = """
node_id = 0
nodeid = 1
auto_create_topics = "yes"
log_dirs = ["data"]
[listeners.client]
bind = "127.0.0.1:7001"
[listeners.client.tls]
certificate = "nowhere.pem"
key = "nowhere.key"
[listeners.cluster]
bind = "0.0.0.0:7001"
"""


def test_every_mistake_of_a_configuration_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(SEVEN_MISTAKES, encoding="utf-8")
    assert main(["config", "check", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    told = [lines[place : place + 3] for place in range(0, len(lines), 3)]
    for words, (what, why, hint) in zip(
        (
            "`nodeid`",
            "`$.node_id`",
            "`$.auto_create_topics`",
            "listeners.cluster.bind listeners.client.bind",
            "listeners.cluster.bind allow_plaintext",
            "log_dirs",
            "nowhere.pem",
        ),
        told,
        strict=True,
    ):
        for word in words.split():
            assert word in f"{what}\n{why}\n{hint}"
        assert what.startswith("error: ")
        assert hint.startswith("hint: ")
    assert main(["config", "show", str(file)]) == 2
    assert_three_lines(capsys.readouterr().err, why="first of 6 mistakes", hint="config check")


def test_a_configuration_that_is_not_text_or_not_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_bytes(b"rack = '\xff'")
    assert main(["config", "check", str(file)]) == 2
    assert_three_lines(capsys.readouterr().err, why="byte 8 is not UTF-8", hint="TOML")
    assert main(["config", "check", str(tmp_path)]) == 2
    assert_three_lines(capsys.readouterr().err, why="directory", hint="file")


def test_a_data_directory_that_cannot_be_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    for name in (file, file / "data"):
        assert main(["dev", "--port", "0", "--data-dir", str(name)]) == 2
        assert_three_lines(capsys.readouterr().err, why="is a file", hint="directory")
    assert main(["dev", "--port", "0", "--data-dir", ""]) == 2
    assert_three_lines(capsys.readouterr().err, why="not the name of a directory", hint="")
    with pytest.raises(BadInput, match=f"you may not write to {tmp_path}"):
        check_directory(str(tmp_path / "data"), may_write=lambda _: False)
    check_directory(str(tmp_path / "data" / "deeper"))


def test_the_environment_is_blamed_for_its_own_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "node:x")
    assert main(["cluster", "describe"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: TIDELOG_BOOTSTRAP=node:x\n")
    assert_three_lines(text, why="not host:port", hint="localhost:9192")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_refuses_an_option_that_it_does_not_have(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--no-such-option"]) == 2
    assert_three_lines(capsys.readouterr().err, why="", hint="--help")
