"""docs/events.md names each event that the sources can write, with its level, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
ROOMS = ("broker", "metadata_quorum", "ports")
LEVELS = ("info", "warning", "error")
LOGS = ("log_events", "events", "_events")


def written(path: Path) -> Iterator[tuple[str, str]]:
    """Event and level of each call in a module."""
    tree = ast.parse(path.read_text())
    names = dict(_named(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        log = node.func.value
        name = log.attr if isinstance(log, ast.Attribute) else getattr(log, "id", "")
        if name not in LOGS or node.func.attr not in LEVELS or not node.args:
            continue
        event = node.args[0]
        if isinstance(event, ast.Constant):
            yield str(event.value), node.func.attr
        elif isinstance(event, ast.Name):
            yield from ((each, node.func.attr) for each in names.get(event.id, ()))


def _named(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names that stand for a text, or for one of two."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign | ast.Assign):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name):
            value = node.value
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            texts = [str(each.value) for each in parts if isinstance(each, ast.Constant)]
            if len(texts) == len(parts):
                yield target.id, tuple(texts)


@pytest.mark.slow
def test_the_page_of_events_names_each_event_and_no_other() -> None:
    page = (TOP / "docs/events.md").read_text()
    named = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    found = {
        each
        for room in ROOMS
        for path in sorted((TOP / room).rglob("*.py"))
        for each in written(path)
    }
    assert len(named) == len(set(named))
    assert sorted(found - set(named)) == []
    assert sorted(set(named) - found) == []


def test_an_event_under_a_constant_or_over_several_lines_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "a.py"
    module.write_text(
        'NAME: str = "b_c"\n'
        'log_events.info("a_b", x=1)\n'
        "self._events.warning(\n    NAME,\n    y=2,\n)\n"
        'def f():\n    event = "c_d" if x else "d_e"\n    events.error(event)\n'
        'other.info("no")\n'
    )
    assert sorted(written(module)) == [
        ("a_b", "info"),
        ("b_c", "warning"),
        ("c_d", "error"),
        ("d_e", "error"),
    ]
