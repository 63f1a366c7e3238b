"""Directories that cannot be a node's, named to every command: three lines, and no byte changed."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.cli.running import assert_three_lines, run_cli
from tests.ports.support.mounts import can_mount, mounted
from tests.support.ports import free_port
from tests.support.waiting import HANG_SECONDS
from tidelog.cli.main import main

IDENTITY = "node.json"


def content(top: Path) -> dict[str, str]:
    """Every name below, and every file's digest; but the lock, which holds nothing."""
    return {
        str(path.relative_to(top)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in sorted(top.rglob("*"))
        if path.name != ".lock"
    }


def settings_file(top: Path, *log_dirs: str) -> str:
    """A node on `data`, which is not to be started for long."""
    names = ", ".join(f'"{top / each}"' for each in log_dirs)
    file = top / "node.toml"
    file.write_text(
        f'data_dir = "{top / "data"}"\nlog_dirs = [{names}]\n'
        '[listeners.client]\nbind = "127.0.0.1:0"\n'
        f'[listeners.cluster]\nbind = "127.0.0.1:{free_port()}"\n',
        encoding="utf-8",
    )
    return str(file)


def formatted(top: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Its file, with one further directory `disk1`."""
    (top / "disk1").mkdir()
    file = settings_file(top, "disk1")
    assert main(["storage", "format", "--standalone", "--config", file]) == 0
    capsys.readouterr()
    return file


def change(file: Path, **fields: object) -> None:
    known = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    file.write_bytes(msgspec.json.encode(known | {"checksum": None} | fields))


def of_another_cluster(top: Path) -> None:
    change(top / "disk1" / IDENTITY, cluster_id="another")


def of_another_node(top: Path) -> None:
    change(top / "disk1" / IDENTITY, node_id=7)


def copy_of_data_dir(top: Path) -> None:
    shutil.copy(top / "data" / IDENTITY, top / "disk1" / IDENTITY)


def newer(top: Path) -> None:
    change(top / "disk1" / IDENTITY, format_version=99)


def older(top: Path) -> None:
    change(top / "disk1" / IDENTITY, format_version=2)


def foreign(top: Path) -> None:
    (top / "disk1" / IDENTITY).rename(top / "disk1" / "holiday.jpg")


def data_dir_of_another_node(top: Path) -> None:
    change(top / "data" / IDENTITY, node_id=7)


def newer_data_dir(top: Path) -> None:
    change(top / "data" / IDENTITY, format_version=99)


def damaged_data_dir(top: Path) -> None:
    (top / "data" / IDENTITY).write_bytes(b'{"format_version": 3')


MISTAKES = [
    (of_another_cluster, "it belongs to cluster another", "Nothing was changed"),
    (of_another_node, "it belongs to node 7, this is node 1", "Nothing was changed"),
    (copy_of_data_dir, "it is a copy of the data directory", "Nothing was changed"),
    (newer, "it has format version 99, this release reads 3", "Upgrade this release"),
    (older, "it has format version 2, this release reads 3", "never released"),
    (foreign, "it has no node.json, but holds `holiday.jpg`", ""),
    (data_dir_of_another_node, "it belongs to node 7, this is node 1", "Nothing was changed"),
    (newer_data_dir, "it has format version 99", "Upgrade this release"),
    (damaged_data_dir, "truncated", "Keep the named file"),
]


@pytest.mark.parametrize("command", ["server", "storage add-log-dirs", "storage format"])
@pytest.mark.parametrize(
    ("damage", "why", "hint"), MISTAKES, ids=[row[0].__name__ for row in MISTAKES]
)
def test_a_directory_that_is_not_the_nodes_is_refused_in_three_lines_and_not_touched(
    damage: Callable[[Path], None],
    why: str,
    hint: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = formatted(tmp_path, capsys)
    damage(tmp_path)
    before = content(tmp_path)
    words = [*command.split(), "--config", file]
    if command == "storage format":
        words += ["--standalone"]
        if "data_dir" not in damage.__name__ or damage is copy_of_data_dir:
            why, hint = "it is formatted already", "Nothing was changed"
    assert main(words) in (1, 2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_three_lines(captured.err, why=why, hint=hint)
    assert content(tmp_path) == before


def test_a_log_directory_that_is_not_there_is_neither_formatted_nor_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings_file(tmp_path, "nowhere")
    assert main(["storage", "format", "--standalone", "--config", file]) == 2
    assert_three_lines(capsys.readouterr().err, why="it is not there", hint="mount its disk")
    assert content(tmp_path) == {"node.toml": content(tmp_path)["node.toml"]}


def test_a_log_directory_that_holds_something_keeps_the_node_from_being_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "disk1").mkdir()
    (tmp_path / "disk1" / "holiday.jpg").write_bytes(b"x")
    file = settings_file(tmp_path, "disk1")
    before = content(tmp_path)
    assert main(["storage", "format", "--standalone", "--config", file]) == 2
    assert_three_lines(capsys.readouterr().err, why="holds `holiday.jpg`", hint="Nothing was")
    assert content(tmp_path) == before


@pytest.mark.parametrize("is_formatted", [True, False])
def test_no_directory_is_formatted_if_one_of_them_cannot_be(
    is_formatted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_formatted:
        formatted(tmp_path, capsys)
    else:
        (tmp_path / "disk1").mkdir()
    for name in ("disk2", "disk3"):
        (tmp_path / name).mkdir()
    (tmp_path / "disk3" / IDENTITY).write_text('{"format_version": 3, "cluster_id": "c"}')
    file = settings_file(tmp_path, "disk1", "disk2", "disk3")
    before = content(tmp_path)
    command = ["add-log-dirs"] if is_formatted else ["format", "--standalone"]
    assert main(["storage", *command, "--config", file]) in (1, 2)
    why = "missing required field" if is_formatted else "formatted already"
    assert_three_lines(capsys.readouterr().err, why=why, hint="")
    assert content(tmp_path) == before


def test_a_further_directory_is_added_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formatted(tmp_path, capsys)
    (tmp_path / "disk2").mkdir()
    file = settings_file(tmp_path, "disk1", "disk2")
    assert main(["storage", "add-log-dirs", "--config", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'disk1'}: was formatted already",
        f"{tmp_path / 'disk2'}: formatted",
    ]
    before = content(tmp_path)
    assert main(["storage", "add-log-dirs", "--config", file, "--json"]) == 0
    assert '"is_new": false' in capsys.readouterr().out
    assert content(tmp_path) == before


def test_add_log_dirs_without_any_says_what_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings_file(tmp_path)
    assert main(["storage", "add-log-dirs", "--config", file]) == 2
    assert_three_lines(capsys.readouterr().err, why="no log_dirs", hint="name the new directories")


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")
@pytest.mark.parametrize("command", ["server", "storage add-log-dirs"])
def test_a_data_directory_on_a_read_only_disk_is_refused_and_not_touched(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formatted(tmp_path, capsys)
    small = tmp_path / "small"
    with mounted(small, "size=16m"):
        shutil.copytree(tmp_path / "data", small / "data")
        (tmp_path / "data").rename(tmp_path / "was")
        (tmp_path / "data").symlink_to(small / "data")
        remount(small, "ro")
        before = content(small)
        done = run_cli(*command.split(), "--config", str(tmp_path / "node.toml"))
        assert done.code == 1
        assert_three_lines(done.err, why="Read-only file system", hint="")
        assert content(small) == before


def remount(directory: Path, options: str) -> None:
    words = ["mount", "-o", f"remount,{options}", str(directory)]
    subprocess.run(words, check=True, timeout=HANG_SECONDS)
