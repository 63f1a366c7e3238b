"""What a seed draws before anything happens: directories, partitions, settings, limits.

Pure. Sizes and times are small, so that rolls, retention, seals and compactions are common.
"""

from typing import Final

import msgspec

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.directory import DirectoryLimits
from tidelog.chaos.checkers.log.model import Policy
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

_SEGMENT_BYTES: Final = (1_024, 2_048, 4_096, 8_192)
_SEGMENT_MS: Final = (150, 600, 3_600_000, 3_600_000)
_RETENTION_MS: Final = (-1, -1, 500, 2_000)
_RETENTION_BYTES: Final = (-1, -1, 4_096, 16_384)
_DELETE_RETENTION_MS: Final = (0, 150, 86_400_000)
_DIRTY_RATIOS: Final = (0.01, 0.01, 0.3)
_CHECK_MS: Final = (15, 40, 120)
_SCRUB_MS: Final = (0, 500, 4_000)
_FLUSH_MS: Final = (20, 80, 1_000)
_BYTES_PER_SECOND: Final = (0, 0, 200_000, 2_000_000)


class PlannedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, where it lies and how it begins."""

    key: PartitionKey
    directory: str
    settings: TopicSettings

    @property
    def policy(self) -> Policy:
        """What of its settings stays as it is."""
        return Policy(
            is_compacted=self.settings.is_compacted,
            is_deleted=self.settings.is_deleted,
            is_append_time=self.settings.is_append_time,
            is_flush_sync=self.settings.is_flush_sync,
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    directories: tuple[str, ...]
    partitions: tuple[PlannedPartition, ...]
    limits: DirectoryLimits
    is_scarce: bool
    """The directories are small, so that they fill up by themselves."""


def draw_plan(random: SeededRandom) -> Plan:
    """For one seed."""
    directories = ("data", "data2") if random.chance(0.25) else ("data",)
    count = min(random.between(len(directories), 6), random.between(len(directories), 6))
    partitions = []
    for number in range(count):
        settings = draw_settings(random, None)
        key = PartitionKey(TopicId(bytes([number + 1] * 16)), PartitionId(number))
        partitions.append(
            PlannedPartition(
                key=key, directory=directories[number % len(directories)], settings=settings
            )
        )
    is_scarce = random.chance(0.1)
    return Plan(
        directories=directories,
        partitions=tuple(partitions),
        limits=DirectoryLimits(
            flush_interval_ms=_one_of(random, _FLUSH_MS),
            housekeeping=_draw_limits(random, is_scarce=is_scarce),
        ),
        is_scarce=is_scarce,
    )


def draw_settings(random: SeededRandom, before: TopicSettings | None) -> TopicSettings:
    """New ones, or a change of those that there are: what a record may rely on stays."""
    if before is None:
        is_compacted = random.chance(0.45)
        before = TopicSettings(
            is_compacted=is_compacted,
            is_deleted=not is_compacted or random.chance(0.3),
            is_append_time=random.chance(0.15),
            is_flush_sync=random.chance(0.7),
        )
    return msgspec.structs.replace(
        before,
        segment_bytes=_one_of(random, _SEGMENT_BYTES),
        segment_ms=_one_of(random, _SEGMENT_MS),
        retention_ms=_one_of(random, _RETENTION_MS),
        retention_bytes=_one_of(random, _RETENTION_BYTES),
        delete_retention_ms=_one_of(random, _DELETE_RETENTION_MS),
        min_cleanable_dirty_ratio=_DIRTY_RATIOS[random.below(len(_DIRTY_RATIOS))],
    )


def _draw_limits(random: SeededRandom, *, is_scarce: bool) -> HousekeepingLimits:
    return HousekeepingLimits(
        check_interval_ms=_one_of(random, _CHECK_MS),
        bytes_per_second=_one_of(random, _BYTES_PER_SECOND),
        scrub_interval_ms=_one_of(random, _SCRUB_MS),
        free_bytes_min=8_192 if is_scarce else 0,
        free_bytes_margin=4_096 if is_scarce else 0,
        free_check_interval_ms=50 if is_scarce else 2_000,
        retry_backoff_ms=20,
        retry_backoff_max_ms=200,
    )


def _one_of(random: SeededRandom, choices: tuple[int, ...]) -> int:
    return choices[random.below(len(choices))]
