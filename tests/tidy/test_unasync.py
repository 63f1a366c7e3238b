"""One text for asyncio and threads: what becomes of it, and that a stale file is found."""

from pathlib import Path

import pytest

from tools import unasync
from tools.repository import TOP
from tools.unasync import Misfit, Text, for_threads

TEXT = '''"""Waits."""

import asyncio
from collections.abc import Awaitable, Callable


class AsyncWaiter:
    """As `tidelog.client.aio.waiter` says."""

    # asyncio only: nobody could await it
    # when the interpreter ends.
    @property
    async def gone(self) -> None:
        await asyncio.sleep(0)

    # threads: @property
    # threads: def only_here(self) -> int:
    # threads:     return 1

    async def look(self, found: Callable[[], Awaitable[int]]) -> int:
        async with self.lock:
            await asyncio.sleep(1)
            return await found()
'''
FOR_THREADS = '''# Written by `make threads` from text.py; do not edit.
"""Waits."""

import time
from collections.abc import Callable


class Waiter:
    """As `tidelog.client.sync.waiter` says."""

    @property
    def only_here(self) -> int:
        return 1

    def look(self, found: Callable[[], int]) -> int:
        with self.lock:
            time.sleep(1)
            return found()
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n", "utf-8")
    return tmp_path


def texts(tree: Path, text: str) -> list[Text]:
    (tree / "text.py").write_text(text, "utf-8")
    return [Text(source="text.py", target="threads.py")]


def test_a_text_for_asyncio_becomes_one_for_threads(tree: Path) -> None:
    (text,) = texts(
        tree, TEXT.replace("import asyncio\n", "import asyncio\n# threads: import time\n")
    )
    assert unasync.made(text, tree) == FOR_THREADS


def test_a_stale_file_and_a_missing_one_are_found(tree: Path) -> None:
    given = texts(tree, "async def three() -> int:\n    return 3\n")
    assert "make threads" in unasync.faults(tree, given)[0]
    target = tree / "threads.py"
    target.write_text(unasync.made(given[0], tree), "utf-8")
    assert unasync.faults(tree, given) == []
    target.write_text(target.read_text("utf-8").replace("3", "4"), "utf-8")
    assert unasync.faults(tree, given) == [
        "threads.py: differs from what text.py becomes: type `make threads`"
    ]


def test_what_threads_cannot_have_is_not_written(tree: Path) -> None:
    (text,) = texts(tree, "import asyncio\n\nasyncio.get_running_loop()\n")
    with pytest.raises(Misfit, match=r"'asyncio' is left in line 1 of threads\.py"):
        unasync.made(text, tree)


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("x = 1\n", [("never", "there")], "has no 'never'"),
        ("x = (\n    # asyncio only: a part of a statement\n    1\n)\n", [], "no statement begins"),
    ],
)
def test_a_word_or_a_mark_without_a_use_is_refused(
    text: str, words: list[tuple[str, str]], says: str
) -> None:
    with pytest.raises(Misfit, match=says):
        for_threads(text, words, "text.py")


def test_the_committed_files_say_what_wrote_them() -> None:
    for text in unasync.TEXTS:
        assert "`make threads`" in (TOP / text.target).read_text("utf-8").splitlines()[0]
