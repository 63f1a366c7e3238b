"""A topic's settings as the broker uses them: text → numbers.

Owns `TopicSettings` and `parse`, the only place that turns the text into numbers. Which settings
there are and which values they take is `settings.catalogue`'s.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.catalogue import find_setting
from tidelog.metadata.settings.kinds import (
    NUMBER_MAX,
    Scope,
    canonical,
    is_true,
    members,
    well_formed,
)

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
    retention_ms: int = 7 * catalogue.DAY_MS
    """-1: whatever its age."""
    retention_bytes: int = -1
    """-1: whatever its size."""
    segment_ms: int = 7 * catalogue.DAY_MS
    is_compacted: bool = False
    is_deleted: bool = True
    """Old segments go by time and size; a topic may be compacted as well."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NUMBER_MAX
    delete_retention_ms: int = catalogue.DAY_MS
    timestamp_after_max_ms: int = catalogue.HOUR_MS
    """How far a record's own time may be ahead of the broker's."""
    timestamp_before_max_ms: int = NUMBER_MAX
    """How far it may be behind."""
    is_every_record_validated: bool = False


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
        retention_ms=int(values[catalogue.RETENTION_MS]),
        retention_bytes=int(values[catalogue.RETENTION_BYTES]),
        segment_ms=int(values[catalogue.SEGMENT_MS]),
        is_compacted="compact" in members(values[catalogue.CLEANUP_POLICY]),
        is_deleted="delete" in members(values[catalogue.CLEANUP_POLICY]),
        min_cleanable_dirty_ratio=float(values[catalogue.MIN_CLEANABLE_DIRTY_RATIO]),
        min_compaction_lag_ms=int(values[catalogue.MIN_COMPACTION_LAG_MS]),
        max_compaction_lag_ms=int(values[catalogue.MAX_COMPACTION_LAG_MS]),
        delete_retention_ms=int(values[catalogue.DELETE_RETENTION_MS]),
        timestamp_after_max_ms=int(values[catalogue.TIMESTAMP_AFTER_MAX_MS]),
        timestamp_before_max_ms=int(values[catalogue.TIMESTAMP_BEFORE_MAX_MS]),
        is_every_record_validated=is_true(values[catalogue.VALIDATE_RECORDS]),
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
