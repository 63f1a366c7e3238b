"""Kafka's own ProducerPerformance and ConsumerPerformance: run, and their last line read.

Owns the command lines and the parsing of what the tools print. It must never count the JVM's start:
the tools time themselves.
"""

import re
from collections.abc import Sequence
from typing import Final

from bench.peers.kafka.node import java
from bench.settings import STALL_SECONDS_MAX
from bench.table import Throughput

TOOL_SECONDS_MAX: Final = 300.0
PRODUCED: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")
CONSUMED_COLUMNS: Final = ("data.consumed.in.nMsg", "nMsg.sec", "fetch.nMsg.sec")


def parse_produced(lines: Sequence[str], record_bytes: int) -> Throughput:
    """The summary is the last line of its kind: the ones before it are five-second windows."""
    matches = [match for line in lines if (match := PRODUCED.match(line.strip()))]
    if not matches:
        raise ValueError("ProducerPerformance printed no summary: " + " | ".join(lines[-3:]))
    records, rate = int(matches[-1].group(1)), float(matches[-1].group(2))
    return Throughput(records=records, record_bytes=record_bytes, seconds=records / rate)


def parse_consumed(lines: Sequence[str], record_bytes: int, *, is_join_counted: bool) -> Throughput:
    """The line of figures below the header, by the header's names: their order has changed. What
    the tool warns of may stand between the two.
    """
    names: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if set(CONSUMED_COLUMNS) <= set(cells):
            names = cells
        elif names and len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
            records = int(row["data.consumed.in.nMsg"])
            rate = float(row["nMsg.sec" if is_join_counted else "fetch.nMsg.sec"])
            return Throughput(records=records, record_bytes=record_bytes, seconds=records / rate)
    raise ValueError("ConsumerPerformance printed no figures: " + " | ".join(lines[-3:]))


def producer_performance(
    bootstrap: str, topic: str, records: int, record_bytes: int, settings: dict[str, str]
) -> Throughput:
    """Kafka's Java producer, as fast as it can."""
    tool = java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--bootstrap-server", bootstrap, "--command-property"),
        *(f"{key}={value}" for key, value in settings.items()),
    )
    with tool:
        return parse_produced(tool.wait_end(timeout_seconds=TOOL_SECONDS_MAX), record_bytes)


def consumer_performance(
    bootstrap: str, topic: str, records: int, record_bytes: int, *, is_join_counted: bool
) -> Throughput:
    """Kafka's Java consumer: with its group's join in the span, or without it."""
    tool = java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--timeout", str(int(STALL_SECONDS_MAX * 1e3))),
    )
    with tool:
        lines = tool.wait_end(timeout_seconds=TOOL_SECONDS_MAX)
    return parse_consumed(lines, record_bytes, is_join_counted=is_join_counted)
