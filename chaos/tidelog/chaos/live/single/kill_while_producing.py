"""kill -9 of a node while producers write to it, again and again; then everything is read.

Owns the order of events and the verdict. A round counts only if records were acknowledged in it
and some were on their way when the node died: a fault that nobody felt proves nothing.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers import Anomaly, Poll, check_log
from tidelog.chaos.live.processes.node import NodeProcess
from tidelog.chaos.live.shared.case import Orders
from tidelog.chaos.live.single.workload import Ledger, Writer
from tidelog.client import AdminClient, NewTopic
from tidelog.wire.errors import ErrorCode, TidelogError

ROUNDS: Final = 10
"""Where nothing else is said."""
TOPIC: Final = "chaos"
PARTITION_COUNT: Final = 6
WRITER_COUNT: Final = 3
ROUND_SECONDS_MAX: Final = 60.0
READ_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 0.005


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, and how much was going on."""

    acknowledged: int
    under_way: int
    """Records without an outcome when the node was dead."""
    indeterminate: int
    """Those of them whose fate stayed unknown; the others were sent to the next node."""
    down_ms: int
    """From the kill until the node served again."""

    @property
    def counts(self) -> bool:
        """Whether the kill was felt."""
        return self.acknowledged > 0 and self.under_way > 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run showed."""

    rounds: tuple[Round, ...]
    acknowledged: int
    indeterminate: int
    failed: int
    records_read: int
    anomalies: tuple[Anomaly, ...]

    @property
    def is_valid(self) -> bool:
        """Whether every round counts."""
        return bool(self.rounds) and all(each.counts for each in self.rounds)


def run(directory: Path, *, rounds: int, seed: int, acknowledged_min: int) -> Verdict:
    """Kill `rounds` times, each after at least `acknowledged_min` new acknowledgements."""
    assert rounds >= 1, "a run kills at least once"
    draw = random.Random(seed)
    node = NodeProcess(directory)
    ledger = Ledger()
    node.start()
    try:
        with AdminClient(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, 1)])
        writers = [
            Writer(f"w{number}", node.bootstrap, TOPIC, PARTITION_COUNT, ledger)
            for number in range(WRITER_COUNT)
        ]
        for writer in writers:
            writer.start()
        done = tuple(_kill(node, ledger, draw, acknowledged_min) for _ in range(rounds))
        _wait_acknowledged(ledger, ledger.acknowledged + acknowledged_min)
        for writer in writers:
            if not writer.stop(ROUND_SECONDS_MAX):
                raise _stuck("stop the producers", "one of them did not end")
        ledger.history.settle(time.monotonic_ns())
        # Once more, so that what is read was found on disk by a node that knows of nothing.
        node.restart()
        records_read = _drain(node, ledger)
        return Verdict(
            rounds=done,
            acknowledged=ledger.acknowledged,
            indeterminate=ledger.indeterminate,
            failed=ledger.failed,
            records_read=records_read,
            anomalies=tuple(check_log(ledger.history)),
        )
    finally:
        if node.is_running:
            node.kill()


def _kill(node: NodeProcess, ledger: Ledger, draw: random.Random, acknowledged_min: int) -> Round:
    before = ledger.acknowledged
    unknown_before = ledger.indeterminate
    _wait_acknowledged(ledger, before + acknowledged_min + draw.randrange(acknowledged_min))
    acknowledged = ledger.acknowledged - before
    killed = time.monotonic()
    node.kill()
    under_way = ledger.under_way
    node.start()
    down_ms = round((time.monotonic() - killed) * 1000)
    _wait_acknowledged(ledger, ledger.acknowledged + 1)
    return Round(
        acknowledged=acknowledged,
        under_way=under_way,
        indeterminate=ledger.indeterminate - unknown_before,
        down_ms=down_ms,
    )


def _wait_acknowledged(ledger: Ledger, count: int) -> None:
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    while ledger.acknowledged < count:
        if time.monotonic() > deadline:
            raise _stuck(
                f"wait for {count} acknowledgements",
                f"{ledger.acknowledged} came within {ROUND_SECONDS_MAX} s",
            )
        time.sleep(_POLL_SECONDS)


def _drain(node: NodeProcess, ledger: Ledger) -> int:
    """Everything that is there, by a process that shares nothing with the producers."""
    began_ns = time.monotonic_ns()
    command = [sys.executable, "-m", "tidelog.chaos.live.single.reader"]
    command += [node.bootstrap, TOPIC, str(PARTITION_COUNT)]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=READ_SECONDS_MAX, check=False
    )
    if answer.returncode != 0:
        raise _stuck("read everything back", answer.stderr.strip())
    by_partition: dict[int, list[tuple[int, str]]] = {}
    for line in answer.stdout.splitlines():
        partition, offset, value = json.loads(line)
        by_partition.setdefault(partition, []).append((offset, value))
    for partition, records in sorted(by_partition.items()):
        ledger.history.polls.append(
            Poll(
                reader=f"drain-{partition}",
                partition=f"{TOPIC}-{partition}",
                began_ns=began_ns,
                ended_ns=time.monotonic_ns(),
                position=0,
                records=tuple(records),
                high_watermark=records[-1][0] + 1,
                is_final=True,
            )
        )
    return sum(len(records) for records in by_partition.values())


def _stuck(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened=happened)


def report(verdict: Verdict) -> int:
    """Print the run as a table, and the verdict."""
    print("round  acknowledged  under way  indeterminate  down ms")
    for number, each in enumerate(verdict.rounds, 1):
        print(
            f"{number:5}  {each.acknowledged:12}  {each.under_way:9}  {each.indeterminate:13}  "
            f"{each.down_ms:7}"
        )
    print(
        f"acknowledged {verdict.acknowledged}, indeterminate {verdict.indeterminate}, "
        f"refused {verdict.failed}; read back {verdict.records_read} by an independent reader"
    )
    for anomaly in verdict.anomalies:
        print(f"ANOMALY {anomaly}")
    if verdict.anomalies:
        return 1
    if not verdict.is_valid:
        print("INVALID: in some round nothing was acknowledged or nothing was on its way")
        return 3
    print("every acknowledged record is there, once, in order")
    return 0


def run_producing(orders: Orders) -> int:
    """Runs the case; returns the exit code."""
    return report(
        run(
            orders.directory,
            rounds=orders.rounds or ROUNDS,
            seed=orders.seed,
            acknowledged_min=orders.acknowledged_min,
        )
    )
