"""Counts of what a node was asked and how it answered: for metrics and the slow-request log. Pure.

Owns the numbers; whoever serves calls adds to them (`middleware.metering`), whoever is asked for
metrics reads them. Adding costs a few hundred nanoseconds and allocates nothing, so that it is
always done. Labels are bounded: methods come from the contract, codes from the catalogue of errors.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

NS_PER_S: Final = 1_000_000_000
OK: Final = "OK"
CANCELLED: Final = "CANCELLED"
"""The caller went away before the answer, or its deadline was over."""

DURATION_BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds of the buckets; a last one holds the rest."""
_BOUNDS_NS: Final = tuple(int(each * NS_PER_S) for each in DURATION_BOUNDS_S)


class Histogram:
    """Durations by size; a bound is inside of its bucket."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """One more."""
        assert duration_ns >= 0, f"nothing takes {duration_ns} ns"
        self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def cumulated(self) -> list[tuple[str, int]]:
        """Upper bound in seconds and how many were at most that, the whole last."""
        total, found = 0, []
        for bound, count in zip((*DURATION_BOUNDS_S, None), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound is None else repr(bound), total))
        return found


class MethodFigures:
    """Of one method on one listener."""

    __slots__ = ("codes", "durations", "in_flight", "request_bytes", "response_bytes", "slow")

    def __init__(self) -> None:
        self.in_flight = 0
        """Calls, or streams, that have begun and not ended."""
        self.codes: dict[str, int] = {}
        """Requests that were answered, by what became of them."""
        self.durations = Histogram()
        self.request_bytes = 0
        self.response_bytes = 0
        self.slow = 0

    def end(self, code: str, duration_ns: int) -> None:
        """A request is answered."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.durations.add(duration_ns)


class ListenerFigures:
    """Of one listener."""

    def __init__(self) -> None:
        self.methods: dict[str, MethodFigures] = {}
        """By full name; those that were called."""
        self._callers: dict[str, int] = {}

    def of(self, method: str) -> MethodFigures:
        """The method's."""
        found = self.methods.get(method)
        if found is None:
            found = self.methods[method] = MethodFigures()
        return found

    @property
    def connections(self) -> int:
        """From so many addresses a call or stream is in progress."""
        return len(self._callers)

    def enter(self, address: str) -> None:
        """A call from the address has begun."""
        self._callers[address] = self._callers.get(address, 0) + 1

    def leave(self, address: str) -> None:
        """It has ended."""
        left = self._callers[address] - 1
        assert left >= 0, f"a call from {address} ended twice"
        if left:
            self._callers[address] = left
        else:
            del self._callers[address]


class Meter:
    """Of one node; see the attributes."""

    def __init__(self, listeners: Sequence[str]) -> None:
        self.listeners = {name: ListenerFigures() for name in listeners}
        self.produced_batches = 0
        """That were taken: checked and queued."""
        self.produced_records = 0
        self.produced_bytes = 0
        self.produce_refusals: dict[str, int] = {}
        """Batches that were not stored, or of which that is not known, by the code told."""
        self.verifications = 0
        """Questions to coordinators, each about one transaction and the partitions that it is about
        to touch here."""
        self.verification_refusals: dict[str, int] = {}
        """Of them, those that were not answered with yes, by the code told."""
        self.markers_written = 0
        """Markers that were committed here, or were there already, as coordinators were told."""
        self.marker_refusals: dict[str, int] = {}
        """Markers that were refused, by the code told."""
        self.fetched_bytes = 0
        """Of batches, as they are stored."""
        self.fetch_refusals: dict[str, int] = {}
        """Positions that were answered with an error, by its code."""
        self.group_heartbeats = 0
        """That came to a coordinator here."""
        self.group_rebalances = 0
        """Assignments computed by coordinators here."""
        self.group_departures: dict[str, int] = {}
        """Members that are none any more, by the reason."""
        self.committed_offsets = 0
        """Of one partition each."""
        self.sent_offsets = 0
        """To transactions; of one partition each."""
        self.commit_refusals: dict[str, int] = {}
        """Of one partition each, by the code told."""

        self.transactions_committed = 0
        """Whose commit was decided by coordinators here."""
        self.transactions_aborted = 0
        """Whose abort was decided by coordinators here, whatever for."""
        self.transaction_timeouts = 0
        """Those of them that took too long."""
        self.transaction_fences = 0
        """Requests to coordinators here under an identity that is over."""

    def __iter__(self) -> Iterator[tuple[str, str, MethodFigures]]:
        """Listener, method, figures."""
        for listener, figures in self.listeners.items():
            for method, each in figures.methods.items():
                yield listener, method, each


def count(by_code: dict[str, int], code: str) -> None:
    """One more of the code."""
    by_code[code] = by_code.get(code, 0) + 1
