"""What time it is in the cluster: the nodes' wall clocks side by side, on the active controller.

A pure core: time comes in with each call, monotonic, in milliseconds. It owns the cluster's clock
and what the controller thinks of each node's; it must never decide what a node does with that
(`broker.clock_trust` does). It is not replicated: a new controller has heard every clock again
after one heartbeat of each.

    Theory of operation. A heartbeat carries the wall clock of its node. What is kept of it is how
    far that clock is ahead of this controller's monotonic time, which the wall clocks of all nodes
    have in common: so samples that came at different moments can be compared. The cluster's clock
    is the median of the fresh samples, with an even number the middle of the two middle ones, so
    that two nodes that disagree are both off instead of one of them right by its rank.

    It counts only while a majority of *all registered brokers* stands within the tolerance of it:
    not of those that live. A minority with wrong clocks, which is all that is left of a cluster
    while the others are down, can never have its way. The price: while a majority is down, or has
    been lost for good and was not removed, nothing is deleted by time.

    A controller that is no broker adds its own clock, so that one broker with controllers of its
    own has something to be compared with. Where there is one clock only, nobody can compare it:
    the node keeps to the time that it stored last. A majority that is wrong cannot be seen.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tidelog.metadata.broker_reports import ClockState, ClockVerdict

SAMPLE_MS: Final = 30_000
"""A clock that was not heard of for so long has no say: several heartbeats, and a restart."""


class ClockShown(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator is shown of a node's clock."""

    state: ClockState = ClockState.UNKNOWN
    skew_ms: int = 0
    wall_ms: int = 0
    """What its clock shows now; 0: not known."""


class _Sample(msgspec.Struct, frozen=True):
    """A clock as it was heard."""

    ahead_ms: int
    """The node's wall clock less this controller's monotonic one."""
    heard_ms: int
    off_own_ms: int | None
    """How far it is off the time that it stored last, if that keeps it from deleting."""


class ClusterClock:
    """The clocks that this controller has heard. `judge` changes nothing."""

    def __init__(self) -> None:
        self._samples: dict[int, _Sample] = {}

    def see(
        self, node_id: int, wall_ms: int, now_ms: int, *, off_own_ms: int | None = None
    ) -> None:
        """A node's clock shows this now."""
        self._samples[node_id] = _Sample(wall_ms - now_ms, now_ms, off_own_ms)

    def forget(self, node_id: int) -> None:
        """Another process speaks for the node from now on: its clock may be another as well."""
        self._samples.pop(node_id, None)

    def judge(
        self, node_id: int, electorate: Collection[int], now_ms: int, *, skew_max_ms: int
    ) -> ClockVerdict:
        """What the node is told of its clock. `electorate`: the nodes of whom a majority counts."""
        sample = self._fresh(node_id, now_ms)
        if sample is None:
            return ClockVerdict(skew_max_ms=skew_max_ms)
        if set(electorate) <= {node_id}:
            return ClockVerdict(state=ClockState.ALONE, skew_max_ms=skew_max_ms)
        ahead_ms = self._cluster_ahead_ms(electorate, now_ms, skew_max_ms)
        return _verdict(sample, ahead_ms, skew_max_ms)

    def show(
        self, node_id: int, electorate: Collection[int], now_ms: int, *, skew_max_ms: int
    ) -> ClockShown:
        """The same for an operator, with what the node itself has said."""
        verdict = self.judge(node_id, electorate, now_ms, skew_max_ms=skew_max_ms)
        sample = self._fresh(node_id, now_ms)
        if sample is None:
            return ClockShown()
        state, skew_ms = verdict.state, verdict.skew_ms
        if state is ClockState.ALONE and sample.off_own_ms is not None:
            state, skew_ms = ClockState.HELD, sample.off_own_ms
        return ClockShown(state=state, skew_ms=skew_ms, wall_ms=sample.ahead_ms + now_ms)

    def in_state(
        self,
        state: ClockState,
        electorate: Collection[int],
        now_ms: int,
        *,
        skew_max_ms: int,
    ) -> frozenset[int]:
        """Those of several nodes whose clocks are so: right, off, or without a majority."""
        ahead_ms = self._cluster_ahead_ms(electorate, now_ms, skew_max_ms)
        fresh = ((each, self._fresh(each, now_ms)) for each in electorate)
        return frozenset(
            node_id
            for node_id, sample in fresh
            if sample is not None and _verdict(sample, ahead_ms, skew_max_ms).state is state
        )

    def _fresh(self, node_id: int, now_ms: int) -> _Sample | None:
        sample = self._samples.get(node_id)
        return None if sample is None or now_ms - sample.heard_ms > SAMPLE_MS else sample

    def _cluster_ahead_ms(
        self, electorate: Collection[int], now_ms: int, skew_max_ms: int
    ) -> int | None:
        """Where the cluster's clock stands; None: no majority of all agrees on it."""
        found = (self._fresh(node_id, now_ms) for node_id in electorate)
        fresh = sorted(sample.ahead_ms for sample in found if sample is not None)
        majority = len(set(electorate)) // 2 + 1
        if len(fresh) < majority:
            return None
        middle_ms = _median(fresh)
        agreeing = sum(abs(each - middle_ms) <= skew_max_ms for each in fresh)
        return middle_ms if agreeing >= majority else None


def _verdict(sample: _Sample, ahead_ms: int | None, skew_max_ms: int) -> ClockVerdict:
    if ahead_ms is None:
        return ClockVerdict(state=ClockState.NO_MAJORITY, skew_max_ms=skew_max_ms)
    skew_ms = sample.ahead_ms - ahead_ms
    is_right = abs(skew_ms) <= skew_max_ms
    return ClockVerdict(
        state=ClockState.RIGHT if is_right else ClockState.OFF,
        skew_ms=skew_ms,
        skew_max_ms=skew_max_ms,
    )


def electorate(broker_ids: Iterable[int], controller_id: int) -> frozenset[int]:
    """The nodes whose clocks are asked: every registered broker, and the active controller."""
    return frozenset((*broker_ids, controller_id))


def _median(ordered: list[int]) -> int:
    """Of an even number the middle of the two middle ones."""
    upper = len(ordered) // 2
    lower = upper if len(ordered) % 2 else upper - 1
    return (ordered[lower] + ordered[upper]) // 2
