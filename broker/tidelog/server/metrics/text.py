"""A scrape as text: the format of Prometheus, or OpenMetrics if the scraper asks for it.

`prometheus_client` knows both formats; it is imported with the first listener for metrics, so that
nobody else pays for it. A long family is written in slices, between which the loop turns.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.broker.shared.meter import NS_PER_S
from tidelog.broker.shared.visible import visible
from tidelog.server.metrics.catalogue import METRICS
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.metrics.table.metric import Kind

if TYPE_CHECKING:
    from prometheus_client import Metric as Family
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample

SAMPLES_A_SLICE: Final = 500
PLAIN_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text"
_END: Final = b"# EOF\n"
_TYPES: Final = {
    Kind.COUNTER: "counter",
    Kind.GAUGE: "gauge",
    Kind.HISTOGRAM: "histogram",
    Kind.INFO: "info",
}


class _One:
    """A registry of a single family."""

    def __init__(self, family: "Family") -> None:
        self._family = family

    def collect(self) -> "Iterable[Family]":
        """What an encoder asks a registry for."""
        return (self._family,)


def prepare() -> None:
    """Import what the first scrape would import otherwise, while the loop has better to do."""
    from prometheus_client import Metric, exposition, gc_collector, platform_collector
    from prometheus_client.openmetrics import exposition as open_metrics

    del Metric, exposition, gc_collector, platform_collector, open_metrics


async def encode(scrape: Scrape, accept: str, *, of_process: bool = True) -> tuple[bytes, str]:
    """The text and its type."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.openmetrics import exposition as open_metrics

    is_open = any(each.split(";")[0].strip() == OPEN_METRICS for each in accept.split(","))
    write: Callable[[Collector], bytes] = (
        open_metrics.generate_latest if is_open else generate_latest
    )
    written: list[bytes] = []
    async for family, is_first in _slices(_families(scrape)):
        written.append(_body(write(_One(family)), with_head=is_first))
    if of_process:
        for family in process_families():
            written.append(_body(write(_One(family)), with_head=True))
    if not is_open:
        return b"".join(written), PLAIN_TYPE
    return b"".join([*written, _END]), open_metrics.CONTENT_TYPE_LATEST


def process_families() -> "Iterator[Family]":
    """Of the Python process: CPU, memory, descriptors, garbage collection, versions."""
    from prometheus_client.gc_collector import GCCollector
    from prometheus_client.platform_collector import PlatformCollector
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    for kind in (ProcessCollector, PlatformCollector, GCCollector):
        yield from kind(registry=registry).collect()


def _body(text: bytes, *, with_head: bool) -> bytes:
    """One slice of a family; only the first says what it is."""
    text = text.removesuffix(_END)
    if with_head:
        return text
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))


def _families(scrape: Scrape) -> "Iterator[tuple[str, list[Sample]]]":
    for name, metric in METRICS.items():
        if metric.kind is Kind.HISTOGRAM:
            samples = list(_histogram_samples(name, scrape))
        else:
            samples = _samples(name, scrape)
        if samples:
            yield name, samples


def _samples(name: str, scrape: Scrape) -> "list[Sample]":
    from prometheus_client.samples import Sample

    metric = METRICS[name]
    suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(metric.kind, "")
    return [
        Sample(name + suffix, dict(zip(metric.labels, map(visible, labels), strict=True)), value)
        for labels, value in scrape.values.get(name, {}).items()
    ]


def _histogram_samples(name: str, scrape: Scrape) -> "Iterator[Sample]":
    from prometheus_client.samples import Sample

    metric = METRICS[name]
    for values, histogram in scrape.histograms.get(name, {}).items():
        labels = dict(zip(metric.labels, values, strict=True))
        total = 0
        for bound, total in histogram.cumulated():
            yield Sample(f"{name}_bucket", {**labels, "le": bound}, total)
        yield Sample(f"{name}_count", labels, total)
        yield Sample(f"{name}_sum", labels, histogram.sum_ns / NS_PER_S)


async def _slices(
    families: "Iterable[tuple[str, list[Sample]]]",
) -> "AsyncIterator[tuple[Family, bool]]":
    """The loop turns after each slice; a histogram stays whole, its writer checks its buckets."""
    from prometheus_client import Metric as Family

    for name, samples in families:
        metric = METRICS[name]
        is_whole = metric.kind is Kind.HISTOGRAM
        step = len(samples) if is_whole else SAMPLES_A_SLICE
        for start in range(0, len(samples), step):
            family = Family(name, metric.meaning, _TYPES[metric.kind])
            family.samples = samples[start : start + step]
            yield family, start == 0
            await asyncio.sleep(0)
