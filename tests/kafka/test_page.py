"""The migration page: its tables are the code's, its commands are run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import cli_environment
from tests.kafka import page
from tests.kafka.page import with_tables
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tidelog.cli.main import main
from tidelog.client import Producer

PAGE = page.PAGE.read_text("utf-8")
_ROW = re.compile(r"^\| `(kafka-[^`]*)`.* \| `(tidelog [^`]*)`.*\|$", re.MULTILINE)
COMMANDS = _ROW.findall(PAGE)


def test_the_tables_of_options_and_of_what_is_absent_are_the_code_s() -> None:
    assert with_tables(PAGE) == PAGE, "python -m tests.kafka.page writes them again"


def test_every_row_of_the_commands_was_found() -> None:
    part = PAGE[PAGE.index("## Commands") : PAGE.index("## Data")]
    rows = [line for line in part.splitlines() if line.startswith("| `kafka-")]
    assert len(rows) == len(COMMANDS)
    tools = {command.split()[0] for command, _ in COMMANDS}
    assert {
        "kafka-topics",
        "kafka-console-producer",
        "kafka-console-consumer",
        "kafka-consumer-groups",
        "kafka-transactions",
    } <= tools


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, Path]]:
    """A node that knows a transactional id, and files to produce from."""
    directory = tmp_path_factory.mktemp("desk")
    (directory / "sales.txt").write_text("one\ntwo\n")
    (directory / "sales.csv").write_text("alice,three\nbob,four\n")
    with running_node(tmp_path_factory.mktemp("node")) as node:
        with Producer(bootstrap_servers=node.bootstrap, transactional_id="billing") as producer:
            producer.init_transactions()
        yield node, directory


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("command", [tidelog for _, tidelog in COMMANDS])
def test_a_command_of_the_page_runs(
    desk: tuple[NodeProcess, Path],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    node, directory = desk
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", node.bootstrap)
    monkeypatch.chdir(directory)
    if "<" in command:
        code = typed(command, node, directory)
    else:
        # In this process: a new one costs more than the command.
        code = main(shlex.split(command)[1:])
    assert (code, capfd.readouterr().err) == (0, "")


def typed(command: str, node: NodeProcess, directory: Path) -> int:
    """By a shell, which opens the file that the command reads."""
    line = command.replace("tidelog", f'"{sys.executable}" -m tidelog', 1)
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=directory,
        env=cli_environment(node.bootstrap),
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.returncode
