"""What a seed decides of the suite: the plan of transactions, kinds of faults, times, brokers."""

from typing import Final

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.workloads.transactions import TransactionPlan, draw_transaction_plan

KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.PAUSE,
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.PARTITION,
    FaultKind.LATE_PROCESSING,
    FaultKind.CANCEL_HANDLER,
    FaultKind.HELD_MESSAGE,
)
"""Of cores: their logs lie on no disk."""
TIMEOUTS_MS: Final = (600, 2_000, 6_000)
"""A run is short: transactions time out while it lasts."""


class SuitePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    work: TransactionPlan
    kinds: tuple[FaultKind, ...]
    coordinators: int
    """Partitions of `__transactions`."""
    call_ms: int
    """How long a client waits for one answer."""
    user_ms: int
    """How long it waits for one call of its own, with all tries."""
    zombies: float
    """How likely a producer that should be dead goes on."""
    prepared: float
    """How likely a commit is prepared, and decided by another process."""
    moves_ns: tuple[int, int]
    """Between two moves of a leader."""
    replication_ns: tuple[int, int]


def draw_plan(seeds: Seeds, *, processes: int, transactions: int, brokers: int) -> SuitePlan:
    """From the seed alone."""
    random = seeds.purpose("suite plan")
    work = draw_transaction_plan(
        seeds, processes=processes, transactions=transactions, brokers=brokers
    )
    work = msgspec.structs.replace(
        work,
        processes=tuple(
            msgspec.structs.replace(each, timeout_ms=TIMEOUTS_MS[random.below(3)])
            for each in work.processes
        ),
    )
    return SuitePlan(
        work=work,
        kinds=tuple(draw_kinds(seeds.purpose("kinds"), KINDS)),
        coordinators=1 + random.below(2),
        call_ms=(250, 600, 1_500)[random.below(3)],
        user_ms=(800, 3_000, 10_000)[random.below(3)],
        zombies=(0.0, 0.5, 0.9)[random.below(3)],
        prepared=(0.0, 0.1, 0.3)[random.below(3)],
        moves_ns=((40_000_000, 400_000_000), (300_000_000, 2_000_000_000))[random.below(2)],
        replication_ns=(300_000, (3_000_000, 30_000_000)[random.below(2)]),
    )
