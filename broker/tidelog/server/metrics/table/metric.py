"""One row of the table of metrics.

Owns what a row says: kind, help, labels, and where its values come from. A name that no node ever
gives, or a value without a name, cannot be written down.
"""

import enum
from collections.abc import Callable, Iterator, Mapping

import msgspec

from tidelog.server.metrics.seen import Labels, Read, Seen, Value


class Kind(enum.Enum):
    """What a number means over time."""

    COUNTER = "counter"
    """Since the start of the process; it never falls."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"
    """Always 1: the labels tell."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One name. A counter is written with `_total` behind it, an info with `_info`."""

    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    read: Read
    """Where its values come from, with those of the labels."""


Rows = Mapping[str, Metric]


def counter(meaning: str, read: Read, *labels: str) -> Metric:
    """A number that never falls."""
    return Metric(kind=Kind.COUNTER, meaning=meaning, labels=labels, read=read)


def gauge(meaning: str, read: Read, *labels: str) -> Metric:
    """A number as it is now."""
    return Metric(kind=Kind.GAUGE, meaning=meaning, labels=labels, read=read)


def histogram(meaning: str, read: Read, *labels: str) -> Metric:
    """Durations by size."""
    return Metric(kind=Kind.HISTOGRAM, meaning=meaning, labels=labels, read=read)


def info(meaning: str, read: Read, *labels: str) -> Metric:
    """Words, in labels."""
    return Metric(kind=Kind.INFO, meaning=meaning, labels=labels, read=read)


def of_labels(words: Callable[[Seen], Labels]) -> Read:
    """The value of an info is always 1; the words are read."""

    def samples(seen: Seen) -> Iterator[tuple[Labels, Value]]:
        yield words(seen), 1

    return Read(samples)
