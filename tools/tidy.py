"""Rules about the repository itself that no other tool knows, each a function from tree to faults.

A rule takes the top folder and yields one line per fault, beginning with file and line. Rules read
sources; they never import them, except `packages_import`, which does so in a process of its own.
"""

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tools.repository import (
    ROOTS,
    TOP,
    TOP_LEVEL_PACKAGES,
    python_files,
    run_isolated,
    tracked_files,
)

FILE_LINES_LONG: Final = 400
FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 60
TEST_NAME_WORDS_MIN: Final = 3
MODULE_DOCSTRING_CHARS_MIN: Final = 20

_TEXT_SUFFIXES: Final = frozenset(
    {".cfg", ".in", ".lock", ".md", ".proto", ".py", ".pyi", ".sh", ".toml", ".txt", ".yaml", ""}
)
_MACHINE_PATH: Final = re.compile(r"(?<![\w.~$}-])/(?:root|work|tmp|home|Users)/\w[\w.-]*")
_REGISTRY: Final = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|proxy\.golang\.org"
    r"|repo1?\.maven(?:\.apache)?\.org)"
)
_UNFINISHED: Final = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
_ISSUE: Final = re.compile(r"\b[Ii]ssue #?\d+\b")
_SET_CALLS: Final = frozenset({"set", "frozenset"})
PURE: Final = (
    "broker/tidelog/broker/directory/core",
    "broker/tidelog/broker/housekeeping",
    "proto/tidelog/wire",
    "metadata_quorum/tidelog/metadata",
    "client_sdk/tidelog/client/engine",
)
"""Modules that only decide; a name without suffix is a package or a single file."""

STATE_IS_PRIVATE: Final = ("broker/tidelog/broker/directory/core/",)
"""Folders of cores in which an object is written by its own methods only."""
_CHANGES: Final = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert"),
        *("pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort", "update"),
    }
)
"""Methods that change a list, a deque, a dict or a set."""

Rule = Callable[[Path], Iterator[str]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOKED_AT: Final = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Attribute,
    ast.For,
    ast.comprehension,
)


@cache
def _tree(path: Path) -> ast.Module | SyntaxError:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        return error


def _parsed(path: Path) -> ast.Module:
    """The syntax tree; an empty one for a file that `sources_parse` complains about."""
    tree = _tree(path)
    if isinstance(tree, ast.Module):
        return tree
    return ast.Module(body=[ast.Expr(ast.Constant("x" * 80))], type_ignores=[])


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """Those of the syntax tree that rules look at: a file is walked once for all of them."""
    return [node for node in ast.walk(_parsed(path)) if isinstance(node, _LOOKED_AT)]


def sources_parse(top: Path) -> Iterator[str]:
    """Every other rule reads the syntax tree."""
    for path in python_files(top):
        tree = _tree(top / path)
        if isinstance(tree, SyntaxError):
            yield f"{path}:{tree.lineno}: {tree.msg}"


def files_are_short(top: Path) -> Iterator[str]:
    """A file that needs more lines holds two ideas."""
    for path in python_files(top):
        count = len((top / path).read_text(encoding="utf-8").splitlines())
        if count > FILE_LINES_MAX:
            yield f"{path}:1: {count} lines; split it before {FILE_LINES_MAX}"


def long_files(top: Path) -> Iterator[str]:
    """Files that are worth a look: whether a subject can leave them."""
    for path in python_files(top):
        count = len((top / path).read_text(encoding="utf-8").splitlines())
        if FILE_LINES_LONG < count <= FILE_LINES_MAX:
            yield f"{path} has {count} lines, more than {FILE_LINES_LONG}"


def functions_are_short(top: Path) -> Iterator[str]:
    """A function that needs more lines branches and computes at once."""
    for path in python_files(top):
        for node in _nodes(top / path):
            if isinstance(node, _Function):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > FUNCTION_LINES_MAX:
                    yield (
                        f"{path}:{node.lineno}: {node.name} has {count} lines; "
                        f"split it before {FUNCTION_LINES_MAX}"
                    )


def modules_say_what_they_own(top: Path) -> Iterator[str]:
    """The docstring comes first: what it owns, what it must never do."""
    for path in python_files(top):
        text = ast.get_docstring(_parsed(top / path)) or ""
        if len(text) < MODULE_DOCSTRING_CHARS_MIN and path.parts[0] in {*ROOTS, "tools", "bench"}:
            yield f"{path}:1: the module docstring does not say what the module owns"


def _matches(top: Path, pattern: re.Pattern[str], why: str) -> Iterator[str]:
    for path in tracked_files(top):
        if path.suffix not in _TEXT_SUFFIXES or path.name == "LICENSE":
            continue
        for number, line in enumerate(
            (top / path).read_text("utf-8", errors="replace").splitlines(), start=1
        ):
            found = pattern.search(line)
            if found:
                yield f"{path}:{number}: {found[0]!r} {why}"


def no_path_of_a_machine(top: Path) -> Iterator[str]:
    """Another machine does not have it."""
    yield from _matches(top, _MACHINE_PATH, "is a path of one machine")


def no_registry_host(top: Path) -> Iterator[str]:
    """Packages come from wherever pip, go and mvn are configured to find them."""
    yield from _matches(top, _REGISTRY, "names a registry")


def nothing_is_left_undone(top: Path) -> Iterator[str]:
    """What is missing belongs in an issue, where somebody sees it."""
    yield from _matches(top, _UNFINISHED, "is a note about work not done")


def no_number_of_an_issue(top: Path) -> Iterator[str]:
    """The sources outlive the tracker; an ADR or a comment gives the reason itself."""
    yield from _matches(top, _ISSUE, "points into a tracker")


def the_namespace_stays_open(top: Path) -> Iterator[str]:
    """One `tidelog/__init__.py` hides every other room."""
    for root in ROOTS:
        if (top / root / "tidelog/__init__.py").exists():
            yield f"{root}/tidelog/__init__.py:1: closes the namespace package: delete it"


def packages(top: Path) -> list[Path]:
    """First-level packages of every room, as folders relative to `top`."""
    folders = {
        Path(*path.parts[:3])
        for path in python_files(top)
        if path.parts[0] in ROOTS and path.parts[1:2] == ("tidelog",) and len(path.parts) > 3
    }
    folders |= {
        Path(*path.parts[:2])
        for path in python_files(top)
        if path.parts[0] in ROOTS and path.parts[1] in TOP_LEVEL_PACKAGES - {"tidelog"}
    }
    return sorted(folders)


def packages_are_typed(top: Path) -> Iterator[str]:
    """Without the marker a user's type checker ignores our annotations."""
    for folder in packages(top):
        if not (top / folder / "py.typed").is_file():
            yield f"{folder}/py.typed:1: missing"


def rooms_hold_nothing_else(top: Path) -> Iterator[str]:
    """A module outside the two names would land in site-packages under a generic name."""
    for path in python_files(top):
        if path.parts[0] in ROOTS and path.parts[1] not in TOP_LEVEL_PACKAGES:
            yield f"{path}:1: lies outside {' and '.join(sorted(TOP_LEVEL_PACKAGES))}"


def folders_are_packages(top: Path) -> Iterator[str]:
    """A folder without `__init__.py` becomes a namespace of its own, and checkers miss it."""
    folders = {path.parent for path in python_files(top) if path.parts[0] in ROOTS}
    for folder in sorted(folders):
        if folder.name != "tidelog" and not (top / folder / "__init__.py").is_file():
            yield f"{folder}/__init__.py:1: missing"


def packages_import(top: Path) -> Iterator[str]:
    """Every package imports alone, with warnings as errors and without starting gRPC."""
    names = [".".join(folder.parts[1:]) for folder in packages(top)]
    code = (
        "import importlib, warnings\n"
        "warnings.simplefilter('error')\n"
        f"for name in {names!r}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except Exception as error:\n"
        "        print(f'{name}: does not import: {type(error).__name__}: {error}')\n"
    )
    done = run_isolated(code, top)
    yield from done.stdout.splitlines()
    if done.returncode:
        yield f"{', '.join(names)}: importing failed: {done.stderr.strip()[-500:]}"


def tests_are_sentences(top: Path) -> Iterator[str]:
    """A test's name is the specification; `test_append_2` specifies nothing."""
    for path in python_files(top):
        if path.parts[0] != "tests":
            continue
        for node in _nodes(top / path):
            if not isinstance(node, _Function):
                continue
            words = node.name.removeprefix("test_").split("_")
            if node.name.startswith("test") and len(words) < TEST_NAME_WORDS_MIN:
                yield f"{path}:{node.lineno}: {node.name} is not a sentence"


def tests_have_no_packages(top: Path) -> Iterator[str]:
    """pytest imports test files by path; an `__init__.py` gives them a second name."""
    for path in python_files(top):
        if path.parts[0] == "tests" and path.name == "__init__.py":
            yield f"{path}:1: delete it"


def executors_stay_behind_ports(top: Path) -> Iterator[str]:
    """The simulator can't see an executor's threads, nor the linter the method of a loop."""
    for path in python_files(top):
        if path.parts[0] not in ROOTS or path.parts[0] == "ports":
            continue
        for node in _nodes(top / path):
            if isinstance(node, ast.Attribute) and node.attr == "run_in_executor":
                yield f"{path}:{node.lineno}: run_in_executor is banned outside ports/"


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in _SET_CALLS
    return False


def pure_modules_iterate_no_set(top: Path) -> Iterator[str]:
    """A set's order depends on the hash seed, and with it a simulated run."""
    for path in python_files(top):
        if not str(path).startswith(PURE):
            continue
        for node in _nodes(top / path):
            if isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
                yield f"{path}:{node.iter.lineno}: iterates a set"


def state_is_private(top: Path) -> Iterator[str]:
    """Who decides calls a primitive of what owns the state: nine files that write one object's
    attributes are one class that nobody can read."""
    for path in python_files(top):
        if not str(path).startswith(STATE_IS_PRIVATE):
            continue
        for node in ast.walk(_parsed(top / path)):
            for written in _written(node):
                if not _is_own(written):
                    yield f"{path}:{written.lineno}: writes {ast.unparse(written)}"
            if isinstance(node, ast.Attribute) and _is_foreign_secret(node):
                yield f"{path}:{node.lineno}: reaches for {ast.unparse(node)}"


def _written(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that the node binds, deletes, or changes what they hold."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            targets = list(found)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets = [target]
        case ast.For(target=target) | ast.AsyncFor(target=target):
            targets = [target]
        case ast.Call(func=ast.Attribute(value=ast.Attribute() as value, attr=name)):
            targets = [value] if name in _CHANGES else []
        case _:
            pass
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets += target.elts
        elif isinstance(target, ast.Subscript | ast.Starred):
            targets.append(target.value)
        elif isinstance(target, ast.Attribute):
            yield target


def _is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")


def _is_foreign_secret(attribute: ast.Attribute) -> bool:
    is_secret = attribute.attr.startswith("_") and not attribute.attr.startswith("__")
    return is_secret and not _is_own(attribute)


def chaos_is_imported_lazily(top: Path) -> Iterator[str]:
    """`tidelog --help` must not pay for the simulator."""
    for path in python_files(top):
        if not str(path).startswith("cli/tidelog/cli/"):
            continue
        for node in _parsed(top / path).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(f"{name}.".startswith("tidelog.chaos.") for name in names):
                yield f"{path}:{node.lineno}: imports tidelog.chaos at import time"


def packaging_names_every_room(top: Path) -> Iterator[str]:
    """A room missing from one of the lists is missing from what users install."""
    build = tomllib.loads((top / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shipped = set(build["targets"]["wheel"]["packages"])
    for root in ROOTS:
        if root not in build["dev-mode-dirs"]:
            yield f"pyproject.toml:1: dev-mode-dirs lacks {root}"
        if f"/{root}" not in build["targets"]["sdist"]["include"]:
            yield f"pyproject.toml:1: the sdist lacks /{root}"
        for name in sorted(TOP_LEVEL_PACKAGES):
            if (top / root / name).is_dir() and f"{root}/{name}" not in shipped:
                yield f"pyproject.toml:1: the wheel lacks {root}/{name}"


RULES: Final[tuple[Rule, ...]] = (
    sources_parse,
    files_are_short,
    functions_are_short,
    modules_say_what_they_own,
    no_path_of_a_machine,
    no_registry_host,
    nothing_is_left_undone,
    no_number_of_an_issue,
    the_namespace_stays_open,
    packages_are_typed,
    rooms_hold_nothing_else,
    folders_are_packages,
    packages_import,
    tests_are_sentences,
    tests_have_no_packages,
    executors_stay_behind_ports,
    pure_modules_iterate_no_set,
    state_is_private,
    chaos_is_imported_lazily,
    packaging_names_every_room,
)


def main() -> int:
    """Prints every fault of every rule."""
    gc.disable()  # syntax trees stay until the end: looking through them again costs most of it
    for line in long_files(TOP):
        print(f"note: {line}")
    found = [f"{line} [{rule.__name__}]" for rule in RULES for line in rule(TOP)]
    print("\n".join(found) if found else f"{len(RULES)} rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
