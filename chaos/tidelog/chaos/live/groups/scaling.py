"""`group-scaling`: a group of 1 member has 8, then 3, while 64 partitions are written.

Owns the steps, the table of gaps and moves, and the exit code: 0 sound, 1 an anomaly, 3 a run that
proves nothing. Nobody dies: members come, and those that go close their consumers.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.chaos.live.cluster.load import ClusterLoad
from tidelog.chaos.live.cluster.nodes import TidelogCluster
from tidelog.chaos.live.cluster.rounds import wait_warm, wait_whole
from tidelog.chaos.live.cluster.run import figures_of
from tidelog.chaos.live.cluster.verdict import judge_files, report, run_reader
from tidelog.chaos.live.groups.members import GroupMembers
from tidelog.chaos.live.groups.run import acknowledged_by, committed_by, report_group, told_by
from tidelog.chaos.live.groups.seen import NS_PER_MS, Gaps, Seen, least_moves, read_members
from tidelog.chaos.live.groups.verdict import judge_group

SECONDS: Final = 30.0
WRITERS: Final = 2
SIZES: Final = (1, 8, 3)
COLUMNS: Final = 3


def run_group_scaling(
    directory: Path,
    *,
    seconds: float | None,
    rate: float,
    partitions: int,
    sizes: Sequence[int] = SIZES,
) -> int:
    """Everything in that directory; `seconds` pass without any change, in all."""
    calm_seconds = (SECONDS if seconds is None else seconds) / len(sizes)
    clients = directory / "clients"
    clients.mkdir(parents=True)
    with TidelogCluster(directory, partitions=partitions) as cluster:
        load = ClusterLoad(cluster, clients, rate=rate, writers=WRITERS)
        members = GroupMembers(cluster.bootstrap, cluster.topic, partitions, clients)
        try:
            members.load(max(sizes))
            load.begin()
            wait_warm(cluster, load)
            least, from_ns = _resize(members, sizes, calm_seconds, load)
            journals = load.end()
            members.wait_delivered(load.acknowledged)
            seen = read_members(members.end(), partitions)
        finally:
            load.kill()
            members.kill()
        tell_gaps(seen, acknowledged_by(journals, partitions), from_ns, least)
        cluster.restart_all()
        wait_whole(cluster)
        file = clients / "read.jsonl"
        run_reader(cluster.reader(), file)
        committed = committed_by(cluster.bootstrap, cluster.topic)
    verdict = judge_files(journals, file, topic=cluster.topic, partition_count=partitions)
    codes = (
        report(verdict),
        report_group(judge_group(cluster.topic, told_by(journals, partitions), seen, committed)),
    )
    return 1 if 1 in codes else max(codes)


def _resize(
    members: GroupMembers, sizes: Sequence[int], calm_seconds: float, load: ClusterLoad
) -> tuple[int, int]:
    """From size to size, a calm while at each; the moves that nobody could have spared, and when
    the second size began.
    """
    least, from_ns, owned = 0, 0, dict[str, int]()
    for size in sizes:
        began, before = time.monotonic(), load.acknowledged
        had = len(members.names)
        if owned:
            from_ns = from_ns or time.monotonic_ns()
        if size > had:
            members.start(size - had)
        members.stop(members.names[size:])
        members.wait_settled()
        took = time.monotonic() - began
        if owned:
            least += least_moves(owned, members.names, members.partition_count)
        owned = dict(zip(members.names, members.owned, strict=True))
        time.sleep(calm_seconds)
        load.check_running()
        members.check_running()
        spent, acknowledged = time.monotonic() - began, load.acknowledged - before
        print(
            f"{had} -> {size} members: they share {members.partition_count} partitions after "
            f"{took:.1f} s; {acknowledged / spent:.0f} records/s acknowledged",
            flush=True,
        )
    return least, from_ns


def tell_gaps(
    seen: Sequence[Seen], acknowledged: Sequence[Mapping[int, int]], from_ns: int, least: int
) -> None:
    """What each partition went through since the first change, by how often it moved."""
    groups: Mapping[str, list[int]] = {
        "untouched": [n for n, each in enumerate(seen) if each.moves == 0],
        "moved once": [n for n, each in enumerate(seen) if each.moves == 1],
        "moved more than once": [n for n, each in enumerate(seen) if each.moves > 1],
    }
    print(
        "ms, the longest of each partition: between two deliveries to one owner / over a move / "
        "from acknowledged to delivered"
    )
    for name, numbers in groups.items():
        told = [_Told.of(seen[number], acknowledged[number], from_ns) for number in numbers]
        print(f"{name}: {len(numbers)} partitions")
        cells = [each.cell(number) for number, each in zip(numbers, told, strict=True)]
        for first in range(0, len(cells), COLUMNS):
            print("  " + "  ".join(cells[first : first + COLUMNS]))
        print(f"  to one owner: {figures_of([each.gaps.within_ms for each in told])}")
        if any(each.gaps.over_move_ms for each in told):
            print(f"  over a move:  {figures_of([each.gaps.over_move_ms for each in told])}")
        print(f"  from acknowledged to delivered: {figures_of([each.delay_ms for each in told])}")
    stalls = [stall_ms(sorted(each.values()), from_ns) for each in acknowledged]
    print(f"longest time without an acknowledgement meanwhile: {figures_of(stalls)}")
    print(f"moves: {sum(each.moves for each in seen)}, the least possible {least}", flush=True)


class _Told(NamedTuple):
    """Of one partition."""

    owners: str
    gaps: Gaps
    delay_ms: float

    @classmethod
    def of(cls, found: Seen, acknowledged: Mapping[int, int], from_ns: int) -> "_Told":
        """Since that time."""
        delay_ms = found.delay_ms(acknowledged, from_ns)
        return cls(">".join(found.owners), found.gaps(from_ns), delay_ms)

    def cell(self, number: int) -> str:
        """As it is printed."""
        gaps = f"{self.gaps.within_ms:5.0f} /{self.gaps.over_move_ms:5.0f} /{self.delay_ms:5.0f}"
        return f"{number:3} {self.owners:9} {gaps}"


def stall_ms(ends: Sequence[int], from_ns: int) -> float:
    """The longest time between two of them that begins at that time or later."""
    later = [at_ns for at_ns in ends if at_ns >= from_ns]
    return max((after - before for before, after in pairwise(later)), default=0) / NS_PER_MS
