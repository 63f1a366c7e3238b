"""What a seed decides before anything happens: topics, members, times, kinds of faults."""

from typing import Final

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind, draw_kinds
from tidelog.chaos.sim.base.seeds import SeededRandom, Seeds
from tidelog.wire.calls.groups import Assignor, Subscription

KINDS: Final = (
    FaultKind.PROCESS_CRASH,
    FaultKind.MACHINE_CRASH,
    FaultKind.PAUSE,
    FaultKind.NETWORK_DELAY,
    FaultKind.BREAK,
    FaultKind.PARTITION,
    FaultKind.LATE_PROCESSING,
    FaultKind.LOST_WRITE,
)
"""Those of disks and datagrams mean nothing to a coordinator's core; LOST_WRITE: of a leader's log
the end that was not replicated."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    groups: int
    topics: tuple[tuple[str, int], ...]
    """Names and partition counts at the beginning."""
    members_max: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    latency_ms: tuple[int, int]
    commit_every_ms: int
    give_up_ms: int
    """A member takes up to so long to give up what it should."""
    kinds: tuple[FaultKind, ...]


def draw_plan(seeds: Seeds) -> Plan:
    """From the seed alone."""
    random = seeds.purpose("plan")

    def one_of(*choices: int) -> int:
        return choices[random.below(len(choices))]

    return Plan(
        groups=one_of(1, 1, 2),
        topics=(("a", one_of(1, 3, 4, 8)), ("b", one_of(1, 2, 4)), ("cc", one_of(1, 3))),
        members_max=one_of(3, 4, 5, 6),
        session_timeout_ms=one_of(900, 1_200, 2_000),
        rebalance_timeout_ms=one_of(400, 1_000, 3_000),
        heartbeat_interval_ms=one_of(80, 150, 300),
        latency_ms=(1, one_of(3, 10, 30)),
        commit_every_ms=one_of(60, 120, 250),
        give_up_ms=one_of(10, 100, 300),
        kinds=tuple(draw_kinds(seeds.purpose("kinds"), KINDS)),
    )


def draw_subscription(random: SeededRandom) -> Subscription:
    """Of one member."""
    choices = (
        Subscription(topics=("a",)),
        Subscription(topics=("a", "b")),
        Subscription(topics=("a", "b", "cc")),
        Subscription(topics=("b",), assignor=Assignor.RANGE),
        Subscription(topic_pattern="a|c+", assignor=Assignor.RANGE),
        Subscription(topic_pattern=".*"),
    )
    return choices[random.below(len(choices))]
