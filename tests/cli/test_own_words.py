"""No error of a command names a class or a call of the Python client."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog.client
from tidelog.cli import own_words
from tidelog.cli.main import main
from tidelog.wire.errors import CATALOGUE, ErrorCode, TidelogError

CALL = re.compile(r"\w\((?!\d\))[^()]*\)")
"""But for a page of the manual, as in `fsync(2)`."""
CLASSES = re.compile(r"\b(AdminClient|Async[A-Z]\w+|Producer\.|Consumer\.)")
ROOMS = ("client_sdk", "broker", "metadata_quorum", "ports", "proto")
TOP = Path(__file__).parents[2]


def texts(node: ast.expr) -> Iterator[str]:
    """The texts of an expression; what is filled in is taken for a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "close" for each in node.values]
        yield "".join(str(each) for each in parts)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def said() -> list[tuple[str, str]]:
    """Every text that the sources give to `tried`, `happened` or `hint`, and the catalogue's."""
    found = {("hint", each.remedy) for each in CATALOGUE.values()}
    for room in ROOMS:
        for path in sorted((TOP / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                given = node.keywords if isinstance(node, ast.Call) else []
                for keyword in given:
                    if keyword.arg in ("tried", "happened", "hint"):
                        found |= {(keyword.arg, each) for each in texts(keyword.value)}
                is_hint = isinstance(node, ast.Assign) and "hint" in ast.unparse(node.targets[0])
                if is_hint and isinstance(node, ast.Assign):
                    found |= {("hint", each) for each in texts(node.value)}
    names = [name for name in dir(tidelog.client.AdminClient) if not name.startswith("_")]
    found |= {("tried", f"call AdminClient.{name}()") for name in names}
    return sorted(found)


def told_of(error: TidelogError, command: str) -> tuple[str, str, str]:
    """The three lines."""
    what = f"{error.tried} [{error.code.name}]"
    return own_words.told(what, error.happened, error.hint, command)


def test_no_error_of_a_command_names_a_call_of_the_client() -> None:
    given = {"tried": "try", "happened": "it failed", "hint": "try again"}
    wrong, of_python = [], 0
    for part, text in said():
        of_python += bool(CLASSES.search(text) or CALL.search(text))
        told = {**given, part: text}
        error = TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=told["tried"],
            happened=told["happened"],
            hint=told["hint"],
        )
        for line in told_of(error, "topic create"):
            if CLASSES.search(line) or CALL.search(line):
                wrong.append(f"{line} ({text})")
    assert of_python > 40, "the texts were not read"
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("words", "second", "hint"),
    [
        ("topic create a/b", "'a/b'", "Topic names are"),
        ("topic delete a/b", "'a/b'", "Topic names"),
    ],
)
def test_a_mistake_that_the_client_finds_is_told_of_the_command(
    words: str, second: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "-b", "127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    first, why, last = told.splitlines()
    assert first.startswith(f"error: tidelog {' '.join(words.split()[:2])} [")
    assert second in why
    assert hint in last


def test_a_call_is_never_the_advice() -> None:
    error = TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried="call Consumer.seek()",
        happened="send() was called",
        hint="call flush() first",
    )
    what, why, hint = told_of(error, "consume")
    assert what == "tidelog consume [INVALID_ARGUMENT]"
    assert why == "the client was called"
    assert hint == "tidelog consume --help"
