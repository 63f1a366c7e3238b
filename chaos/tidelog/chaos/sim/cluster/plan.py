"""What a seed decides before anything happens: nodes, racks, topics, times, kinds of faults."""

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.seeds import SeededRandom, Seeds

KINDS: Final = tuple(
    kind
    for kind in FaultKind
    if not kind.value.startswith("datagram")
    and kind not in (FaultKind.CLOCK_RATE, FaultKind.GONE_FILE, FaultKind.HELD_MESSAGE)
)
_GONE_PROBABILITY: Final = 0.3
"""Drawn apart from the others, so that a seed without it is what it was."""
_CHANGE_PROBABILITY: Final = 0.2
_APPEND_TIME_PROBABILITY: Final = 0.3
RETENTION_MS: Final = 3_600_000
DISK_KINDS: Final = frozenset(
    {
        FaultKind.READ_ERROR,
        FaultKind.WRITE_ERROR,
        FaultKind.FLUSH_ERROR,
        FaultKind.NO_SPACE,
        FaultKind.READ_ONLY,
        FaultKind.SLOW_DISK,
    }
)
"""Of the disks of one machine only: with more a majority may be gone, and nothing can be asked."""


class Change(enum.Enum):
    """What an operator changes where a seed plans it. The value is the name in summaries."""

    GROW_TO_TWELVE = "grow_to_twelve"
    DELETE_WHILE_AWAY = "delete_while_away"
    ADD_BROKER = "add_broker"
    REMOVE_BROKER = "remove_broker"


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One machine."""

    node_id: int
    rack: str
    is_controller: bool


class PlannedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What the first topics are created with, and what comes after them."""

    name: str
    partition_count: int
    replication_factor: int
    in_sync_min: int
    is_flush_sync: bool
    segment_bytes: int
    retention_bytes: int
    """-1: only an operator trims it."""
    is_append_time: bool = False

    def settings(self) -> dict[str, str]:
        """A run is shorter than the retention: by a right clock no record is ever too old. No
        record is from the future either, whatever a broker's clock shows."""
        stamped = "LogAppendTime" if self.is_append_time else "CreateTime"
        return {
            "message.timestamp.type": stamped,
            "segment.bytes": str(self.segment_bytes),
            "flush": "sync" if self.is_flush_sync else "replicated",
            "min.insync.replicas": str(self.in_sync_min),
            "message.timestamp.after.max.ms": str(2**63 - 1),
            "retention.ms": str(RETENTION_MS),
            "retention.bytes": str(self.retention_bytes),
        }


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    nodes: tuple[PlannedNode, ...]
    topics: tuple[PlannedTopic, ...]
    kinds: tuple[FaultKind, ...]
    changes: tuple[Change, ...]
    """What the operator has to carry out."""
    faulty_disk: int
    """The node whose disks fail."""
    wrong_clock: int
    """The node whose wall clock is wrong now and then: with more of them a majority might agree on
    a wrong time, and nobody could see that."""
    check_interval_ms: int
    """Between two looks at what is too old."""
    producers: int
    readers: int
    election_timeout_ms: int
    session_timeout_ms: int
    flush_interval_ms: int
    lag_ms: int
    """How long a follower may be behind before its leader takes it out of the in-sync set."""


def draw_plan(seeds: Seeds, *, replication_max: int) -> Plan:
    """From the seed alone."""
    random = seeds.purpose("plan")
    count = (3, 3, 3, 4, 5)[random.below(5)]
    voters = 5 if count == 5 and random.chance(0.3) else 3
    racks = 1 + random.below(3)
    nodes = tuple(
        PlannedNode(node_id=number, rack=f"rack-{number % racks}", is_controller=number <= voters)
        for number in range(1, count + 1)
    )
    clocks = seeds.purpose("clocks")
    topics = tuple(
        draw_topic(random, f"topic-{number}", replication_max=replication_max)
        for number in range(1 + random.below(3))
    )
    topics = tuple(
        msgspec.structs.replace(each, is_append_time=clocks.chance(_APPEND_TIME_PROBABILITY))
        for each in topics
    )
    has_guest = not nodes[-1].is_controller
    kinds = [kind for kind in KINDS if has_guest or kind is not FaultKind.WIPE]
    return Plan(
        nodes=nodes,
        topics=topics,
        kinds=_draw_kinds(seeds, kinds),
        changes=_draw_changes(
            seeds.purpose("changes"), has_guest=has_guest, has_several=len(topics) > 1
        ),
        faulty_disk=1 + random.below(count),
        wrong_clock=1 + clocks.below(count),
        check_interval_ms=(500, 1_500, 3_000)[clocks.below(3)],
        producers=2 + random.below(2),
        readers=1 + random.below(2),
        election_timeout_ms=(600, 1_000)[random.below(2)],
        session_timeout_ms=(1_500, 2_000, 4_000)[random.below(3)],
        flush_interval_ms=(80, 200, 1_000)[random.below(3)],
        lag_ms=(500, 1_500, 4_000)[random.below(3)],
    )


def _draw_kinds(seeds: Seeds, kinds: Sequence[FaultKind]) -> tuple[FaultKind, ...]:
    drawn = tuple(draw_kinds(seeds.purpose("kinds"), kinds))
    if drawn and seeds.purpose("gone files").chance(_GONE_PROBABILITY):
        return (*drawn, FaultKind.GONE_FILE)
    return drawn


def _draw_changes(
    random: SeededRandom, *, has_guest: bool, has_several: bool
) -> tuple[Change, ...]:
    """A broker that comes or goes does not vote; one topic is never deleted."""
    feasible = {
        Change.GROW_TO_TWELVE: True,
        Change.DELETE_WHILE_AWAY: has_several,
        Change.ADD_BROKER: has_guest,
        Change.REMOVE_BROKER: has_guest,
    }
    drawn = [each for each in Change if random.chance(_CHANGE_PROBABILITY)]
    return tuple(each for each in drawn if feasible[each])


def draw_topic(random: SeededRandom, name: str, *, replication_max: int) -> PlannedTopic:
    """One topic; most have as many copies as there may be."""
    factor = min(replication_max, (1, 2, 3, 3, 3)[random.below(5)])
    return PlannedTopic(
        name=name,
        partition_count=(1, 2, 3, 4)[random.below(4)],
        replication_factor=factor,
        in_sync_min=min(factor, (1, 2, 2)[random.below(3)]),
        is_flush_sync=random.chance(0.6),
        segment_bytes=(2_048, 8_192, 32_768)[random.below(3)],
        retention_bytes=(-1, -1, 4_096)[random.below(3)],
    )
