"""Writes the clients for threads from their texts for asyncio, or checks that they are current.

Owns `TEXTS`, the files that are written once, and the words in which the two forms differ. A text
is Python for asyncio; what becomes of it for threads is decided line by line, never by running it:

- The words of `COMMON`, and those that a text brings with it, are replaced wherever they stand, in
  code, comments and docstrings alike: `await` goes, `AsyncTable` becomes `Table`.
- `# asyncio only: why` above a statement: threads do without the statement.
- `# threads: code` is a line of code for threads, and a comment for asyncio.

What differs by more than a line belongs into a module of the same name that each form has, written
by hand, and the text calls it. This is httpcore's way, with a formatter behind it.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tools.repository import TOP

HEADER: Final = "# Written by `make threads` from {source}; do not edit.\n"
REPAIR: Final = "differs from what {source} becomes: type `make threads`"
RUFF: Final = Path(sys.executable).parent / "ruff"
ASYNCIO_ONLY: Final = re.compile(r"^\s*# asyncio only: \S")
THREADS: Final = re.compile(r"^(\s*)# threads:(?: (.*))?$")
LEFT_OVER: Final = re.compile(r"\b(?:async|await|asyncio|Async\w+|aio)\b|# asyncio only")

COMMON: Final = (
    (r"\basync (?=def |with |for )", ""),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\btidelog\.client\.aio\.", "tidelog.client.sync."),
    (r"\bAsync(?=[A-Z])", ""),
)
"""Of every text, in this order."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A file for asyncio, the one for threads, and the words that only these two differ in."""

    source: str
    target: str
    words: tuple[tuple[str, str], ...] = ()
    """As they stand, not patterns; each must stand in the text."""


CLIENT: Final = "client_sdk/tidelog/client"
TESTING: Final = "test_kit/tidelog/testing"
TEXTS: Final = (
    Text(source=f"{CLIENT}/aio/cluster_calls.py", target=f"{CLIENT}/sync/cluster_calls.py"),
    Text(
        source=f"{CLIENT}/aio/admin/transactions.py",
        target=f"{CLIENT}/sync/admin/transactions.py",
    ),
    Text(
        source=f"{CLIENT}/aio/group_consumer.py",
        target=f"{CLIENT}/sync/group_consumer.py",
        words=(
            ("_await_listener", "_call_listener"),
            (" Offsets can be of partitions\n        that are assigned.", ""),
            ('during="stop"', 'during="close"'),
        ),
    ),
    Text(
        source=f"{CLIENT}/aio/reading_calls.py",
        target=f"{CLIENT}/sync/reading_calls.py",
        words=(
            ('"get records"', '"poll"'),
            ("getmany(", "poll("),
            ('"get batches"', '"poll batches"'),
            ("get_batches(", "poll_batches("),
            ('"get a table"', '"poll a table"'),
            ("get_arrow(", "poll_arrow("),
        ),
    ),
    Text(
        source=f"{CLIENT}/aio/retry.py",
        target=f"{CLIENT}/patterns/retry.py",
        words=(
            ("_consumer.getmany(timeout_ms=", "_consumer.poll(timeout_ms="),
            ("    Cancelling `run` leaves the record that is handled at the moment undone.\n", ""),
        ),
    ),
    Text(
        source=f"{CLIENT}/aio/table.py",
        target=f"{CLIENT}/patterns/table.py",
        words=(
            (".getmany(", ".poll("),
            ("Reads do not wait.", "Safe to read from several threads."),
        ),
    ),
    Text(
        source=f"{CLIENT}/aio/transaction.py",
        target=f"{CLIENT}/sync/transaction.py",
        words=(("client.aio.send_future import AsyncSend", "client.sync.future import Send"),),
    ),
    Text(
        source=f"{CLIENT}/aio/transaction_calls.py",
        target=f"{CLIENT}/sync/transaction_calls.py",
        words=(
            ("client.aio.send_future import AsyncSend", "client.sync.future import Send"),
            ('"getmany"', '"poll"'),
        ),
    ),
    Text(
        source=f"{TESTING}/aio.py",
        target=f"{TESTING}/cluster.py",
        words=(
            ("from tidelog.client.aio import", "from tidelog.client import"),
            (
                'await cluster.producer().send_and_wait("t", b"value")',
                'cluster.producer().send("t", b"value").get(10)',
            ),
            (".run_beside(", ".run("),
            ("client.stop(", "client.close("),
        ),
    ),
)


class Misfit(Exception):
    """A text that nothing for threads can be made of."""


def for_threads(text: str, words: Sequence[tuple[str, str]] = (), source: str = "") -> str:
    """What the text becomes, not formatted yet."""
    kept = "\n".join(_kept_lines(text, source)) + "\n"
    for old, new in words:
        if old not in kept:
            raise Misfit(f"{source}: has no {old!r}: take the word out of tools/unasync.py")
        kept = kept.replace(old, new)
    for pattern, new in COMMON:
        kept = re.sub(pattern, new, kept)
    return kept


def _kept_lines(text: str, source: str) -> list[str]:
    """Without what is for asyncio only, and with what is for threads."""
    lines = text.splitlines()
    ends = _statement_ends(text)
    kept: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if ASYNCIO_ONLY.match(line):
            while number < len(lines) and lines[number].lstrip().startswith("#"):
                number += 1  # the reason may take more than one line
            if number + 1 not in ends:
                raise Misfit(f"{source}:{number}: no statement begins below `# asyncio only`")
            number = ends[number + 1]
        elif found := THREADS.match(line):
            kept.append(f"{found[1]}{found[2] or ''}".rstrip())
        else:
            kept.append(line)
    return kept


def _statement_ends(text: str) -> dict[int, int]:
    """The last line of each statement by its first one, which is that of its decorators."""
    ends: dict[int, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            assert node.end_lineno is not None, "the parser tells where a statement ends"
            ends.setdefault(first, node.end_lineno)
    return ends


def made(text: Text, top: Path = TOP) -> str:
    """The whole file for threads, formatted, its imports sorted and those without a use gone."""
    source = (top / text.source).read_text(encoding="utf-8")
    raw = for_threads(source, text.words, text.source)
    name = f"--stdin-filename={text.target}"
    sorted_text = _ruff(top, raw, "check", "--select=I,F401", "--fix", "--quiet", name, "-")
    formatted = _ruff(top, sorted_text, "format", "--quiet", name, "-")
    for number, line in enumerate(formatted.splitlines(), 1):
        if left := LEFT_OVER.search(line):
            raise Misfit(f"{text.source}: {left[0]!r} is left in line {number} of {text.target}")
    return HEADER.format(source=text.source) + formatted


def _ruff(top: Path, text: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(RUFF), *arguments],
        cwd=top,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise Misfit(f"ruff {arguments[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def faults(top: Path = TOP, texts: Sequence[Text] = TEXTS) -> list[str]:
    """A line for each file for threads that is missing or not what its text becomes."""
    found = []
    for text in texts:
        target = top / text.target
        if not target.is_file() or target.read_text(encoding="utf-8") != made(text, top):
            found.append(f"{text.target}: {REPAIR.format(source=text.source)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes what is not current; with `--check` it only says so."""
    parser = argparse.ArgumentParser(prog="python -m tools.unasync", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args(arguments).check
    try:
        if is_check:
            found = faults()
            print("\n".join(found) if found else f"{len(TEXTS)} files for threads are current")
            return 1 if found else 0
        for text in TEXTS:
            (TOP / text.target).write_text(made(text), encoding="utf-8")
            print(text.target)
    except Misfit as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
