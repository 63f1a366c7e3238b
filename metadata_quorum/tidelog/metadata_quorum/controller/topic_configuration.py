"""A topic's settings as the broker uses them: text → numbers.

Owns `TopicSettings` and `parse`, the only place that turns the text into numbers. Which settings
there are and which values they take is `setting_catalogue`'s.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata_quorum.controller import setting_catalogue as catalogue
from tidelog.metadata_quorum.controller.setting_catalogue import find_setting
from tidelog.metadata_quorum.controller.settings import Scope, canonical, well_formed

SEGMENT_BYTES: Final = catalogue.SEGMENT_BYTES
MAX_MESSAGE_BYTES: Final = catalogue.MAX_MESSAGE_BYTES
TIMESTAMP_TYPE: Final = catalogue.TIMESTAMP_TYPE


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's settings as numbers."""

    segment_bytes: int = 1 << 30
    batch_bytes_max: int = 1_048_588
    is_append_time: bool = False
    is_flush_sync: bool = True
    """An acknowledgement waits for the flush, not only for the copies."""
    in_sync_replicas_min: int = 1


def parse(
    configuration: Mapping[str, str],
    *,
    topic: str,
    inherited: Mapping[str, str] | None = None,
) -> TopicSettings:
    """The settings, or INVALID_CONFIGURATION naming the first one that is wrong.

    It takes values that this release does not act upon: what is stored may be a later one's.
    `inherited` is what the broker or the cluster sets for all topics, checked when it was set.
    """
    own = {}
    for name, text in configuration.items():
        tried = _tried(name, topic)
        own[name] = well_formed(find_setting(name, Scope.TOPIC, tried=tried), text, tried=tried)
    given = {**(inherited or {}), **own}
    values = {
        setting.name: given.get(setting.name, setting.default)
        for setting in catalogue.settings_of(Scope.TOPIC)
    }
    return TopicSettings(
        segment_bytes=int(values[SEGMENT_BYTES]),
        batch_bytes_max=int(values[MAX_MESSAGE_BYTES]),
        is_append_time=values[TIMESTAMP_TYPE] == "LogAppendTime",
        is_flush_sync=values[catalogue.FLUSH] == "sync",
        in_sync_replicas_min=int(values[catalogue.MIN_IN_SYNC_REPLICAS]),
    )


def canonical_configuration(configuration: Mapping[str, str], *, topic: str) -> dict[str, str]:
    """What may be set: each value in its one form, in ascending order of name."""
    found = {}
    for name in sorted(configuration):
        tried = _tried(name, topic)
        setting = find_setting(name, Scope.TOPIC, tried=tried)
        found[name] = canonical(setting, configuration[name], tried=tried)
    return found


def _tried(name: str, topic: str) -> str:
    return f"set `{name[: catalogue.NAME_LENGTH_MAX]}` of topic {topic}"
