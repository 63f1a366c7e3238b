"""Intervals, rates and floors of a data directory's housekeeping, as a node's file sets them."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

MIB: Final = 1024 * 1024
DAY_MS: Final = 24 * 60 * 60 * 1000
BYTES_MAX: Final = 1 << 50


class HousekeepingLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention, compaction, checks of what is stored, room on the disk."""

    check_interval_ms: Annotated[
        int,
        Meta(
            description="Between two looks at every log: what is too old or too much, what is to "
            "be sealed or compacted.",
            ge=10,
            le=DAY_MS,
        ),
    ] = 10_000
    bytes_per_second: Annotated[
        int,
        Meta(
            description="What compaction and checks of what is stored read and write together; "
            "0: no limit.",
            ge=0,
            le=BYTES_MAX,
        ),
    ] = 64 * MIB
    scrub_interval_ms: Annotated[
        int,
        Meta(
            description="In this time every closed segment is read once and compared with its "
            "checksums; 0: never.",
            ge=0,
            le=365 * DAY_MS,
        ),
    ] = 7 * DAY_MS
    compaction_map_bytes: Annotated[
        int,
        Meta(
            description="Memory for the keys of one round of compaction; what does not fit is "
            "the next round's.",
            ge=MIB,
            le=1 << 40,
        ),
    ] = 256 * MIB
    free_bytes_min: Annotated[
        int,
        Meta(
            description="With less room than this in a data directory appends are refused "
            "STORAGE_FULL; 0: only when the disk itself says so.",
            ge=0,
            le=BYTES_MAX,
        ),
    ] = 256 * MIB
    free_bytes_margin: Annotated[
        int,
        Meta(
            description="Appends are taken again when there is this much more room.",
            ge=0,
            le=BYTES_MAX,
        ),
    ] = 64 * MIB
    free_check_interval_ms: Annotated[
        int, Meta(description="Between two looks at the room.", ge=10, le=600_000)
    ] = 1_000
    retry_backoff_ms: Annotated[
        int,
        Meta(
            description="Before a background job that failed is tried again; doubled each time.",
            ge=1,
            le=DAY_MS,
        ),
    ] = 1_000
    retry_backoff_max_ms: Annotated[
        int, Meta(description="The longest such pause.", ge=1, le=DAY_MS)
    ] = 300_000
    failures_max: Annotated[
        int,
        Meta(
            description="A segment that background jobs could not read or write so many times in "
            "a row stops its partition.",
            ge=1,
            le=1_000,
        ),
    ] = 5


DEFAULT_HOUSEKEEPING_LIMITS: Final = HousekeepingLimits()
