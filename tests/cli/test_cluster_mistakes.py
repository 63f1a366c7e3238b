"""Bad input to the commands that form and run a cluster: three lines, exit code 2, nothing done."""

from pathlib import Path

import pytest

from tests.cli.running import assert_three_lines
from tidelog.cli.main import main
from tidelog.cli.quorum.recover import SENTENCE

UUIDS = [f"{number:032x}" for number in range(1, 4)]
TWO = f"1@127.0.0.1:9193/{UUIDS[0]},2@127.0.0.1:9293/{UUIDS[1]}"
FORMAT = "storage format --data-dir d"

MISTAKES = [
    # what was typed, what the second line says, what the hint says
    ("storage formt", "no such command", "tidelog storage format"),
    (f"{FORMAT}", "none of the ways is given", "--standalone"),
    (f"{FORMAT} --standalone --join -C c", "exclude each other", "--standalone"),
    (f"{FORMAT} --join", "--cluster-id is missing", "cluster describe"),
    (f"{FORMAT} --broker-only", "--cluster-id is missing", "cluster describe"),
    (f"{FORMAT} --join -C c --restore m", "first voters of a new cluster", "leave --restore out"),
    (f"{FORMAT} --join -C c --address h:1", "--standalone only", "list of voters"),
    (f"{FORMAT} --standalone --cluster-id=", "--cluster-id is empty", "leave it out"),
    (f"{FORMAT} --standalone --address h", "`h` is not host:port", "--help"),
    (f"{FORMAT} --standalone --address ::1:9193", "`::1:9193` is not host:port", "--help"),
    (f"{FORMAT} --standalone --address h:0", "`h:0` is not host:port", "--help"),
    (f"{FORMAT} --standalone --node-id 0", "`0` is not a node id from 1", "--help"),
    (f"{FORMAT} --standalone --restore nowhere.tqs", "No such file", "metadata export"),
    (f"{FORMAT} --standalone --config nowhere.toml", "No such file", "name a file"),
    (f"{FORMAT} -C c --initial-voters 1@h:1", "is not NODE_ID@HOST:PORT/UUID", "--help"),
    (f"{FORMAT} -C c --initial-voters h:1/{UUIDS[0]}", "not NODE_ID@HOST:PORT/UUID", "--help"),
    (f"{FORMAT} -C c --initial-voters x@h:1/{UUIDS[0]}", "`x` is not a node id", "--help"),
    (f"{FORMAT} -C c --initial-voters 1@h/{UUIDS[0]}", "`h` is not host:port", "--help"),
    (f"{FORMAT} -C c --initial-voters 1@h:1/abc", "`abc` is not a directory uuid", "--help"),
    (f"{FORMAT} --initial-voters {TWO}", "--cluster-id is missing", "random-uuid"),
    (f"{FORMAT} -C c --node-id 7 --initial-voters {TWO}", "node 7 is not in its own list", "join"),
    (
        f"{FORMAT} -C c --initial-voters 1@h:1/{UUIDS[0]},1@h:2/{UUIDS[1]}",
        "the node id 1 is given twice",
        "one of its own",
    ),
    (
        f"{FORMAT} -C c --initial-voters 1@h:1/{UUIDS[0]},2@h:1/{UUIDS[1]}",
        "the address h:1 is given twice",
        "one of its own",
    ),
    (
        f"{FORMAT} -C c --initial-voters 1@h:1/{UUIDS[0]},2@h:2/{UUIDS[0]}",
        f"the uuid {UUIDS[0]} is given twice",
        "one of its own",
    ),
    ("storage random-uuid -n 0", "`0` is not a number from 1", "--help"),
    ("storage info", "DIR is missing", "tidelog storage info data"),
    ("storage info nowhere", "nowhere is not there", "data_dir"),
    ("storage info .", "is no controller's data directory", "role `controller`"),
    ("server --config nowhere.toml", "No such file", "name a file"),
    ("server --set data_dir=nowhere", "it is not there: it has no node.json", "storage format"),
    ("server --set data_dir=.", "it was never formatted", "storage format"),
    ("server --set datadir=x", "there is no such setting", "data_dir"),
    ("server --set node_id", "`node_id` is not name=value", "--help"),
    ("server --set node_id=x", "`x`", ""),
    ("server --set node_id=1 --set node_id=2", "`node_id` is given twice", "leave"),
    ("server --roles broker --set roles=controller", "`roles` is given twice", "leave"),
    ("server --roles leader", "leader", ""),
    ("quorum add-voter", "NODE_ID is missing", "tidelog quorum add-voter 4"),
    ("quorum add-voter four", "`four` is not a node id from 1", "--help"),
    ("quorum add-voter 4 --directory-uuid xyz", "`xyz` is not a directory uuid", "--help"),
    ("quorum remove-voter -1", "`-1` is not a node id from 1", "--help"),
    ("quorum remove-voter 0", "`0` is not a node id from 1", "--help"),
    ("quorum transfer me", "`me` is not a node id from 1", "--help"),
    ("quorum recover", "DIR is missing", "--unsafe"),
    ("quorum recover nowhere", "--unsafe is missing", "start them instead"),
    ("quorum recover --unsafe nowhere", "nowhere is not there", "data_dir"),
    ("quorum recover --unsafe nowhere --yes-i-accept yes", "not typed as it stands", SENTENCE),
    ("metadata show", "PATH is missing", "/topics/orders"),
    ("metadata export", "FILE is missing", "metadata.tqs"),
    ("metadata export no/where", "is not a directory", "make the directory"),
    ("metadata export .", "not the name of a file", "name a new file"),
    ("broker drain three", "`three` is not a node id", "--help"),
    ("broker drain 3 --timeout 5", "--timeout goes with --wait only", "add --wait"),
    ("broker drain 3 --wait --dry-run", "nothing to wait for", "leave --wait out"),
    ("broker remove", "BROKER_ID is missing", "tidelog broker remove 3"),
    ("topic alter orders", "nothing to change", "-p N"),
    ("topic alter orders --config a=1 --unset a", "`a` is given twice", "leave"),
    ("topic delete", "TOPIC is missing", "tidelog topic delete orders"),
    ("topic trim", "TOPIC:PARTITION=OFFSET is missing", "tidelog topic trim orders:0=1500"),
    ("topic trim o:0=-1", "is not TOPIC:PARTITION=OFFSET", "--help"),
    ("topic trim o=5", "`o` is not TOPIC:PARTITION", "--help"),
    ("topic trim o:0=5 o:0=end", "a partition is named twice", "once"),
    ("config get", "whose settings is missing", "--topic, --broker, --cluster"),
    ("config get --topic t --cluster", "exclude each other", "say one of"),
    ("config set --topic t", "NAME=VALUE is missing", "--topic orders"),
    ("config set --topic t a=1 a=2", "`a` is given twice", "leave"),
    ("config set --topic t a", "`a` is not name=value", "--help"),
    ("config delete --topic t", "NAME is missing", "--topic orders"),
    ("cluster rebalance --throttle 5", "--throttle goes with --execute", "add --execute"),
    ("cluster rebalance --no-wait", "--no-wait goes with --execute", "add --execute"),
    ("cluster rebalance --execute --no-wait --timeout 5", "waits for nothing", "--timeout out"),
    ("cluster rebalance --max-moves 0", "`0` is not a number from 1", "--help"),
    ("quota set --requests-per-second 5", "--client-id is missing", "--default"),
    ("quota set --client-id a --default", "exclude each other", "say --client-id ID"),
    ("quota set --client-id= --requests-per-second 5", "the client id is empty", "--default"),
    ("quota set --client-id a", "no limit is given", "--produce-bytes-per-second"),
    ("quota set --default --requests-per-second 0", "`0` is not a number from 1", "--help"),
    ("quota delete", "--client-id is missing", "--default"),
    ("partition elect-leaders", "none is named", "TOPIC:PARTITION"),
    ("partition elect-leaders orders", "`orders` is not TOPIC:PARTITION", "--help"),
    ("partition elect-leaders --all --unclean", "named partitions only", "name them"),
    ("partition elect-leaders o:0 --execute", "--execute goes with --unclean", "nothing is lost"),
    ("partition reassign", "no move is given", "orders:0=1,2,3"),
    ("partition reassign o:0", "is not TOPIC:PARTITION=BROKER_ID", "--help"),
    ("partition reassign o:0=1,1", "names a broker twice", "--help"),
    ("partition reassign o:0=1 o:0=2", "o:0 is given twice", "leave"),
]


@pytest.mark.parametrize(("typed", "why", "hint"), MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_mistake_costs_three_lines_and_exit_code_2_and_makes_nothing(
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
    assert [each for each in tmp_path.rglob("*") if each.is_file() and each.name != ".lock"] == []


def test_a_recovery_without_a_terminal_names_the_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "data")
    words = ["storage", "format", "--data-dir", directory, "-C", "c", "--initial-voters", TWO]
    assert main(words) == 0
    capsys.readouterr()
    with open("/dev/null", encoding="utf-8") as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["quorum", "recover", "--unsafe", directory]) == 2
    *told, what, why, hint = capsys.readouterr().err.splitlines()
    assert told[0].startswith("node 1 becomes the only voter")
    assert "What the others committed behind that entry is lost." in told
    assert f"  node 2 at 127.0.0.1:9293, directory {UUIDS[1]}" in told
    assert_three_lines("\n".join((what, why, hint)), why="nobody is at the terminal", hint=SENTENCE)


def test_a_recovery_with_the_sentence_is_done_and_keeps_what_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    words = ["storage", "format", "--data-dir", str(directory), "-C", "c", "--initial-voters", TWO]
    assert main(words) == 0
    command = ["quorum", "recover", "--unsafe", str(directory)]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was changed"
    assert main([*command, "--yes-i-accept", SENTENCE]) == 0
    out = capsys.readouterr().out
    assert "node 1 is the only voter now" in out
    (backup,) = directory.glob("quorum.before-recovery-*")
    assert f"kept as it was: {backup}" in out
    assert main(["storage", "info", str(directory)]) == 0
    assert "Members:\n  Node  Role   Address" in capsys.readouterr().out
    assert main(command) == 2
    assert_three_lines(capsys.readouterr().err, why="the only voter already", hint="Start the node")


def test_a_directory_is_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["storage", "format", "--standalone", "--data-dir", str(tmp_path / "d")]
    assert main(words) == 0
    before = (tmp_path / "d/quorum/quorum.json").read_bytes()
    capsys.readouterr()
    assert main(words) == 1
    assert_three_lines(capsys.readouterr().err, why="formatted already", hint="Start the node")
    assert (tmp_path / "d/quorum/quorum.json").read_bytes() == before


def test_a_cluster_listener_on_any_port_is_no_address_of_a_voter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[listeners.cluster]\nbind = "127.0.0.1:0"\n', encoding="utf-8")
    words = ["storage", "format", "--standalone", "--config", str(file)]
    assert main([*words, "--data-dir", str(tmp_path / "d")]) == 2
    assert_three_lines(capsys.readouterr().err, why="a port that changes", hint="--address")


def test_a_quorum_that_nobody_leads_says_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["quorum", "describe", "-b", "127.0.0.1:1"]) == 1
    assert_three_lines(capsys.readouterr().err, why="127.0.0.1:1", hint="majority of its voters")
