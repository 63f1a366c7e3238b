"""Settings that change while the cluster runs: what is set where, what follows from it.

Pure. Changes to one target are made together or not at all, and the result is checked as a whole.
The effective value is the topic's or group's, else the broker's, else the cluster's, else the
default.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, assert_never

import msgspec

from tidelog.metadata.image.image import Image, TopicImage
from tidelog.metadata.internal_topics import refuse_internal
from tidelog.metadata.records.entries import (
    BrokerConfigurationRecord,
    ClusterConfigurationRecord,
    GroupConfigurationRecord,
    MetadataRecord,
    TopicConfigurationChangeRecord,
)
from tidelog.metadata.refusals.common import refuse_duplicates, refuse_too_many, unknown_broker
from tidelog.metadata.refusals.unknown_topics import unknown_topic
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.kinds import Kind, Scope, Setting, Source, canonical, members
from tidelog.metadata.settings.of_groups import check_group_settings
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.settings.effects import with_effects
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import invalid

TARGETS_MAX: Final = 1_000
CHANGES_MAX: Final = 1_000
"""Of one target."""


class Operation(Enum):
    """What a change does to the value that is set there."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    """To a list; a member that is there already is not added again."""
    SUBTRACT = "subtract"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one setting."""

    name: str
    operation: Operation = Operation.SET
    value: str = ""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has settings: a topic or group by name, a broker by id in decimal, or the
    cluster."""

    scope: Scope
    name: str = ""


class Alteration(msgspec.Struct, frozen=True, kw_only=True):
    """What to change at one target."""

    target: Target
    changes: tuple[Change, ...]


class EffectiveValue(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for a target, and why."""

    setting: Setting
    value: str
    source: Source


def alter_configurations(
    image: Image, alterations: Sequence[Alteration]
) -> Decision[tuple[TidelogError | None, ...]]:
    """Each target on its own; None: all of its changes are made."""
    tried = "change settings"
    refuse_too_many(len(alterations), TARGETS_MAX, tried=tried, what="targets")
    keys = [_text(each.target) for each in alterations]
    refuse_duplicates(keys, tried=tried, what="target")
    records: list[MetadataRecord] = []
    errors: list[TidelogError | None] = []
    for alteration in alterations:
        try:
            records += _alter(image, alteration)
        except TidelogError as error:
            errors.append(error)
            continue
        errors.append(None)
    return Decision(records=tuple(records), answer=tuple(errors))


def describe(
    image: Image,
    target: Target,
    *,
    names: Sequence[str] = (),
) -> tuple[EffectiveValue, ...]:
    """Returns the target's settings in ascending order of name."""
    tried = f"describe {_text(target)}"
    for name in names:
        catalogue.find_setting(name, target.scope, tried=tried)
    layers = _layers(image, target, tried)
    return tuple(
        _effective(setting, layers, image)
        for setting in catalogue.settings_of(target.scope)
        if not names or setting.name in names
    )


def _alter(image: Image, alteration: Alteration) -> tuple[MetadataRecord, ...]:
    target = alteration.target
    tried = f"change settings of {_text(target)}"
    refuse_too_many(len(alteration.changes), CHANGES_MAX, tried=tried, what="settings")
    if target.scope is Scope.TOPIC:
        refuse_internal(_topic(image, target, tried), tried=tried)
    names = [change.name for change in alteration.changes]
    refuse_duplicates(names, tried=tried, what="setting")
    present = _layers(image, target, tried)[0][1]
    changes: dict[str, str | None] = {}
    for change in sorted(alteration.changes, key=lambda each: each.name):
        what = f"set `{change.name[: catalogue.NAME_LENGTH_MAX]}` of {_text(target)}"
        setting = catalogue.find_setting(change.name, target.scope, tried=what)
        value = _changed(setting, present.get(change.name), change, what)
        if value is None and target.scope is Scope.TOPIC:
            value = _resolved_default(setting, _topic(image, target, tried))
        if value != present.get(change.name):
            changes[change.name] = value
    _check_whole(image, target, {**present, **changes}, tried)
    return _records(image, target, changes) if changes else ()


def _changed(setting: Setting, present: str | None, change: Change, tried: str) -> str | None:
    """The value after the change; None: nothing is set."""
    match change.operation:
        case Operation.DELETE:
            return None
        case Operation.SET:
            return canonical(setting, change.value, tried=tried)
        case Operation.APPEND | Operation.SUBTRACT:
            if setting.kind is not Kind.LIST:
                raise _invalid(tried, "it is no list", "Set it as a whole.")
            before = members(present if present is not None else setting.default)
            given = members(change.value)
            if change.operation is Operation.APPEND:
                after = (*before, *(each for each in given if each not in before))
            else:
                after = tuple(each for each in before if each not in given)
            return canonical(setting, ",".join(after), tried=tried)
        case _:
            assert_never(change.operation)


def _resolved_default(setting: Setting, topic: TopicImage) -> str | None:
    """What is decided when a topic is created does not change with its replicas later."""
    factor = topic.replication_factor
    if setting.name == catalogue.MIN_IN_SYNC_REPLICAS and factor > 1:
        return default_in_sync_min(factor)
    return None


def default_in_sync_min(replication_factor: int) -> str:
    """The smallest majority."""
    return str(replication_factor // 2 + 1)


def _check_whole(image: Image, target: Target, after: Mapping[str, str | None], tried: str) -> None:
    if target.scope in (Scope.GROUP, Scope.CLUSTER):
        check_group_settings({**dict(image.cluster_configuration), **after}, tried=tried)
    if target.scope is not Scope.TOPIC:
        return
    topic = image.topic_named(target.name)
    assert topic is not None, "the target was found"
    minimum = after.get(catalogue.MIN_IN_SYNC_REPLICAS)
    if minimum is not None:
        check_in_sync_min(int(minimum), topic.replication_factor, tried=tried)


def check_in_sync_min(minimum: int, replication_factor: int, *, tried: str) -> None:
    """INVALID_CONFIGURATION if nothing could ever be acknowledged to acks=all."""
    if minimum > replication_factor:
        raise _invalid(
            tried,
            f"{catalogue.MIN_IN_SYNC_REPLICAS} is {minimum}, and there are {replication_factor} "
            "replicas: nothing could be acknowledged to acks=all",
            f"Set it to {replication_factor} or less.",
        )


def _layers(
    image: Image, target: Target, tried: str
) -> tuple[tuple[Source, Mapping[str, str]], ...]:
    """What is set for the target, what counts most first; the first is the target's own."""
    cluster = (Source.CLUSTER, image.cluster_configuration)
    match target.scope:
        case Scope.TOPIC:
            return ((Source.TARGET, _topic(image, target, tried).configuration), cluster)
        case Scope.GROUP:
            validate_group_name(target.name, tried=tried)
            own = image.group_configurations.get(target.name) or {}
            return ((Source.TARGET, own), cluster)
        case Scope.BROKER:
            broker_id = _broker_id(image, target, tried)
            own = image.broker_configurations.get(broker_id, {})
            return ((Source.BROKER, own), cluster)
        case Scope.CLUSTER:
            if target.name:
                raise invalid(tried, f"the cluster has no name `{target.name[:100]}`")
            return (cluster,)
        case _:
            assert_never(target.scope)


def _effective(
    setting: Setting,
    layers: Sequence[tuple[Source, Mapping[str, str]]],
    image: Image,
) -> EffectiveValue:
    for source, values in layers:
        if setting.name in values:
            return EffectiveValue(setting=setting, value=values[setting.name], source=source)
    value = setting.default
    if setting.name == catalogue.DEFAULT_REPLICATION_FACTOR:
        value = str(image.cluster.default_replication_factor or value)
    return EffectiveValue(setting=setting, value=value, source=Source.DEFAULT)


def _records(
    image: Image, target: Target, changes: dict[str, str | None]
) -> tuple[MetadataRecord, ...]:
    match target.scope:
        case Scope.TOPIC:
            topic_id = image.topic_ids[target.name]
            return with_effects(
                image, TopicConfigurationChangeRecord(topic_id=topic_id, changes=changes)
            )
        case Scope.BROKER:
            broker_id = BrokerId(int(target.name))
            return (BrokerConfigurationRecord(broker_id=broker_id, changes=changes),)
        case Scope.CLUSTER:
            return (ClusterConfigurationRecord(changes=changes),)
        case Scope.GROUP:
            return (GroupConfigurationRecord(group=target.name, changes=changes),)
        case _:
            assert_never(target.scope)


def _topic(image: Image, target: Target, tried: str) -> TopicImage:
    topic = image.topic_named(target.name)
    if topic is None:
        raise unknown_topic(target.name, image, tried=tried)
    return topic


def _broker_id(image: Image, target: Target, tried: str) -> BrokerId:
    text = target.name
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and str(int(text)) == text):
        raise invalid(tried, f"`{text[:100]}` is no broker id", "Give the id in decimal.")
    broker_id = BrokerId(int(text))
    if broker_id not in image.brokers:
        raise unknown_broker(broker_id, image, tried=tried)
    return broker_id


def _text(target: Target) -> str:
    if target.scope is Scope.CLUSTER and not target.name:
        return "the cluster"
    return f"{target.scope.value} {target.name[: catalogue.NAME_LENGTH_MAX]}"


def _invalid(tried: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(ErrorCode.INVALID_CONFIGURATION, tried=tried, happened=happened, hint=hint)
