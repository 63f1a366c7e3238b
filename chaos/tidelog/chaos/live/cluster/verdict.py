"""The verdict of a live run: what producers were told beside what an independent reader finds.

Owns the comparison, by the checks that simulated runs use. It must never trust its own checkers:
in every run a record is taken out of what was read, and one is put in twice, and both must be
found.
"""

import gc
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers import Anomaly, History, Outcome, Poll, Send, check_clients
from tidelog.chaos.live.cluster.journal import Entry, name_of, read_journal
from tidelog.wire.errors import ErrorCode, TidelogError

READ_SECONDS_MAX: Final = 300.0
JUDGE_SECONDS_MAX: Final = 600.0
ANOMALIES_PRINTED_MAX: Final = 12
LOSS_CHECKS: Final = frozenset({"lost_write", "unseen"})
DOUBLE_CHECKS: Final = frozenset({"duplicate"})

Read = dict[int, list[tuple[int, str]]]
"""By partition: offset and value."""


class LiveVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run showed."""

    acknowledged: int
    indeterminate: int
    refused: int
    records_read: int
    partitions: int
    anomalies: tuple[Anomaly, ...]
    is_planted_loss_found: bool
    is_planted_double_found: bool


def read_back(command: Sequence[str], file: Path) -> Read:
    """What a reader in a fresh process finds; `file` keeps what it printed."""
    run_reader(command, file)
    return records_in(file)


def run_reader(command: Sequence[str], file: Path) -> None:
    """What a reader in a fresh process finds is in the file."""
    with file.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=READ_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _unread(f"it read for {READ_SECONDS_MAX:.0f} s") from None
    if done.returncode != 0:
        raise _unread(done.stderr.decode("utf-8", "replace").strip())


def records_in(file: Path, partitions: Container[int] | None = None) -> Read:
    """What a reader has found of these partitions; None: of all."""
    found: Read = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if partitions is None or int(line[1 : line.index(",")]) in partitions:
                partition, offset, value = json.loads(line)
                found.setdefault(partition, []).append((offset, name_of(value.encode())))
    return found


def _unread(happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE, tried="read everything back", happened=happened[-4_000:]
    )


def judge_files(
    journals: Mapping[str, Path], file: Path, *, topic: str, partition_count: int
) -> LiveVerdict:
    """As many processes as there are cores, each with partitions of its own."""
    shares = min(partition_count, os.cpu_count() or 1)
    with ProcessPoolExecutor(shares, mp_context=get_context("spawn")) as pool:
        asked = [
            pool.submit(_judge_share, journals, file, topic, range(first, partition_count, shares))
            for first in range(shares)
        ]
        return together([each.result(JUDGE_SECONDS_MAX) for each in asked])


def _judge_share(
    journals: Mapping[str, Path], file: Path, topic: str, partitions: range
) -> LiveVerdict:
    # Millions of objects that hold no cycle: looking for some costs more than the checks.
    gc.disable()
    return judge(journals, records_in(file, partitions), topic=topic, partitions=partitions)


def together(shares: Sequence[LiveVerdict]) -> LiveVerdict:
    """The verdict of all; each share has shown that its checkers see."""
    return LiveVerdict(
        acknowledged=sum(each.acknowledged for each in shares),
        indeterminate=sum(each.indeterminate for each in shares),
        refused=sum(each.refused for each in shares),
        records_read=sum(each.records_read for each in shares),
        partitions=sum(each.partitions for each in shares),
        anomalies=tuple(anomaly for each in shares for anomaly in each.anomalies),
        is_planted_loss_found=all(each.is_planted_loss_found for each in shares),
        is_planted_double_found=all(each.is_planted_double_found for each in shares),
    )


def judge(
    journals: Mapping[str, Path], read: Read, *, topic: str, partitions: Sequence[int]
) -> LiveVerdict:
    """Partition by partition."""
    by_partition = _entries(journals, partitions)
    anomalies: list[Anomaly] = []
    counts = dict.fromkeys(Outcome, 0)
    found_loss = found_double = False
    for partition, entries in by_partition.items():
        for _, entry in entries:
            counts[entry.outcome] += 1
        records = read.get(partition, [])
        history = history_of(f"{topic}-{partition}", entries, records)
        anomalies += check_clients(history)
        if not found_loss and len(records) > 1:
            found_loss = is_loss_found(history)
            found_double = is_double_found(history)
    return LiveVerdict(
        acknowledged=counts[Outcome.ACKNOWLEDGED],
        indeterminate=counts[Outcome.INDETERMINATE],
        refused=counts[Outcome.FAILED],
        records_read=sum(map(len, read.values())),
        partitions=len(partitions),
        anomalies=tuple(anomalies),
        is_planted_loss_found=found_loss,
        is_planted_double_found=found_double,
    )


def _entries(
    journals: Mapping[str, Path], partitions: Sequence[int]
) -> dict[int, list[tuple[str, Entry]]]:
    found: dict[int, list[tuple[str, Entry]]] = {number: [] for number in partitions}
    for name, file in journals.items():
        for entry in read_journal(file):
            if (entries := found.get(entry.partition)) is not None:
                entries.append((name, entry))
    for entries in found.values():
        entries.sort(key=lambda each: each[1].ended_ns)
    return found


def history_of(
    key: str, entries: Sequence[tuple[str, Entry]], records: Sequence[tuple[int, str]]
) -> History:
    """Of one partition: each record is a send of its own, the final drain one poll."""
    history = History()
    history.sends = [
        Send(
            client=name,
            partition=key,
            values=(f"{name}:{entry.number}",),
            began_ns=entry.began_ns,
            ended_ns=entry.ended_ns,
            outcome=entry.outcome,
            base_offset=entry.offset,
            stream=f"{name}/{key}",
            stream_position=entry.number,
        )
        for name, entry in entries
    ]
    now_ns = time.monotonic_ns()
    history.polls = [
        Poll(
            reader="drain",
            partition=key,
            began_ns=now_ns,
            ended_ns=now_ns,
            position=0,
            records=tuple(records),
            high_watermark=records[-1][0] + 1 if records else 0,
            is_final=True,
        )
    ]
    return history


def is_loss_found(history: History) -> bool:
    """Whether an acknowledged record that is taken out of the reading is missed."""
    (poll,) = history.polls
    promised = {
        value
        for send in history.sends
        if send.outcome is Outcome.ACKNOWLEDGED
        for value in send.values
    }
    kept = list(poll.records)
    for place, (_, value) in enumerate(kept):
        if value in promised:
            del kept[place]
            return _is_found(history, tuple(kept), LOSS_CHECKS)
    return False


def is_double_found(history: History) -> bool:
    """Whether a record that is there a second time, behind all others, is noticed."""
    (poll,) = history.polls
    offset = poll.records[-1][0] + 1
    return _is_found(history, (*poll.records, (offset, poll.records[0][1])), DOUBLE_CHECKS)


def _is_found(
    history: History, records: tuple[tuple[int, str], ...], checks: frozenset[str]
) -> bool:
    (poll,) = history.polls
    doctored = History()
    doctored.sends = history.sends
    high_watermark = records[-1][0] + 1
    doctored.polls = [msgspec.structs.replace(poll, records=records, high_watermark=high_watermark)]
    return any(each.check in checks for each in check_clients(doctored))


def report(verdict: LiveVerdict) -> int:
    """Print it; 0: sound, 1: an anomaly, 3: the checkers are blind."""
    print(
        f"acknowledged {verdict.acknowledged}, indeterminate {verdict.indeterminate}, refused "
        f"{verdict.refused}; read back {verdict.records_read} from {verdict.partitions} "
        "partitions by an independent reader after a restart of all brokers"
    )
    for anomaly in verdict.anomalies[:ANOMALIES_PRINTED_MAX]:
        print(f"ANOMALY {anomaly}")
    if verdict.anomalies:
        kinds = Counter(each.check for each in verdict.anomalies).most_common()
        told = ", ".join(f"{count} {check}" for check, count in kinds)
        print(f"{len(verdict.anomalies)} anomalies, at most five of a kind in a partition: {told}")
        return 1
    if not verdict.is_planted_loss_found or not verdict.is_planted_double_found:
        print("INVALID: a record that was taken out, or put in twice, went unnoticed")
        return 3
    print("every acknowledged record is there, once, in order")
    return 0
