"""What all the live cases of the quorum have in common: rounds, figures, and how a run ends.

Owns the clock of a round. Only writes that began after a fault count as success after it: one that
was on its way before says nothing of how long the cluster was out of order.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import OwnWrite, QuorumLoad
from tidelog.chaos.live.quorum.verdict import judge, report

RECOVER_SECONDS_MAX: Final = 60.0
WARM_UP_WRITES: Final = 20
NS_PER_MS: Final = 1_000_000


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """After one fault."""

    first_ms: float
    """Until some client's write, begun after the fault, was acknowledged."""
    all_ms: float
    """Until that was true of every writer."""


def percentile(samples: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile: a value that was measured."""
    assert samples, "a percentile of nothing has no meaning"
    ordered = sorted(samples)
    return ordered[max(0, int(-(-len(ordered) * fraction // 1)) - 1)]


def figures(samples: Sequence[float]) -> str:
    """As every case prints them."""
    return f"p50 {percentile(samples, 0.5):.0f} ms, max {max(samples):.0f} ms"


def wait_recovered(cluster: QuorumCluster, load: QuorumLoad, since_ns: int) -> Recovery:
    """Until every writer has written again."""
    found: dict[int, int] = {}

    def has_recovered() -> str | None:
        found.clear()
        found.update(first_successes(load.own_writes, since_ns))
        missing = load.writer_count - len(found)
        return None if missing == 0 else f"{missing} writers have not written again"

    cluster.wait(has_recovered, RECOVER_SECONDS_MAX, tried="write again after the fault")
    took = [(ended_ns - since_ns) / NS_PER_MS for ended_ns in found.values()]
    return Recovery(first_ms=min(took), all_ms=max(took))


def first_successes(writes: Sequence[OwnWrite], since_ns: int) -> dict[int, int]:
    """By writer: when its first acknowledged write that began after `since_ns` ended."""
    found: dict[int, int] = {}
    for each in reversed(writes):
        if each.ended_ns < since_ns:
            break
        if each.began_ns >= since_ns and each.outcome is Outcome.ACKNOWLEDGED:
            found[each.writer] = each.ended_ns
    return found


def wait_writes(cluster: QuorumCluster, load: QuorumLoad, count: int) -> None:
    """Until so many more are acknowledged, so that each fault meets a cluster at work."""
    wanted = load.acknowledged + count

    def is_enough() -> str | None:
        return None if load.acknowledged >= wanted else f"{load.acknowledged} of {wanted}"

    cluster.wait(is_enough, RECOVER_SECONDS_MAX, tried="acknowledge writes before the fault")


def longest_gap_ms(writes: Sequence[OwnWrite], from_ns: int, to_ns: int) -> float:
    """The longest time in which nothing was acknowledged."""
    ends = sorted(
        each.ended_ns
        for each in writes
        if each.outcome is Outcome.ACKNOWLEDGED and from_ns <= each.ended_ns <= to_ns
    )
    times = [from_ns, *ends, to_ns]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return max(gaps) / NS_PER_MS


def run_under_load(
    cluster: QuorumCluster, directory: Path, seed: int, faults: Callable[[QuorumLoad], None]
) -> int:
    """Begin, load, faults, verdict; the exit code."""
    cluster.begin()
    load = QuorumLoad(cluster, seed=seed)
    load.begin()
    began = time.monotonic()
    try:
        wait_writes(cluster, load, WARM_UP_WRITES)
        faults(load)
        wait_writes(cluster, load, WARM_UP_WRITES)
    finally:
        load.end()
    seconds = time.monotonic() - began
    print(f"{load.acknowledged / seconds:.0f} acknowledged writes/s over {seconds:.0f} s")
    return report(judge(cluster, load, directory))
