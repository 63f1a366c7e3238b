"""One scrape while it is filled: values by name and labels. Pure.

Owns that a value has a name of the catalogue and its labels. Text is made of it in `metrics.text`.
"""

from collections.abc import Iterable

from tidelog.broker.shared.meter import Histogram
from tidelog.server.metrics.catalogue import METRICS
from tidelog.server.metrics.seen import Labels, Value
from tidelog.server.metrics.table.metric import Kind


class Scrape:
    """Names in the catalogue's order come out in that order, labels as they were set."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}

    def set(self, name: str, value: float, *labels: str) -> None:
        """The value under these labels."""
        self._place(name, labels)[labels] = value

    def add(self, name: str, value: float, *labels: str) -> None:
        """So much more."""
        found = self._place(name, labels)
        found[labels] = found.get(labels, 0) + value

    def raise_to(self, name: str, value: float, *labels: str) -> None:
        """At least so much."""
        found = self._place(name, labels)
        found[labels] = max(found.get(labels, value), value)

    def histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Durations; the histogram may go on growing."""
        metric = METRICS[name]
        assert metric.kind is Kind.HISTOGRAM, f"{name} is a {metric.kind.value}"
        assert len(labels) == len(metric.labels), f"{name} has the labels {metric.labels}"
        self.histograms.setdefault(name, {})[labels] = histogram

    def fill(self, name: str, samples: Iterable[tuple[Labels, Value]]) -> None:
        """All values of a metric; those under the same labels are added up."""
        for labels, value in samples:
            if isinstance(value, Histogram):
                self.histogram(name, value, *labels)
            else:
                self.add(name, value, *labels)

    def _place(self, name: str, labels: Labels) -> dict[Labels, float]:
        found = self.values.get(name)
        if found is None:
            assert METRICS[name].kind is not Kind.HISTOGRAM, f"{name} is a histogram"
            found = self.values[name] = {}
        assert len(labels) == len(METRICS[name].labels), f"{name} has other labels than {labels}"
        return found
