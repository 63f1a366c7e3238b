"""Flags, environment and file → one validated configuration, or INVALID_CONFIGURATION.

Every refusal names the setting, where its value came from, and the nearest name if it is unknown.
"""

import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, get_origin

import msgspec

from tidelog.server.configuration import NodeConfiguration
from tidelog.server.configuration_listeners import validate_listeners
from tidelog.server.configuration_metrics import validate_metrics
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean, nearest_name

PREFIX: Final = "TIDELOG_"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of the tree."""

    path: str
    """As in the file: `listeners.client.bind`."""
    type: Any
    default: object
    description: str

    @property
    def variable(self) -> str:
        """`TIDELOG_LISTENERS_CLIENT_BIND`."""
        return PREFIX + self.path.replace(".", "_").upper()


def settings(struct: type[msgspec.Struct] = NodeConfiguration, prefix: str = "") -> list[Setting]:
    """Every leaf, in the order of the declaration."""
    found = []
    for field in msgspec.structs.fields(struct):
        type_, description = _strip(field.type)
        path = f"{prefix}{field.encode_name}"
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            inner = settings(type_, f"{path}.")
            found += _with_defaults(inner, field.default, path)
        else:
            found.append(
                Setting(
                    path=path, type=field.type, default=_default(field), description=description
                )
            )
    return found


def load(
    *,
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> NodeConfiguration:
    """The configuration; `flags` are setting paths with their values as text.

    `defaults`: values of top-level settings for where neither flag, variable nor file says any.
    """
    known = {setting.path: setting for setting in settings()}
    tree = _parse_file(file_text, file_name)
    _refuse_unknown(tree, known, file_name)
    tree = {**(defaults or {}), **tree}
    variables = {setting.variable: setting for setting in known.values()}
    for variable, text in sorted((environment or {}).items()):
        if variable in variables:
            _put(tree, variables[variable], text, variable)
        elif near := _misspelt(variable, variables):
            raise _invalid(variable, "there is no such variable", f"Did you mean `{near}`?")
    for path, text in (flags or {}).items():
        assert path in known, f"a flag stands for the unknown setting {path}"
        _put(tree, known[path], text, f"the flag for {path}")
    return _validate(tree, file_name)


def _misspelt(variable: str, known: Mapping[str, Setting]) -> str | None:
    """The variable that was meant; other programs have variables with our prefix, too."""
    if not variable.startswith(PREFIX):
        return None
    names = [each.removeprefix(PREFIX) for each in known]
    near = nearest_name(variable.removeprefix(PREFIX), names, likeness=0.85)
    return None if near is None else PREFIX + near


def _with_defaults(inner: list[Setting], default: object, path: str) -> list[Setting]:
    """A branch's own default (such as a listener's address) is the default of its leaves."""
    if not isinstance(default, msgspec.Struct):
        return inner
    result = []
    for setting in inner:
        value: object = default
        for name in setting.path.removeprefix(f"{path}.").split("."):
            value = getattr(value, name)
        result.append(msgspec.structs.replace(setting, default=value))
    return result


def _strip(annotated: Any) -> tuple[Any, str]:
    """The type without its `Annotated`, and the description in it."""
    description = ""
    for meta in getattr(annotated, "__metadata__", ()):
        description = getattr(meta, "description", "") or description
    return getattr(annotated, "__origin__", annotated), description


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None


def _parse_file(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(name, f"it is not TOML: {error}") from None


def _refuse_unknown(
    tree: Mapping[str, Any], known: Mapping[str, Setting], file_name: str, prefix: str = ""
) -> None:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if path in known:
            continue
        is_branch = any(each.startswith(f"{path}.") for each in known)
        if not is_branch:
            raise _invalid(
                f"`{path}` in {file_name}", "there is no such setting", did_you_mean(path, known)
            )
        if not isinstance(value, dict):
            raise _invalid(f"`{path}` in {file_name}", "it is a table, not a value")
        _refuse_unknown(value, known, file_name, f"{path}.")


def _put(tree: dict[str, Any], setting: Setting, text: str, source: str) -> None:
    given: object = text
    if get_origin(_strip(setting.type)[0]) is tuple:
        given = [each.strip() for each in text.split(",") if each.strip()]
    try:
        value = msgspec.convert(given, setting.type, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(source, f"`{text}`: {_lower(error)}", setting.description) from None
    *branches, leaf = setting.path.split(".")
    for branch in branches:
        tree = tree.setdefault(branch, {})
    tree[leaf] = value


def _validate(tree: dict[str, Any], file_name: str) -> NodeConfiguration:
    _fill_listeners(tree)
    try:
        configuration = msgspec.convert(tree, NodeConfiguration)
    except msgspec.ValidationError as error:
        raise _invalid(file_name or "the configuration", _lower(error)) from None
    listeners = configuration.listeners
    for name, listener in (("client", listeners.client), ("cluster", listeners.cluster)):
        _validate_address(f"listeners.{name}.bind", listener.bind)
    validate_listeners(listeners, allow_plaintext=configuration.allow_plaintext)
    if configuration.metrics.bind:
        _validate_address("metrics.bind", configuration.metrics.bind)
    validate_metrics(configuration.metrics, allow_plaintext=configuration.allow_plaintext)
    _validate_directories(configuration)
    _validate_quorum(configuration)
    if configuration.default_partitions > configuration.topics.partitions_max:
        raise _invalid("default_partitions", "it is above topics.partitions_max")
    return configuration


def _validate_directories(configuration: NodeConfiguration) -> None:
    named = [PurePath(configuration.data_dir)]
    for directory in configuration.log_dirs:
        if not directory:
            raise _invalid("log_dirs", "one of them is empty")
        path = PurePath(directory)
        if path == named[0]:
            raise _invalid(
                "log_dirs", f"`{directory}` is data_dir", "Leave it out: it holds partitions, too."
            )
        if path in named:
            raise _invalid("log_dirs", f"`{directory}` is named twice", "Name each once.")
        named.append(path)


def _validate_quorum(configuration: NodeConfiguration) -> None:
    quorum = configuration.quorum
    for address in quorum.bootstrap_servers:
        _validate_address("quorum.bootstrap_servers", address)
    for number, address in configuration.peer_addresses.items():
        _validate_address(f"peer_addresses of node {number}", address)
        if not number.isdigit():
            raise _invalid("peer_addresses", f"`{number}` is no node number")
    if not configuration.is_controller and not quorum.bootstrap_servers:
        raise _invalid(
            "quorum.bootstrap_servers",
            "it is empty, and a broker that is no controller finds the quorum only there",
            "Name the cluster listeners of some controllers.",
        )
    if 2 * quorum.heartbeat_ms > quorum.election_timeout_ms:
        raise _invalid(
            "quorum.heartbeat_ms",
            f"{quorum.heartbeat_ms} ms is more than half of the election timeout, "
            f"{quorum.election_timeout_ms} ms: one late heartbeat would be an election",
        )


def _fill_listeners(tree: dict[str, Any]) -> None:
    """What one listener leaves out is as it is in its own default, not in the other one's."""
    for setting in settings():
        *branches, leaf = setting.path.split(".")
        if branches[:1] != ["listeners"]:
            continue
        given: Any = tree
        for name in branches:
            given = given.get(name) if isinstance(given, dict) else None
        if isinstance(given, dict):
            given.setdefault(leaf, setting.default)


def _validate_address(path: str, address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdigit() or int(port) > 65_535:
        raise _invalid(path, f"`{address}` is not `host:port`")


def _lower(error: msgspec.ValidationError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _invalid(where: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION, tried=f"read {where}", happened=happened, hint=hint
    )
