"""The page of settings, from the Structs that hold them: a node's tree and a client's arguments.

Owns how a field becomes a line of a table. A field is explained by `msgspec.Meta(description=…)` or
by the string below it in the source; a field without either still shows type and default.
"""

import ast
import collections.abc
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec

TABLE_HEAD: Final = ("| setting | type | default | meaning |", "|---|---|---|---|")


def tree_lines(root: type[msgspec.Struct]) -> Iterator[str]:
    """A node's settings: a section for each table of the TOML file, the root's first."""
    queue: list[tuple[tuple[str, ...], type[msgspec.Struct], Any]] = [((), root, root())]
    while queue:
        path, kind, values = queue.pop(0)
        fields = msgspec.structs.fields(kind)
        leaves = [field for field in fields if not _is_struct(getattr(values, field.name))]
        if path and leaves:
            yield from ("", f"### [{'.'.join(path)}]", "")
        if leaves:
            yield from (inspect.getdoc(kind) or "", "", *TABLE_HEAD)
            yield from (_line(kind, field, _toml(getattr(values, field.name))) for field in leaves)
        queue[:0] = [
            ((*path, field.encode_name), type(value), value)
            for field in fields
            if _is_struct(value := getattr(values, field.name))
        ]


def arguments_lines(kind: type[msgspec.Struct]) -> Iterator[str]:
    """The arguments of one client class."""
    values = kind()
    yield from TABLE_HEAD
    for field in msgspec.structs.fields(kind):
        yield _line(kind, field, repr(getattr(values, field.name)))


def field_texts(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The string below each field of a Struct, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found.update(_own_texts(base))
    return found


def cell(text: str) -> str:
    """A text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _own_texts(kind: type[msgspec.Struct]) -> dict[str, str]:
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


def _is_struct(value: object) -> bool:
    return isinstance(value, msgspec.Struct)


def _toml(value: object) -> str:
    """A value as the file wants it; JSON and TOML write plain values alike."""
    return msgspec.json.encode(value).decode()


def _line(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, value: str) -> str:
    hint = typing.get_type_hints(kind, include_extras=True)[field.name]
    text = " ".join([*_meta_texts(hint), field_texts(kind).get(field.name, "")])
    cells = (f"`{field.encode_name}`", type_name(hint), f"`{value}`", text)
    return f"| {' | '.join(map(cell, cells))} |"


def _meta_texts(hint: Any) -> Iterator[str]:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, msgspec.Meta):
            yield extra.description or ""
            if extra.ge is not None and extra.le is not None:
                yield f"From {extra.ge} to {extra.le}."
            elif extra.ge is not None:
                yield f"At least {extra.ge}."
            elif extra.le is not None:
                yield f"At most {extra.le}."


def type_name(hint: Any) -> str:
    """A type in the words of somebody who writes a value."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value!r}`" for value in arguments)
    if origin in {types.UnionType, typing.Union}:
        return " or ".join(type_name(argument) for argument in arguments)
    if origin is collections.abc.Callable:
        return "function"
    if origin is not None:
        inner = " to ".join(type_name(argument) for argument in arguments if argument is not ...)
        return f"{'map' if issubclass(origin, collections.abc.Mapping) else 'list'} of {inner}"
    return "none" if hint is type(None) else str(getattr(hint, "__name__", hint))
