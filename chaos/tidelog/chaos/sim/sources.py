"""Finds the source files that a module stands on, by following its imports.

Owns the answer to what a suite exercises: whatever its module imports, directly or through others,
wherever in a file the import stands. Modules that are named by strings only are not found.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[4]
_NAMESPACE: Final = "tidelog"


def sources_behind(module: str, root: Path = ROOT) -> list[Path]:
    """Returns the files of this module and of all that it imports, sorted."""
    found: dict[Path, None] = {}
    waiting = [module]
    while waiting:
        path = _file_of(waiting.pop(), root)
        if path is None or path in found:
            continue
        found[path] = None
        waiting += _imported(path)
    return sorted(found)


def _imported(path: Path) -> list[str]:
    names: dict[str, None] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names[node.module] = None
            # What is imported from a package may be one of its modules.
            names.update((f"{node.module}.{each.name}", None) for each in node.names)
        elif isinstance(node, ast.Import):
            names.update((each.name, None) for each in node.names)
    return [each for each in names if each.startswith(f"{_NAMESPACE}.")]


@cache
def _file_of(module: str, root: Path) -> Path | None:
    relative = Path(*module.split("."))
    for source_root in sorted(root.iterdir()):
        place = source_root / relative
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
        if (place / "__init__.py").is_file():
            return place / "__init__.py"
    return None
