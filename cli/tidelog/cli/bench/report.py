"""What a measurement came to, as a person and as a program reads it. Pure.

Owns how samples become percentiles: the nearest rank, so that each is a time that was measured.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.cli.show.table import count, table

PERCENTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
_MB: Final = 1_000_000


class Report(NamedTuple):
    """Of all clients together."""

    what: str
    clients: int
    records: int
    seconds: float
    record_bytes: int
    samples: int
    percentiles_ms: dict[str, float]
    """p50, p95, p99, p99.9, max; empty without samples."""
    sampled: str
    """What was timed."""


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """By name, rounded to a microsecond where they are milliseconds."""
    if not samples:
        return {}
    ordered = sorted(samples)
    return {
        name: round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
        for name, share in PERCENTILES
    }


def as_text(report: Report) -> str:
    """Throughput in a line, percentiles in a table."""
    per_second = report.records / report.seconds
    records, clients = count(report.records, "record"), count(report.clients, "client")
    seconds = f"{report.seconds:.2f} s"
    lines = [
        f"{report.what}: {records} of {report.record_bytes} bytes in {seconds} with {clients}",
        f"{per_second:,.0f} records/s, {per_second * report.record_bytes / _MB:.1f} MB/s",
    ]
    if report.percentiles_ms:
        lines.append(f"{report.sampled}, ms ({report.samples} samples):")
        row = [f"{value:.2f}" for value in report.percentiles_ms.values()]
        head = list(report.percentiles_ms)
        lines.append(table(head, [row], right=" ".join(head)))
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, object]:
    """What a program reads; the names stay."""
    per_second = report.records / report.seconds
    return {
        "what": report.what,
        "clients": report.clients,
        "records": report.records,
        "record_bytes": report.record_bytes,
        "seconds": round(report.seconds, 6),
        "records_per_second": round(per_second, 1),
        "bytes_per_second": round(per_second * report.record_bytes, 1),
        "sampled": report.sampled,
        "samples": report.samples,
        "milliseconds": report.percentiles_ms,
    }
