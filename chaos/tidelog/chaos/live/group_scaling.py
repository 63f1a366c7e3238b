"""`group-scaling`: a group of 1 member has 8, then 3, while 64 partitions are written.

Owns the steps, the table of gaps and moves, and the exit code: 0 sound, 1 an anomaly, 3 a run that
proves nothing. Nobody dies: members come, and those that go close their consumers.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.chaos.live.cluster_load import ClusterLoad
from tidelog.chaos.live.cluster_nodes import TidelogCluster
from tidelog.chaos.live.cluster_rounds import wait_warm, wait_whole
from tidelog.chaos.live.cluster_run import figures_of
from tidelog.chaos.live.cluster_verdict import judge_files, report, run_reader
from tidelog.chaos.live.group_members import GroupMembers
from tidelog.chaos.live.group_run import committed_by, produced_stalls_ms, report_group, told_by
from tidelog.chaos.live.group_seen import Seen, least_moves, read_members
from tidelog.chaos.live.group_verdict import judge_group

SECONDS: Final = 30.0
WRITERS: Final = 2
SIZES: Final = (1, 8, 3)
COLUMNS: Final = 4


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
            load.begin()
            wait_warm(cluster, load)
            least = _resize(members, sizes, calm_seconds, load)
            journals = load.end()
            members.wait_delivered(load.acknowledged)
            seen = read_members(members.end(), partitions)
        finally:
            load.kill()
            members.kill()
        tell_gaps(seen, least)
        stalls = produced_stalls_ms(journals, partitions)
        print(f"meanwhile the longest stall of a partition, producing: {figures_of(stalls)}")
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
) -> int:
    """From size to size, a calm while at each; the moves that nobody could have spared."""
    least, owned = 0, dict[str, int]()
    for size in sizes:
        began, before = time.monotonic(), load.acknowledged
        had = len(members.names)
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
    return least


def tell_gaps(seen: Sequence[Seen], least: int) -> None:
    """Each partition's longest times between two deliveries, by how often it moved."""
    groups: Mapping[str, list[int]] = {
        "untouched": [n for n, each in enumerate(seen) if each.moves == 0],
        "moved once": [n for n, each in enumerate(seen) if each.moves == 1],
        "moved more than once": [n for n, each in enumerate(seen) if each.moves > 1],
    }
    for name, numbers in groups.items():
        print(f"{name}: {len(numbers)} partitions; longest gap within one owner / over a move, ms")
        cells = [_cell(number, seen[number]) for number in numbers]
        for first in range(0, len(cells), COLUMNS):
            print("  " + "  ".join(cells[first : first + COLUMNS]))
        gaps = [seen[number].gaps() for number in numbers]
        print(f"  within one owner: {figures_of([each.within_ms for each in gaps])}")
        if numbers and seen[numbers[0]].moves:
            print(f"  over a move:      {figures_of([each.over_move_ms for each in gaps])}")
    print(f"moves: {sum(each.moves for each in seen)}, the least possible {least}", flush=True)


def _cell(number: int, found: Seen) -> str:
    gaps = found.gaps()
    owners = ">".join(found.owners)
    return f"{number:3} {owners:11} {gaps.within_ms:5.0f} /{gaps.over_move_ms:5.0f}"
