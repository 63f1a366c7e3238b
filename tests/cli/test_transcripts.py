"""README's first minute and the quickstart, typed as they stand: what they show is what is printed.

Owns what of a page is typed: `console` blocks with their output, plain blocks without, Python
blocks as programs. Blocks that start the node, install packages or use Spark are not typed here.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tools.repository import TOP

pytestmark = [pytest.mark.slow, pytest.mark.live]

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_TYPED: Final = ("make run", "pip install", "spark.", "SparkSession", "tidelog dev")
_PROGRAM: Final = '#!/bin/sh\nexec "{python}" -m tidelog "$@"\n'


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[tuple[NodeProcess, Path]]:
    """A node, and a directory in which `tidelog` and `.venv/bin/tidelog` are programs."""
    programs = tmp_path / "desk/.venv/bin"
    programs.mkdir(parents=True)
    program = programs / "tidelog"
    program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    with running_node(tmp_path) as node:
        yield node, tmp_path / "desk"


def blocks(page: str, first: str, last: str) -> list[tuple[str, str]]:
    """Language and text of the blocks between two headings, those that are typed."""
    text = (TOP / page).read_text("utf-8")
    part = text[text.index(first) : text.index(last)]
    found = [(match[1], match[2]) for match in _BLOCK.finditer(part)]
    return [block for block in found if not any(word in block[1] for word in _NOT_TYPED)]


def typed(desk: tuple[NodeProcess, Path], language: str, text: str) -> str:
    """What the block prints, on both streams."""
    node, directory = desk
    path = f"{directory / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    mine = {name: text for name, text in os.environ.items() if not name.startswith("TIDELOG_")}
    command = [sys.executable, "-c", text] if language == "python" else ["/bin/sh", "-c", text]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**mine, "PATH": path, "TIDELOG_BOOTSTRAP": node.bootstrap},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.stdout


def console(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what stands below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def without_ids(text: str) -> str:
    """A topic's id is drawn."""
    return re.sub(r"TopicId: [0-9a-f]{32}", "TopicId: ID", text)


def test_the_first_minute_of_the_readme_is_true(desk: tuple[NodeProcess, Path]) -> None:
    shell, program, *_ = blocks("README.md", "## A first minute", "## Install")
    assert typed(desk, *shell) == (
        "created topic greetings: 3 partitions, replication factor 1\nhello\nworld\n"
    )
    assert program[0] == "python"
    lines = typed(desk, *program).splitlines()
    topic, partition, offset = lines[0].split()
    assert topic == "greetings"
    assert lines[-1] == f"{offset} b'alice' b'good morning'"
    assert partition in "012"


def test_the_quickstart_prints_what_it_says(desk: tuple[NodeProcess, Path]) -> None:
    shown = [text for language, text in blocks("docs/quickstart.md", "## The comm", "## The SDK")]
    commands = [pair for text in shown for pair in console(text)]
    assert len(commands) == 9
    for command, expected in commands:
        assert without_ids(typed(desk, "console", command)) == without_ids(expected), command


def test_the_program_of_the_quickstart_reads_what_it_wrote(desk: tuple[NodeProcess, Path]) -> None:
    ((language, text),) = blocks("docs/quickstart.md", "## The SDK", "## Keep the data")
    lines = typed(desk, language, text).splitlines()
    assert lines[0] == "999"
    assert "999" not in lines[1]
    assert "1000" in lines[1]
    assert lines[2:] == [f"{number} b'{number}'" for number in range(990, 1000)]


def test_the_program_with_many_records_tells_their_offsets(desk: tuple[NodeProcess, Path]) -> None:
    ((language, text),) = blocks("docs/quickstart.md", "## Many records", "## A topic as a table")
    lines = typed(desk, language, text).splitlines()
    assert lines[:2] == ["2 [0, 1]", "2"]
    assert lines[2].startswith("[{'offset': 0, 'key': b'k', 'value': b'one'}")


def test_the_program_with_a_table_follows_and_looks_back(desk: tuple[NodeProcess, Path]) -> None:
    ((language, text),) = blocks("docs/quickstart.md", "## A topic as a table", "## Records that")
    lines = typed(desk, language, text).splitlines()
    assert lines == ["{'tea': 3, 'milk': 2}", "4 2 {0: 3}", "{b'tea': b'3'}"]


def test_the_program_with_dead_letters_sets_one_aside(desk: tuple[NodeProcess, Path]) -> None:
    ((language, text),) = blocks("docs/quickstart.md", "## Records that", "## With asyncio")
    lines = typed(desk, language, text).splitlines()
    assert lines == ["1", "3", "HandlerCounts(handled=2, retried=0, dead_letters=1)"]
