"""What a run showed: nothing acknowledged is lost, the registers' history is linearizable.

Owns the judgement. The reading back is done by a process that shares nothing with the writers; the
checker of the history has to find a stale read that is put into the very same history, or its
verdict counts for nothing.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.linearizability import (
    Operation,
    Verdict,
    check_history,
    check_key,
)
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.chaos.live.quorum.load import OwnWrite, QuorumLoad
from tidelog.wire.errors import ErrorCode, TidelogError

READ_SECONDS_MAX: Final = 120.0
HISTORY_FILE: Final = "history.jsonl"
_SHOWN_MAX: Final = 5


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run, whatever was done to the nodes."""

    acknowledged: int
    indeterminate: int
    refused: int
    nodes_read: int
    operations: int
    reads: int
    configurations: int
    is_stale_read_found: bool
    anomalies: tuple[str, ...]


class _NodeAnswer(msgspec.Struct, frozen=True):
    address: str
    quotas: dict[str, int]


def judge(cluster: QuorumCluster, load: QuorumLoad, directory: Path) -> RunVerdict:
    """Kill all nodes, start them again, read everything from each, check the history."""
    cluster.restart_all()
    answers = read_all([node.place.client_address for node in cluster.running()])
    anomalies = [
        anomaly
        for address, quotas in answers.items()
        for anomaly in compare(load.own_writes, quotas, node=address)
    ]
    write_history(directory / HISTORY_FILE, load.operations)
    judgements = check_history(with_known_outcomes(load.operations))
    for judgement in judgements:
        if judgement.verdict is not Verdict.LINEARIZABLE:
            anomalies.append(f"{judgement.verdict.value}: {judgement}")
    doctored = with_stale_read(load.operations)
    outcomes = [each.outcome for each in load.own_writes]
    return RunVerdict(
        acknowledged=outcomes.count(Outcome.ACKNOWLEDGED),
        indeterminate=outcomes.count(Outcome.INDETERMINATE),
        refused=outcomes.count(Outcome.FAILED),
        nodes_read=len(answers),
        operations=len(load.operations),
        reads=sum(each.name == "read" for each in load.operations),
        configurations=sum(each.configurations for each in judgements),
        is_stale_read_found=doctored is not None
        and check_key(doctored[0].key, with_known_outcomes(doctored)).verdict is Verdict.VIOLATED,
        anomalies=tuple(anomalies),
    )


def read_all(addresses: Sequence[str]) -> dict[str, dict[str, int]]:
    """By a fresh process."""
    command = [sys.executable, "-m", "tidelog.chaos.live.quorum.reader", *addresses]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=READ_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried="read everything back", happened=done.stderr.strip()
        )
    found = [msgspec.json.decode(line, type=_NodeAnswer) for line in done.stdout.splitlines()]
    return {each.address: each.quotas for each in found}


def compare(writes: Sequence[OwnWrite], quotas: Mapping[str, int], *, node: str) -> list[str]:
    """What one node lacks of what was acknowledged, or shows of what was refused or never sent."""
    by_name = {each.name: each for each in writes}
    lost = [
        each.name
        for each in writes
        if each.outcome is Outcome.ACKNOWLEDGED and quotas.get(each.name) != each.number
    ]
    undead = [
        each.name for each in writes if each.outcome is Outcome.FAILED and each.name in quotas
    ]
    strange = [name for name in quotas if name not in by_name]
    found: list[str] = []
    for what, names in (
        ("acknowledged and not there", lost),
        ("refused and there", undead),
        ("there and never written", strange),
    ):
        if names:
            found.append(f"{node}: {len(names)} {what}: {', '.join(names[:_SHOWN_MAX])}")
    return found


def with_known_outcomes(operations: Sequence[Operation]) -> list[Operation]:
    """The same history without unknown outcomes: linearizable if and only if the given one is.

    Every value is written once. An unknown write that nobody read can be left out: nobody read
    between it and the next write either. One that was read took effect before the first of those
    reads ended. Otherwise each unknown write doubles the orders that a search has to try.
    """
    first_seen: dict[tuple[str, object], int] = {}
    for each in operations:
        if each.name == "read" and each.outcome is Outcome.ACKNOWLEDGED:
            place = (each.key, each.result)
            first_seen[place] = min(each.ended_ns, first_seen.get(place, each.ended_ns))
    known: list[Operation] = []
    for each in operations:
        if each.outcome is not Outcome.INDETERMINATE or each.name != "write":
            known.append(each)
        elif (seen_ns := first_seen.get((each.key, each.argument))) is not None:
            known.append(
                msgspec.structs.replace(each, outcome=Outcome.ACKNOWLEDGED, ended_ns=seen_ns)
            )
    return known


def with_stale_read(operations: Sequence[Operation]) -> list[Operation] | None:
    """The history of one register, with one read that gives a value overwritten before it began.

    The last read that can be doctored so; None: there is none in the history.
    """
    for place in range(len(operations) - 1, -1, -1):
        read = operations[place]
        if read.name != "read" or read.result is None:
            continue
        stale = _overwritten_before(read, operations)
        if stale is None:
            continue
        doctored = msgspec.structs.replace(read, result=stale.argument)
        return [
            doctored if number == place else each
            for number, each in enumerate(operations)
            if each.key == read.key and each.outcome is not Outcome.FAILED
        ]
    return None


def _overwritten_before(read: Operation, operations: Sequence[Operation]) -> Operation | None:
    """The youngest write of which all can know that another one followed before the read."""
    writes = [
        each
        for each in operations
        if each.key == read.key
        and each.name == "write"
        and each.outcome is Outcome.ACKNOWLEDGED
        and each.ended_ns < read.began_ns
    ]
    if not writes:
        return None
    latest_ns = max(each.began_ns for each in writes)
    older = [each for each in writes if each.ended_ns < latest_ns]
    return max(older, key=lambda each: each.ended_ns, default=None)


def write_history(file: Path, operations: Sequence[Operation]) -> None:
    """One operation a line, in the order of their ends."""
    encoder = msgspec.json.Encoder()
    with file.open("wb") as lines:
        for each in operations:
            lines.write(encoder.encode(each) + b"\n")


def read_history(file: Path) -> list[Operation]:
    """What `write_history` wrote."""
    decoder = msgspec.json.Decoder(Operation)
    return [decoder.decode(line) for line in file.read_bytes().splitlines()]


def report(verdict: RunVerdict) -> int:
    """Print it; the exit code: 0, 1 for an anomaly, 3 for a checker that missed the stale read."""
    print(
        f"acknowledged {verdict.acknowledged}, indeterminate {verdict.indeterminate}, refused "
        f"{verdict.refused}; read back from {verdict.nodes_read} nodes after a restart of all"
    )
    print(
        f"registers: {verdict.operations} operations, {verdict.reads} reads, "
        f"{verdict.configurations} configurations searched"
    )
    for anomaly in verdict.anomalies:
        print(f"ANOMALY {anomaly}")
    if verdict.anomalies:
        return 1
    if not verdict.is_stale_read_found:
        print("INVALID: a stale read put into the history was not found, or none could be put in")
        return 3
    print("nothing acknowledged is lost; the history is linearizable, and a stale read put into it")
    print("is found")
    return 0
