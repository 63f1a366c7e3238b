"""What `config check` and `config show` share: the file's text and each setting's value and source.

Owns where a setting comes from. The rules are the server's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cli.show.errors import BadInput

if TYPE_CHECKING:
    from tidelog.server.settings.configuration import NodeConfiguration


class Effective(NamedTuple):
    """One setting."""

    path: str
    value: object
    source: str
    """`default`, the name of the file, or the name of the environment variable."""
    description: str = ""


def read_text(name: str, command: str) -> str:
    """The file's text."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
        raise BadInput(f"{command} {name}", why, "a configuration is TOML in UTF-8") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "name a file that is there and that you may read"
        raise BadInput(f"{command} {name}", why, hint) from None


def load(file: str | None, command: str, environment: Mapping[str, str]) -> list[Effective]:
    """Every setting, in the order of docs/configuration.md."""
    from tidelog.server.settings import loading as configuration_loading

    text = "" if file is None else read_text(file, command)
    name = file or "the environment"
    loaded = configuration_loading.load(file_text=text, file_name=name, environment=environment)
    return effective(loaded, text, name, environment)


def effective(
    loaded: "NodeConfiguration", text: str, name: str, environment: Mapping[str, str]
) -> list[Effective]:
    """The same of a configuration that is loaded, with the text of its file."""
    import tomllib

    from tidelog.server.settings import loading as configuration_loading

    tree = tomllib.loads(text)
    return [
        Effective(
            setting.path,
            _value(loaded, setting.path),
            setting.variable
            if setting.variable in environment
            else name
            if _is_in(tree, setting.path)
            else "default",
        )
        for setting in configuration_loading.settings()
    ]


def defaults() -> list[Effective]:
    """Every setting as it is when nothing is said."""
    from tidelog.server.settings import loading as configuration_loading

    return [
        Effective(setting.path, setting.default, "default", setting.description)
        for setting in configuration_loading.settings()
    ]


def toml_value(value: object) -> str:
    """The value as it is written in the file."""
    import json

    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _value(configuration: "NodeConfiguration", path: str) -> object:
    value: Any = configuration
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _is_in(tree: Mapping[str, Any], path: str) -> bool:
    node: Any = tree
    for name in path.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return False
        node = node[name]
    return True
