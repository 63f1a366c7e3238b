"""The live cases of a cluster that changes under load, by name, and how one of them is run.

Owns sizes, the figures of each phase and exit codes: 0 sound, 1 an anomaly or something that does
not hold, 3 a run that proves nothing.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tidelog.chaos.checkers import Anomaly, Outcome, check_clients
from tidelog.chaos.live.cluster.gaps import acknowledged_at, longest_gap_ms
from tidelog.chaos.live.cluster.journal import Entry, read_journal
from tidelog.chaos.live.cluster.load import ClusterLoad
from tidelog.chaos.live.cluster.nodes import TidelogCluster
from tidelog.chaos.live.cluster.rounds import wait, wait_whole
from tidelog.chaos.live.cluster.run import figures_of
from tidelog.chaos.live.cluster.verdict import (
    LiveVerdict,
    Read,
    history_of,
    is_double_found,
    is_loss_found,
    read_back,
    report,
)
from tidelog.chaos.live.growth.growth import (
    Phase,
    Recreated,
    Stage,
    StandsStillError,
    brokers_come_and_go,
    partitions_grow,
    topic_is_made_anew,
)
from tidelog.chaos.live.growth.rolled_back import directory_goes_back
from tidelog.chaos.live.growth.wrong_clock import clock_is_ahead, find_library

SECONDS: Final = 60.0
WRITER: Final = "tidelog.chaos.live.growth.writer"
WRONG_CLOCK: Final = "wrong-clock"
WARM_SECONDS_MAX: Final = 60.0
LOST: Final = frozenset({"lost_write", "unseen"})
DOUBLED: Final = frozenset({"duplicate"})
REORDERED: Final = frozenset({"reordered", "misplaced"})
STRAY: Final = frozenset({"from_nowhere"})
"""Of the checks of histories; what is none of these is told as it is."""


class GrowthCase(NamedTuple):
    """One case."""

    steps: Callable[[Stage], None]
    summary: str
    partitions: int
    partitions_most: int
    further: int
    """Brokers beside the voters."""
    healthy_phases: int
    joins_at_once: bool = False
    """Whether they are there from the beginning."""


GROWTH_CASES: Final[dict[str, GrowthCase]] = {
    "broker-growth": GrowthCase(
        brokers_come_and_go, "3, 5 and 3 brokers again, under load", 24, 24, 2, 3
    ),
    "partition-growth": GrowthCase(
        partitions_grow, "4 partitions become 12, under load", 4, 12, 0, 2
    ),
    "topic-recreated": GrowthCase(
        topic_is_made_anew,
        "a topic is deleted and made again while one of 4 brokers is dead",
        *(8, 8, 1, 2),
        joins_at_once=True,
    ),
    "rolled-back": GrowthCase(
        directory_goes_back,
        "an old copy of a data directory is put back, alone and while every broker is dead",
        *(24, 24, 0, 4),
    ),
    WRONG_CLOCK: GrowthCase(
        clock_is_ahead,
        "a broker starts with its clock a day ahead, and is put right",
        *(24, 24, 0, 2),
    ),
}


def run_growth_case(name: str, directory: Path, *, seconds: float | None, rate: float) -> int:
    """Everything in that directory; the exit code. `seconds` pass without any change, in all."""
    case = GROWTH_CASES[name]
    if name == WRONG_CLOCK and find_library() is None:
        print("SKIPPED: libfaketime is not installed (on Debian: apt-get install faketime)")
        return 0
    healthy_seconds = (SECONDS if seconds is None else seconds) / case.healthy_phases
    clients = directory / "clients"
    clients.mkdir(parents=True)
    with TidelogCluster(
        directory,
        partitions=case.partitions,
        partitions_most=case.partitions_most,
        further=case.further,
        joins_at_once=case.joins_at_once,
        has_paths=False,
        writer=WRITER,
    ) as cluster:
        load = ClusterLoad(cluster, clients, rate=rate)
        stage = Stage(cluster, load, healthy_seconds)
        try:
            load.begin()
            _wait_warm(cluster, load)
            case.steps(stage)
            journals = load.end()
        except StandsStillError as error:
            print(f"STUCK: {error}")
            return 1
        finally:
            load.kill()
        tell(stage, journals)
        wait_whole(cluster)
        cluster.restart_all()
        wait_whole(cluster)
        read = read_back(cluster.reader(), clients / "read.jsonl")
    entries = entries_of(journals, case.partitions_most, stage.recreated)
    verdict = judge_entries(entries, read, topic=cluster.topic)
    return exit_code(verdict, stage.problems, is_valid=stage.is_valid)


def _wait_warm(cluster: TidelogCluster, load: ClusterLoad) -> None:
    def is_warm() -> str | None:
        return None if load.acknowledged > 0 else "nothing is acknowledged yet"

    wait(cluster, load, is_warm, WARM_SECONDS_MAX, tried="write the first records")


def tell(stage: Stage, journals: Mapping[str, Path]) -> None:
    """The figures of each phase."""
    every = (each for file in journals.values() for each in read_journal(file))
    ends = acknowledged_at(every, stage.cluster.partitions_most)
    width = max(len(each.name) for each in stage.phases)
    print(f"{'phase':<{width}}  seconds  records/s  no acknowledgement in a partition")
    for phase in stage.phases:
        rate = phase.acknowledged / phase.seconds
        stood = figures_of(stalls_ms(ends, phase))
        print(f"{phase.name:<{width}}  {phase.seconds:7.1f}  {rate:9.0f}  {stood}", flush=True)
    longest = max((each for phase in stage.phases for each in stalls_ms(ends, phase)), default=0.0)
    print(f"longest stall of a partition: {longest:.0f} ms; held back {stage.load.held_back}")


def stalls_ms(ends: Sequence[Sequence[int]], phase: Phase) -> list[float]:
    """The longest of each partition that had acknowledged something before the phase began. One
    that goes on behind the phase counts to the next one for the whole of it.
    """
    return [
        longest_gap_ms(each[: bisect_right(each, phase.ended_ns)], phase.began_ns, phase.ended_ns)
        for each in ends
        if each and each[0] <= phase.began_ns
    ]


Entries = list[list[tuple[str, Entry]]]
"""By partition: producer and entry, in the order in which they ended."""


def entries_of(
    journals: Mapping[str, Path], partition_count: int, recreated: Recreated | None
) -> Entries:
    """What producers were told of the topic that is there now."""
    found: Entries = [[] for _ in range(partition_count)]
    for name, file in journals.items():
        for entry in read_journal(file):
            kept = entry if recreated is None else of_the_new_topic(entry, recreated)
            if kept is not None:
                found[kept.partition].append((name, kept))
    for entries in found:
        entries.sort(key=lambda each: each[1].ended_ns)
    return found


def of_the_new_topic(entry: Entry, recreated: Recreated) -> Entry | None:
    """None: it was acknowledged by the old topic, and must not be in the new one. One that began
    before the new topic was there and ended after the old one began to go may be in either.
    """
    if entry.ended_ns <= recreated.deleted_ns:
        return None
    if entry.began_ns >= recreated.created_ns or entry.outcome is not Outcome.ACKNOWLEDGED:
        return entry
    return msgspec.structs.replace(entry, outcome=Outcome.INDETERMINATE, offset=-1)


def judge_entries(by_partition: Entries, read: Read, *, topic: str) -> LiveVerdict:
    """As `cluster.verdict.judge` does, of entries that are at hand."""
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
        partitions=len(by_partition),
        anomalies=tuple(anomalies),
        is_planted_loss_found=found_loss,
        is_planted_double_found=found_double,
    )


def exit_code(verdict: LiveVerdict, problems: Sequence[str], *, is_valid: bool) -> int:
    """Print the verdict; see the module."""
    kinds = [each.check for each in verdict.anomalies]
    counts = ", ".join(
        f"{word} {sum(kind in checks for kind in kinds)}"
        for word, checks in (
            ("lost", LOST),
            ("reordered", REORDERED),
            ("duplicated", DOUBLED),
            ("of another topic", STRAY),
        )
    )
    print(counts)
    code = report(verdict)
    for each in problems:
        print(f"PROBLEM: {each}")
    if code == 1 or problems:
        return 1
    if not is_valid:
        print("INVALID: in some phase nothing was acknowledged")
        return 3
    return code
