"""A group that reads in a live run: from the journals of its members to the verdict and figures.

Owns what is printed of a group, and the question what it has committed in the end.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.gaps import NS_PER_MS, acknowledged_at
from tidelog.chaos.live.cluster.journal import read_journal
from tidelog.chaos.live.cluster.nodes import TidelogCluster
from tidelog.chaos.live.cluster.run import figures_of
from tidelog.chaos.live.cluster.verdict import ANOMALIES_PRINTED_MAX
from tidelog.chaos.live.groups.members import GROUP, GroupMembers
from tidelog.chaos.live.groups.seen import Seen, read_members
from tidelog.chaos.live.groups.verdict import GroupVerdict, judge_group
from tidelog.client import AdminClient

COLUMNS: Final = 8
COMMITTED_MS_MAX: Final = 60_000


class GroupReaders:
    """Members that read from the first round to the last record; see `Readers`."""

    def __init__(self, cluster: TidelogCluster, directory: Path, count: int) -> None:
        self._cluster = cluster
        self._count = count
        self._directory = directory
        self.members = GroupMembers(
            cluster.bootstrap, cluster.topic, cluster.partition_count, directory
        )
        self._writers: Mapping[str, Path] = {}
        self._seen: list[Seen] = []

    def load(self) -> None:
        """Their programs; later that would take from the brokers what they need."""
        self._directory.mkdir()
        self.members.load(self._count)

    def begin(self) -> None:
        """They share the partitions."""
        self.members.start(self._count)
        self.members.wait_settled()

    def end(self, acknowledged: int, journals: Mapping[str, Path]) -> None:
        """They read what was acknowledged, commit and leave."""
        self.members.wait_delivered(acknowledged)
        self._writers = journals
        self._seen = read_members(self.members.end(), self._cluster.partition_count)
        tell_stalls(journals, self._seen)

    def kill(self) -> None:
        """Whatever is left of them."""
        self.members.kill()

    def report(self) -> int:
        """Judge, print; see `report_group`."""
        told = told_by(self._writers, len(self._seen))
        committed = committed_by(self._cluster.bootstrap, self._cluster.topic)
        return report_group(judge_group(self._cluster.topic, told, self._seen, committed))


def committed_by(bootstrap: str, topic: str) -> dict[int, int]:
    """By partition, as the coordinator tells it."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        found = admin.list_group_offsets(GROUP, COMMITTED_MS_MAX)[GROUP]
    return {name.partition: at.offset for name, at in found.items() if name.topic == topic}


def told_by(writers: Mapping[str, Path], partition_count: int) -> list[dict[int, str]]:
    """What producers were told, by partition: offset and name of each acknowledged record."""
    told: list[dict[int, str]] = [{} for _ in range(partition_count)]
    for name, file in writers.items():
        for entry in read_journal(file):
            if entry.outcome is Outcome.ACKNOWLEDGED:
                told[entry.partition][entry.offset] = f"{name}:{entry.number}"
    return told


def acknowledged_by(writers: Mapping[str, Path], partition_count: int) -> list[dict[int, int]]:
    """By partition: when each offset was acknowledged."""
    ends: list[dict[int, int]] = [{} for _ in range(partition_count)]
    for file in writers.values():
        for entry in read_journal(file):
            if entry.outcome is Outcome.ACKNOWLEDGED:
                ends[entry.partition][entry.offset] = entry.ended_ns
    return ends


def report_group(verdict: GroupVerdict) -> int:
    """Print it; 0: sound, 1: an anomaly, 3: the checks are blind."""
    print(
        f"group: delivered {verdict.delivered}, lost {verdict.lost}, repeated {verdict.repeated}, "
        f"reordered {verdict.reordered}"
    )
    for anomaly in verdict.anomalies[:ANOMALIES_PRINTED_MAX]:
        print(f"ANOMALY {anomaly}")
    if verdict.anomalies:
        return 1
    if not verdict.are_plants_found:
        print("INVALID: a record left out, one delivered twice or a second owner went unnoticed")
        return 3
    print("every acknowledged record was delivered once, in order, to one owner at a time; and")
    print("what is committed is what was delivered")
    return 0


def tell_stalls(writers: Mapping[str, Path], seen: Sequence[Seen]) -> None:
    """The longest stall of each partition over the whole run, of both sides."""
    entries = (each for file in writers.values() for each in read_journal(file))
    produced = [_longest_ms(ends) for ends in acknowledged_at(entries, len(seen))]
    consumed = [found.gaps().longest_ms for found in seen]
    print("longest stall of each partition over the whole run, producing / consuming, ms")
    cells = [f"{p:5.0f} /{c:5.0f}" for p, c in zip(produced, consumed, strict=True)]
    for first in range(0, len(cells), COLUMNS):
        print(f"  {first:3}  " + "  ".join(cells[first : first + COLUMNS]))
    print(f"  longest stall of a partition, producing: {figures_of(produced)}")
    print(f"  longest stall of a partition, consuming: {figures_of(consumed)}", flush=True)


def _longest_ms(ends: Sequence[int]) -> float:
    return max((after - before for before, after in pairwise(ends)), default=0) / NS_PER_MS
