"""Settings, as scripts call KafkaAdminClient.

Owns kafka-python's forms of what is asked and answered. What is done is the client's.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.client import ConfigResource as Resource
from tidelog.client import ConfigResourceType as Kind
from tidelog.client.arguments.kinds import many, shown, text
from tidelog.client.types.admin import ConfigDescription, ConfigEntry
from tidelog.kafka import errors
from tidelog.kafka.admin.base import SPECIAL, AdminBase
from tidelog.kafka.admin.types import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
)
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translating

_KINDS: Final[Mapping[ConfigResourceType, Kind]] = {
    ConfigResourceType.TOPIC: Kind.TOPIC,
    ConfigResourceType.BROKER: Kind.BROKER,
    ConfigResourceType.GROUP: Kind.GROUP,
}
_SOURCES: Final[Mapping[str, ConfigSourceType]] = {
    "broker": ConfigSourceType.DYNAMIC_BROKER_CONFIG,
    "cluster": ConfigSourceType.DYNAMIC_DEFAULT_BROKER_CONFIG,
    "node": ConfigSourceType.STATIC_BROKER_CONFIG,
    "default": ConfigSourceType.DEFAULT_CONFIG,
}
_OF_TARGET: Final[Mapping[ConfigResourceType, ConfigSourceType]] = {
    ConfigResourceType.TOPIC: ConfigSourceType.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSourceType.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.GROUP: ConfigSourceType.DYNAMIC_GROUP_CONFIG,
}
_NAMES: Final = many(text(), "settings' names")
_MODIFIED: Final = frozenset(_OF_TARGET.values())
Answer = dict[str, dict[str, Any]]
"""By kind in small letters, then by name."""


class ConfigCalls(AdminBase):
    """Describe, alter, reset."""

    @checked
    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: Any = "modified",
    ) -> Answer:
        """Settings of each resource: those set at it, or all of them."""
        if include_synonyms:
            raise errors.UnsupportedVersionError(
                "describe settings: only the value in force is told (hint: leave include_synonyms)"
            )
        wanted = ConfigFilterType.build_from(config_filter)
        answer: Answer = {}
        for resource in config_resources:
            with translating(SPECIAL):
                (found,) = self._client.describe_configs([_resource(resource, {})])
            by_name = answer.setdefault(resource.resource_type.name.lower(), {})
            by_name[resource.name] = _shown(resource, found, wanted)
        return answer

    @checked
    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> Answer:
        """Set or unset the settings named; the others stay: changes are always incremental."""
        if incremental is False:
            raise errors.UnsupportedVersionError(
                "alter settings: those that are not named stay as they are (hint: leave "
                "incremental out)"
            )
        return self._alter(
            {each: _changes(each.configs) for each in config_resources},
            validate_only=validate_only,
            raise_on_unknown=raise_on_unknown,
        )

    @checked
    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> Answer:
        """Unset the settings named; without names: all that are set."""
        wanted: dict[ConfigResource, dict[str, str | None]] = {}
        for each in config_resources:
            names = _names(each)
            if not names:
                kind = each.resource_type.name.lower()
                names = list(self.describe_configs([each])[kind][each.name])
            wanted[each] = dict.fromkeys(names)
        return self._alter(wanted, validate_only=validate_only, raise_on_unknown=raise_on_unknown)

    def _alter(
        self,
        wanted: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool,
        raise_on_unknown: bool,
    ) -> Answer:
        if raise_on_unknown:
            for resource, changes in wanted.items():
                self._check_known(resource, changes)
        answer: Answer = {}
        for resource, changes in wanted.items():
            outcome = "OK"
            try:
                with translating(SPECIAL):
                    self._client.alter_configs([_resource(resource, changes)], validate_only)
            except errors.BrokerResponseError as error:
                outcome = str(error)
            by_name = answer.setdefault(resource.resource_type.name.lower(), {})
            by_name[resource.name] = outcome
        return answer

    def _check_known(self, resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
        known = self.describe_configs([resource], config_filter=ConfigFilterType.ALL)
        unknown = set(changes) - set(known[resource.resource_type.name.lower()][resource.name])
        if unknown:
            raise ValueError(f"Unrecognized configs: {unknown}")


def _resource(resource: ConfigResource, configs: Mapping[str, str | None]) -> Resource:
    kind = _KINDS.get(resource.resource_type)
    if kind is None:
        raise errors.UnsupportedVersionError(
            f"settings of resource_type {resource.resource_type.name}: there are none (hint: use "
            "TOPIC, BROKER or GROUP)"
        )
    name: Any = resource.name
    if not isinstance(name, str | int):
        raise TypeError(f"name of a ConfigResource must be a text: {shown(name)}")
    return Resource(kind, str(name), dict(configs))


def _changes(configs: Any) -> dict[str, str | None]:
    if not isinstance(configs, Mapping):
        raise TypeError(
            "alter_configs requires configs as a dict of {key: (op, value)} or {key: value}"
        )
    found: dict[str, str | None] = {}
    for name, wanted in configs.items():
        if not isinstance(name, str):
            raise TypeError(f"configs must be named by texts: {shown(name)}")
        operation, value = wanted if _is_pair(wanted) else (AlterConfigOp.SET, wanted)
        if not isinstance(value, str | int | float | None):
            raise TypeError(f"configs[{name!r}] must be a text, a number or None: {shown(value)}")
        op = AlterConfigOp.build_from(operation, f"configs[{name!r}]")
        if op in (AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT):
            raise errors.UnsupportedVersionError(
                f"alter {name}: {op.name} is not there (hint: SET the whole list)"
            )
        found[name] = None if op is AlterConfigOp.DELETE or value is None else str(value)
    return found


def _is_pair(wanted: Any) -> bool:
    return isinstance(wanted, tuple) and len(wanted) == 2


def _names(resource: ConfigResource) -> list[str] | None:
    """Of the settings that are asked for; None: all."""
    if resource.configs is None:
        return None
    with translating(SPECIAL):
        found: list[str] = _NAMES(resource.configs, "look at settings", "configs")
    return found


def _shown(
    resource: ConfigResource, found: ConfigDescription, wanted: ConfigFilterType
) -> dict[str, dict[str, Any]]:
    names = _names(resource)
    entries: dict[str, dict[str, Any]] = {}
    for entry in found.entries:
        source = _SOURCES.get(entry.source, _OF_TARGET[resource.resource_type])
        is_named = names is None or entry.name in names
        if is_named and _passes(entry, source, wanted):
            entries[entry.name] = {
                "value": None if entry.is_secret else entry.value,
                "read_only": entry.is_read_only,
                "is_sensitive": entry.is_secret,
                "config_source": source.name,
                "documentation": entry.documentation,
            }
    return entries


def _passes(entry: ConfigEntry, source: ConfigSourceType, wanted: ConfigFilterType) -> bool:
    match wanted:
        case ConfigFilterType.MODIFIED:
            return source in _MODIFIED
        case ConfigFilterType.DEFAULT:
            return source not in _MODIFIED
        case ConfigFilterType.STATIC:
            return source is ConfigSourceType.STATIC_BROKER_CONFIG
        case ConfigFilterType.DYNAMIC:
            return not entry.is_read_only
        case _:
            return True
