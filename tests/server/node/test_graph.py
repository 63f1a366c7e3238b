"""A node is built in the order of its dependencies: a part is given what it needs when it is made.

Read from the sources of the room that builds nodes: nobody sets an attribute of a part from
outside, and no constructor hands out a function that looks for a part which it makes later.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).parents[3] / "broker/tidelog/server"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def faults(source: str) -> list[str]:
    """A line for each part that is told of something after it was made."""
    tree = ast.parse(source)
    functions = [each for each in ast.walk(tree) if isinstance(each, _Function)]
    found = [fault for each in functions for fault in _set_from_outside(each)]
    makers = [each for each in functions if each.name == "__init__"]
    return found + [fault for each in makers for fault in _looked_for_early(each)]


def _set_from_outside(function: _Function) -> Iterator[str]:
    own = {"self", *_made_here(function)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and "setattr" in ast.unparse(node.func):
            if ast.unparse(node.args[0]) not in own:
                yield f"{node.lineno}: {ast.unparse(node)}"
        # What is counted up (`counts.stalls += 1`) is a figure and no part.
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for each in _attributes_set(targets):
                whose = ast.unparse(each.value)
                # A name in capitals is a module's own.
                if whose not in own and not whose.isupper():
                    yield f"{node.lineno}: {ast.unparse(each)}"


def _attributes_set(targets: Iterable[ast.AST]) -> Iterator[ast.Attribute]:
    for target in targets:
        for each in ast.walk(target):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                yield each


def _made_here(function: _Function) -> set[str]:
    """Names of what the function makes itself: nobody else has it yet."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).rpartition(".")[2][:1].isupper()
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _looked_for_early(maker: _Function) -> Iterator[str]:
    made: dict[str, int] = {}
    for each in _attributes_set([maker]):
        if ast.unparse(each.value) == "self":
            made[each.attr] = min(each.lineno, made.get(each.attr, each.lineno))
    for function in ast.walk(maker):
        if function is maker or not isinstance(function, ast.Lambda | _Function):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute) or ast.unparse(node.value) != "self":
                continue
            if made.get(node.attr, 0) > function.lineno:
                yield f"{function.lineno}: self.{node.attr} is made later"


@pytest.mark.parametrize(
    "planted",
    [
        "def f(part): part.roles = Roles()",
        "def f(node):\n part = node.part()\n part.roles = Roles()",
        "def f(self): self.part.roles = Roles()",
        "def f(part): part.first, part.roles = 1, Roles()",
        "async def f(parts): parts[0].roles: Roles = Roles()",
        "def f(part): setattr(part, 'roles', Roles())",
        "def f(part): object.__setattr__(part, 'roles', Roles())",
        "def __init__(self):\n self.calls = Calls(lambda: self.lag.of())\n self.lag = Lag()",
        "def __init__(self):\n def of(): return self.lag.of()\n self.lag = Lag(of)",
    ],
)
def test_a_part_that_is_told_later_is_seen(planted: str) -> None:
    assert faults(planted)


@pytest.mark.parametrize(
    "planted",
    [
        "def f(self): self.part = Part()",
        "def f(self): self.counts.stalls += 1",
        "def f():\n family = Family()\n family.samples = []",
        "def __init__(self):\n self.lag = Lag()\n self.calls = Calls(lambda: self.lag.of())",
    ],
)
def test_what_is_a_parts_own_or_a_figure_is_no_fault(planted: str) -> None:
    assert faults(planted) == []


def test_no_part_of_a_node_is_told_later() -> None:
    found = {
        f"{path.relative_to(SERVER)}:{fault}"
        for path in sorted(SERVER.rglob("*.py"))
        for fault in faults(path.read_text("utf-8"))
    }
    assert found == set()
