"""Flags, environment and file → one validated configuration, or INVALID_CONFIGURATION.

Every refusal names the setting, where its value came from, and the nearest name if it is unknown.
All mistakes are found in one go: whoever corrects a file wants to know of the sixth as well.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, get_origin

import msgspec

from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.settings.listeners import check_listeners, is_same_place
from tidelog.server.settings.metrics import check_metrics
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean, nearest_name

PREFIX: Final = "TIDELOG_"
PORT_MAX: Final = 65_535


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

    `defaults`: values of settings for where neither flag, variable nor file says any.
    INVALID_CONFIGURATION names the first mistake, and how many there are.
    """
    configuration, mistakes = examine(
        file_text=file_text,
        file_name=file_name,
        environment=environment,
        flags=flags,
        defaults=defaults,
    )
    if len(mistakes) > 1:
        first = mistakes[0]
        raise TidelogError(
            first.code,
            tried=first.tried,
            happened=f"{first.happened}; it is the first of {len(mistakes)} mistakes",
            hint=f"{first.hint} `tidelog config check` names them all.".strip(),
        )
    if mistakes:
        raise mistakes[0]
    return configuration


def examine(
    *,
    file_text: str = "",
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[NodeConfiguration, list[TidelogError]]:
    """The configuration as far as it could be read, and every mistake in it."""
    known = {setting.path: setting for setting in settings()}
    mistakes: list[TidelogError] = []
    tree: dict[str, Any] = {}
    try:
        tree = tomllib.loads(file_text)
    except tomllib.TOMLDecodeError as error:
        mistakes.append(_invalid(file_name, f"it is not TOML: {error}"))
    mistakes += _take_out_unknown(tree, known, file_name)
    mistakes += _put_variables(tree, known, environment or {})
    for path, text in (flags or {}).items():
        assert path in known, f"a flag stands for the unknown setting {path}"
        mistakes += _put(tree, known[path], text, f"the flag for {path}")
    for path, value in (defaults or {}).items():
        *branches, leaf = path.split(".")
        _branch(tree, branches).setdefault(leaf, value)
    _fill_listeners(tree)
    mistakes += _take_out_unfit(tree, known, file_name)
    try:
        configuration = msgspec.convert(tree, NodeConfiguration)
    except msgspec.ValidationError as error:
        # No leaf is wrong by itself, so that nothing else can be said of the whole.
        mistakes.append(_invalid(file_name or "the configuration", _lower(error)))
        return NodeConfiguration(), mistakes
    return configuration, mistakes + list(_contradictions(configuration))


def _put_variables(
    tree: dict[str, Any], known: Mapping[str, Setting], environment: Mapping[str, str]
) -> Iterator[TidelogError]:
    variables = {setting.variable: setting for setting in known.values()}
    for variable, text in sorted(environment.items()):
        if variable in variables:
            yield from _put(tree, variables[variable], text, variable)
        elif near := _misspelt(variable, variables):
            yield _invalid(variable, "there is no such variable", f"Did you mean `{near}`?")


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


def _take_out_unknown(
    tree: dict[str, Any], known: Mapping[str, Setting], file_name: str, prefix: str = ""
) -> Iterator[TidelogError]:
    """Names that are no settings; what is left of the tree is looked at further."""
    for name, value in list(tree.items()):
        path = f"{prefix}{name}"
        if path in known:
            continue
        where = f"`{path}` in {file_name}"
        if not any(each.startswith(f"{path}.") for each in known):
            del tree[name]
            yield _invalid(where, "there is no such setting", did_you_mean(path, known))
        elif isinstance(value, dict):
            yield from _take_out_unknown(value, known, file_name, f"{path}.")
        else:
            del tree[name]
            yield _invalid(where, "it is a table, not a value")


def _put(tree: dict[str, Any], setting: Setting, text: str, source: str) -> Iterator[TidelogError]:
    given: object = text
    if get_origin(_strip(setting.type)[0]) is tuple:
        given = [each.strip() for each in text.split(",") if each.strip()]
    try:
        value = msgspec.convert(given, setting.type, strict=False)
    except msgspec.ValidationError as error:
        yield _invalid(source, f"`{text}`: {_lower(error)}", setting.description)
        return
    *branches, leaf = setting.path.split(".")
    _branch(tree, branches)[leaf] = value


def _branch(tree: dict[str, Any], branches: Sequence[str]) -> dict[str, Any]:
    for branch in branches:
        tree = tree.setdefault(branch, {})
    return tree


def _take_out_unfit(
    tree: dict[str, Any], known: Mapping[str, Setting], file_name: str
) -> Iterator[TidelogError]:
    """Values of another type, or out of bounds; their defaults stand in for them meanwhile."""
    for setting in known.values():
        *branches, leaf = setting.path.split(".")
        node: Any = tree
        for branch in branches:
            node = node.get(branch, {})
        if leaf not in node:
            continue
        try:
            msgspec.convert(node[leaf], setting.type)
        except msgspec.ValidationError as error:
            del node[leaf]
            yield _invalid(file_name or "the configuration", _at(error, setting.path))


def _at(error: msgspec.ValidationError, path: str) -> str:
    """In msgspec's words for the whole tree."""
    text = _lower(error)
    return text.replace("`$", f"`$.{path}") if "`$" in text else f"{text} - at `$.{path}`"


def _contradictions(configuration: NodeConfiguration) -> Iterator[TidelogError]:
    """What is wrong although each value is right by itself."""
    listeners = configuration.listeners
    yield from _check_addresses(configuration)
    yield from check_listeners(listeners, allow_plaintext=configuration.allow_plaintext)
    yield from check_metrics(configuration.metrics, allow_plaintext=configuration.allow_plaintext)
    yield from _check_directories(configuration)
    yield from _check_quorum(configuration)
    if configuration.default_partitions > configuration.topics.partitions_max:
        yield _invalid("default_partitions", "it is above topics.partitions_max")


def _check_addresses(configuration: NodeConfiguration) -> Iterator[TidelogError]:
    listeners, metrics = configuration.listeners, configuration.metrics
    binds = {
        "listeners.client.bind": listeners.client.bind,
        "listeners.cluster.bind": listeners.cluster.bind,
        **({"metrics.bind": metrics.bind} if metrics.bind else {}),
    }
    reached = {
        f"listeners.{name}.advertised": each.advertised
        for name, each in (("client", listeners.client), ("cluster", listeners.cluster))
        if each.advertised
    }
    wrong = {path for path, address in binds.items() if not _is_address(address)}
    for path, address in {**binds, **reached}.items():
        if not _is_address(address):
            yield _invalid(path, f"`{address}` is not `host:port`")
    right = [(path, bind) for path, bind in binds.items() if path not in wrong]
    for place, (path, bind) in enumerate(right):
        for other, taken in right[:place]:
            if is_same_place(bind, taken):
                yield _invalid(
                    path,
                    f"`{bind}` is where {other} listens already",
                    "Give each a port of its own.",
                )


def _is_address(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    return bool(host and colon and port.isdigit() and int(port) <= PORT_MAX)


def _check_directories(configuration: NodeConfiguration) -> Iterator[TidelogError]:
    named = [PurePath(configuration.data_dir)]
    for directory in configuration.log_dirs:
        path = PurePath(directory)
        if not directory:
            yield _invalid("log_dirs", "one of them is empty")
        elif path == named[0]:
            yield _invalid(
                "log_dirs", f"`{directory}` is data_dir", "Leave it out: it holds partitions, too."
            )
        elif path in named:
            yield _invalid("log_dirs", f"`{directory}` is named twice", "Name each once.")
        named.append(path)


def _check_quorum(configuration: NodeConfiguration) -> Iterator[TidelogError]:
    quorum = configuration.quorum
    for address in quorum.bootstrap_servers:
        if not _is_address(address):
            yield _invalid("quorum.bootstrap_servers", f"`{address}` is not `host:port`")
    for number, address in configuration.peer_addresses.items():
        if not _is_address(address):
            yield _invalid(f"peer_addresses of node {number}", f"`{address}` is not `host:port`")
        if not number.isdigit():
            yield _invalid("peer_addresses", f"`{number}` is no node number")
    if not configuration.is_controller and not quorum.bootstrap_servers:
        yield _invalid(
            "quorum.bootstrap_servers",
            "it is empty, and a broker that is no controller finds the quorum only there",
            "Name the cluster listeners of some controllers.",
        )
    if 2 * quorum.heartbeat_ms > quorum.election_timeout_ms:
        yield _invalid(
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


def _lower(error: msgspec.ValidationError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _invalid(where: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_CONFIGURATION, tried=f"read {where}", happened=happened, hint=hint
    )
