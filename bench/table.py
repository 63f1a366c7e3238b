"""Percentiles and aligned tables: how every figure of this room is printed.

Owns the arithmetic from samples to a printed line. It must never measure anything itself.
"""

import os
from collections.abc import Sequence
from typing import Final

import msgspec

SECONDS_PER_HOUR: Final = 3600
BYTES_PER_MB: Final = 1_000_000


def percentile(samples: Sequence[float], fraction: float) -> float:
    """The nearest-rank percentile: always a value that was measured, never one in between."""
    assert samples, "a percentile of nothing has no meaning"
    assert 0.0 < fraction <= 1.0, f"the fraction {fraction} lies outside (0, 1]"
    ordered = sorted(samples)
    rank = -(-len(ordered) * fraction // 1)  # ceiling
    return ordered[int(rank) - 1]


def median(samples: Sequence[float]) -> float:
    """The middle sample; of an even number the lower one of the two, so that it was measured."""
    return percentile(samples, 0.5)


def ratio(ours: float, theirs: float) -> str:
    """`ours ÷ theirs` as printed; a dash where the peer has no figure."""
    return f"{ours / theirs:.2f}" if theirs > 0 else "-"


def count(value: float) -> str:
    """A whole number with separators, as figures of records are read."""
    return f"{value:,.0f}"


def load_average() -> str:
    """What else the machine was doing: printed beside each table, because figures move with it."""
    one, five, fifteen = os.getloadavg()
    return f"load average {one:.2f} {five:.2f} {fifteen:.2f}, {os.cpu_count()} cores"


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Records that went through in a span, with the figures the published tables print."""

    records: int
    record_bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        return self.records_per_second * self.record_bytes / BYTES_PER_MB

    @property
    def records_per_hour(self) -> float:
        return self.records_per_second * SECONDS_PER_HOUR


class Table:
    """Rows under one title, printed aligned: text to the left, figures to the right."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self.title = title
        self.columns = tuple(columns)
        self.rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        assert len(cells) == len(self.columns), (
            f"{len(cells)} cells for {len(self.columns)} columns"
        )
        self.rows.append(cells)

    def text(self) -> str:
        """The table as lines; the machine's load stands under it."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        numeric = [self._is_numeric(i) for i in range(len(self.columns))]
        body = ["  ".join(_aligned(line, widths, numeric)).rstrip() for line in lines]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join(["", self.title, body[0], rule, *body[1:], f"({load_average()})"])

    def _is_numeric(self, column: int) -> bool:
        return bool(self.rows) and all(_reads_as_figure(row[column]) for row in self.rows)

    def show(self) -> None:
        print(self.text(), flush=True)


def _reads_as_figure(cell: str) -> bool:
    return cell in ("", "-") or cell.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()


def _aligned(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    return [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(line, widths, numeric, strict=True)
    ]
