"""What a seed decides before anything happens: members, limits, kinds of faults, clients."""

from typing import Final

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.metadata_quorum.raft.types import Options

DATAGRAM_KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.PARTITION,
    FaultKind.PARTITION_ONE_WAY,
    FaultKind.DATAGRAM_LOSS,
    FaultKind.DATAGRAM_DUPLICATE,
    FaultKind.DATAGRAM_REORDER,
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.BIT_FLIP,
    FaultKind.WRITE_ERROR,
    FaultKind.FLUSH_ERROR,
    FaultKind.NO_SPACE,
    FaultKind.SLOW_DISK,
    FaultKind.CLOCK_RATE,
    FaultKind.WIPE,
)
"""Those of streams, handlers and wall clocks mean nothing to a core alone."""

_VOTERS: Final = (3, 3, 3, 3, 4, 5, 5, 5, 6, 7)
_RATES: Final = (0.9, 0.95, 1.0, 1.0, 1.05, 1.1)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    voters: int
    observers: int
    clients: int
    keys: int
    options: Options
    snapshot_after_entries: int
    tick_ms: int
    kinds: tuple[FaultKind, ...]
    loss: float
    """Probabilities of datagram faults, 0 to 0.3 and 0 to 0.5."""
    duplication: float
    reordering: float


def draw_plan(seeds: Seeds, kinds: tuple[FaultKind, ...] = DATAGRAM_KINDS) -> Plan:
    """From the seed alone."""
    random = seeds.purpose("plan")

    def one_of(*choices: int) -> int:
        return choices[random.below(len(choices))]

    options = Options(
        election_timeout_ms=one_of(600, 1_000, 1_000),
        heartbeat_ms=one_of(100, 150, 150),
        append_entries_max=one_of(1, 3, 16, 1_024),
        append_bytes_max=one_of(64, 512, 1 << 20),
        in_flight_appends_max=one_of(1, 2, 4, 16),
        entries_kept=one_of(0, 0, 2, 20, 2_000),
        catch_up_entries_max=one_of(2, 20, 1_000),
        uncommitted_bytes_max=one_of(200, 1 << 20, 1 << 20),
        jitter_seed=0,
    )
    return Plan(
        voters=_VOTERS[random.below(len(_VOTERS))],
        observers=one_of(1, 1, 2),
        clients=one_of(3, 4, 5),
        keys=one_of(2, 3, 4),
        options=options,
        snapshot_after_entries=one_of(4, 10, 25, 25, 80),
        tick_ms=one_of(25, 40, 60),
        kinds=tuple(draw_kinds(seeds.purpose("kinds"), kinds)),
        loss=random.unit() * 0.3,
        duplication=random.unit() * 0.5,
        reordering=random.unit() * 0.3,
    )
