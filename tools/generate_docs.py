"""Writes the pages of docs/ that come from the sources, or checks that they are current.

Owns docs/errors.md, from the catalogue of errors, and docs/configuration.md, from the Structs that
hold a node's and a client's settings. A field is explained by the string below it in the source,
or by `msgspec.Meta(description=…)`.
"""

import argparse
import ast
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from tools.repository import TOP, room_paths

GENERATED: Final = "<!-- Written by `make docs` from {source}; do not edit. -->"
CONFIGURATIONS: Final = ("tidelog.server.configuration", "tidelog.client.configuration")


def errors_page() -> str:
    """Every error code: number, meaning, whether a retry can help, what to do."""
    from tidelog.wire.errors import CATALOGUE, ErrorCode

    lines = [
        GENERATED.format(source="`tidelog.wire.errors`"),
        "",
        "# Errors",
        "",
        "Every error that a client, a command or the protocol reports carries one of these codes.",
        "Names and numbers never change their meaning. *Retriable*: the same call may succeed",
        "later without a change by the caller.",
        "",
        "| code | number | meaning | retriable | what to do |",
        "|---|---|---|---|---|",
    ]
    for code in ErrorCode:
        meaning = CATALOGUE.get(code)
        if meaning is not None:
            retriable = "yes" if meaning.retriable else "no"
            cells = (meaning.meaning, retriable, meaning.remedy)
            lines.append(f"| `{code.name}` | {int(code)} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def configuration_page(modules: list[ModuleType]) -> str:
    """Every setting: name, type, default, meaning; a section for each Struct."""
    names = " and ".join(f"`{module.__name__}`" for module in modules)
    lines = [
        GENERATED.format(source=names),
        "",
        "# Configuration",
        "",
        "A setting comes from, in this order: the command line, an environment variable",
        "`TIDELOG_…`, the TOML file, the default.",
    ]
    for module in modules:
        for kind in structs(module):
            lines += ["", f"## {_title(kind)}", "", *_struct_lines(kind)]
    return "\n".join(lines) + "\n"


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    """The public Structs that a module defines, in the order of the source."""
    found = [
        kind
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
        and not name.startswith("_")
    ]
    return sorted(found, key=lambda kind: inspect.getsourcelines(kind)[1])


def field_texts(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The string below each field of a Struct."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef), f"{kind.__name__} is not a class statement"
    found = {}
    for field, below in zip(body.body, [*body.body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    found[field.target.id] = inspect.cleandoc(text)
                case _:
                    pass
    return found


def _title(kind: type[msgspec.Struct]) -> str:
    words = "".join(
        f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__
    )
    return words.strip().capitalize()


def _struct_lines(kind: type[msgspec.Struct]) -> Iterator[str]:
    yield inspect.getdoc(kind) or ""
    yield ""
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    texts = field_texts(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        text = texts.get(field.name, "") or _description(hints[field.name])
        kind_name = _type_name(_without_metadata(hints[field.name]))
        cells = (f"`{field.encode_name}`", f"`{kind_name}`", _default(field), text)
        yield f"| {' | '.join(map(_cell, cells))} |"


def _description(hint: Any) -> str:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, msgspec.Meta) and extra.description:
            return extra.description
    return ""


def _without_metadata(hint: Any) -> Any:
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(value) for value in typing.get_args(hint))
    if hint is type(None):
        return "none"
    arguments = typing.get_args(hint)
    if arguments and not isinstance(hint, type) and typing.get_origin(hint) is not None:
        inner = [
            _type_name(_without_metadata(argument)) for argument in arguments if argument is not ...
        ]
        origin = typing.get_origin(hint)
        if getattr(origin, "__name__", "") in {"UnionType", "Union"}:
            return " or ".join(inner)
        return f"{origin.__name__} of {', '.join(inner)}"
    return str(getattr(hint, "__name__", hint))


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    if isinstance(value, msgspec.Struct):
        return f"see [{_title(type(value))}](#{_title(type(value)).lower().replace(' ', '-')})"
    return f"`{value!r}`" if not isinstance(value, int) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Every generated page and what it should hold."""
    modules = []
    for name in CONFIGURATIONS:
        folder, _, leaf = name.rpartition(".")
        if any(
            (Path(room) / Path(*name.split("."))).with_suffix(".py").is_file()
            for room in room_paths()
        ):
            modules.append(getattr(__import__(folder, fromlist=[leaf]), leaf))
    found = {Path("docs/errors.md"): errors_page()}
    if modules:
        found[Path("docs/configuration.md")] = configuration_page(modules)
    return found


def main() -> int:
    """Writes the pages, or with --check only compares them."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    # The rooms beside this tool come first: the environment may have another checkout installed.
    sys.path[:0] = room_paths()
    stale = 0
    for path, text in pages().items():
        current = (TOP / path).read_text("utf-8") if (TOP / path).is_file() else ""
        if current != text:
            stale += 1
            if not is_check:
                (TOP / path).write_text(text, "utf-8")
            print(f"{path}: {'differs from its source' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
