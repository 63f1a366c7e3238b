"""Bugs of time that the cluster suite must find: what is deleted by a clock that is wrong."""

from weakref import WeakKeyDictionary

import msgspec

from tidelog.broker.shared.clock_trust import ClockTrust
from tidelog.chaos.sim.planted import Substitution
from tidelog.metadata.broker_reports import ClockState, ClockVerdict, Reading
from tidelog.metadata_quorum.controller.brokers.clock import ClusterClock


def ignore_the_verdict() -> Substitution:
    """A node takes its own clock for right, whatever the controller says of it."""
    original = ClockTrust.hear

    def hear(
        self: ClockTrust, verdict: ClockVerdict, told: Reading, *, confirmed_ms: int = 0
    ) -> None:
        believed = msgspec.structs.replace(verdict, state=ClockState.RIGHT, skew_ms=0)
        original(self, believed, told, confirmed_ms=confirmed_ms)

    return Substitution(ClockTrust, "hear", hear)


def take_the_latest_clock() -> Substitution:
    """The cluster's clock is the one that is furthest ahead, as if time only went on by it."""

    def cluster_ahead_ms(
        self: ClusterClock, electorate: frozenset[int], now_ms: int, skew_max_ms: int
    ) -> int | None:
        del skew_max_ms
        found = (self._fresh(node_id, now_ms) for node_id in electorate)
        return max((each.ahead_ms for each in found if each is not None), default=None)

    return Substitution(ClusterClock, "_cluster_ahead_ms", cluster_ahead_ms)


def hold_the_time_of_the_start() -> Substitution:
    """The wall clock is read once, when the node starts; only the ticks count from then on."""
    starts: WeakKeyDictionary[ClockTrust, Reading] = WeakKeyDictionary()

    def now_ms(self: ClockTrust, now: Reading) -> int:
        start = starts.setdefault(self, now)
        return start.wall_ms + now.uptime_ms - start.uptime_ms

    return Substitution(ClockTrust, "now_ms", now_ms)


def stamp_with_any_clock() -> Substitution:
    """Records are stamped by a clock that is known to be off."""

    def now_ms(self: ClockTrust, now: Reading) -> int:
        del self
        return now.wall_ms

    return Substitution(ClockTrust, "now_ms", now_ms)
