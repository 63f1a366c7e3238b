"""The verdict of a live run: what producers were told beside what an independent reader finds.

Owns the comparison, by the checks that simulated runs use. It must never trust its own checkers:
in every run a record is taken out of what was read, and one is put in twice, and both must be
found.
"""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.checkers import Anomaly, History, Outcome, Poll, Send, check_clients
from tidelog.chaos.live.cluster_journal import Entry, name_of, read_journal
from tidelog.wire.errors import ErrorCode, TidelogError

READ_SECONDS_MAX: Final = 300.0
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
    found: Read = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            partition, offset, value = json.loads(line)
            found.setdefault(partition, []).append((offset, name_of(value.encode())))
    return found


def _unread(happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE, tried="read everything back", happened=happened[-4_000:]
    )


def judge(
    journals: Mapping[str, Path], read: Read, *, topic: str, partition_count: int
) -> LiveVerdict:
    """Partition by partition."""
    by_partition = _entries(journals, partition_count)
    anomalies: list[Anomaly] = []
    counts = dict.fromkeys(Outcome, 0)
    found_loss = found_double = False
    for partition, entries in enumerate(by_partition):
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
        partitions=partition_count,
        anomalies=tuple(anomalies),
        is_planted_loss_found=found_loss,
        is_planted_double_found=found_double,
    )


def _entries(journals: Mapping[str, Path], partition_count: int) -> list[list[tuple[str, Entry]]]:
    found: list[list[tuple[str, Entry]]] = [[] for _ in range(partition_count)]
    for name, file in journals.items():
        for entry in read_journal(file):
            found[entry.partition].append((name, entry))
    for entries in found:
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
        print(f"{len(verdict.anomalies)} anomalies, at most five of a kind in a partition")
        return 1
    if not verdict.is_planted_loss_found or not verdict.is_planted_double_found:
        print("INVALID: a record that was taken out, or put in twice, went unnoticed")
        return 3
    print("every acknowledged record is there, once, in order")
    return 0
