"""The live cases of a replicated cluster under one kind of fault each.

Owns sizes and exit codes: 0 sound, 1 an anomaly or a partition that stood still until the heal,
3 a run that proves nothing.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from tidelog.chaos.live.cluster.faults.damage import Corrupt
from tidelog.chaos.live.cluster.faults.full_disk import FullDisk, check_mount
from tidelog.chaos.live.cluster.faults.processes import (
    Full,
    Kill,
    Latency,
    OneWay,
    Pause,
    Reset,
    Restart,
)
from tidelog.chaos.live.cluster.nodes import PARTITIONS, TidelogCluster
from tidelog.chaos.live.cluster.rounds import HEALTHY_SECONDS, Budget, Fault
from tidelog.chaos.live.cluster.run import RunDone, run_under_fault
from tidelog.chaos.live.cluster.verdict import report
from tidelog.chaos.live.groups.run import GroupReaders
from tidelog.chaos.live.quorum.full_disk import small_disk
from tidelog.chaos.live.shared.case import Orders

NODES: Final = 3
SMALL: Final = 1
SMALL_BYTES: Final = 768 * 1024 * 1024


Make = Callable[[TidelogCluster], Fault]


class ClusterCase(NamedTuple):
    """One fault, and how often it befalls a cluster."""

    fault: Make
    rounds: int
    summary: str
    has_small_disk: bool = False
    """Whether node `SMALL` has a disk of its own that can be filled."""
    members: int = 0
    """Of a group that reads all the while."""


CLUSTER_CASES: Final[dict[str, ClusterCase]] = {
    "broker-kill": ClusterCase(Kill, 6, "kill -9 of a broker"),
    "broker-pause": ClusterCase(Pause, 3, "SIGSTOP of a broker"),
    "broker-partition-one-way": ClusterCase(
        OneWay, 4, "a broker that its peers do not hear, or that does not hear them"
    ),
    "broker-partition-full": ClusterCase(Full, 3, "a broker cut off from its peers"),
    "broker-latency": ClusterCase(Latency, 3, "late bytes between a broker and its peers"),
    "broker-reset": ClusterCase(Reset, 3, "connections between a broker and its peers are reset"),
    "broker-restart": ClusterCase(Restart, 3, "SIGTERM and a start, broker after broker"),
    "rolling-restart": ClusterCase(
        Restart, 9, "SIGTERM and a start, broker after broker, while a group reads", members=3
    ),
    "corrupt-minority": ClusterCase(Corrupt, 4, "turned bits in the logs of one broker"),
    "disk-full": ClusterCase(
        lambda cluster: FullDisk(cluster, SMALL), 2, "no room on the disk of one broker", True
    ),
}


def run_cluster_case(
    name: str,
    orders: Orders,
    *,
    partitions: int = PARTITIONS,
    healthy_seconds: float = HEALTHY_SECONDS,
) -> int:
    """Runs one of them; returns the exit code."""
    case, directory = CLUSTER_CASES[name], orders.directory
    budget = Budget(
        rounds=orders.rounds or case.rounds,
        seconds=orders.seconds,
        healthy_seconds=healthy_seconds,
    )
    with ExitStack() as stack:
        data_dirs = {}
        if case.has_small_disk:
            disk = stack.enter_context(small_disk(directory / "small", SMALL_BYTES))
            data_dirs[SMALL] = check_mount(disk) / "data"
        cluster = stack.enter_context(
            TidelogCluster(
                directory,
                voters=NODES,
                partitions=partitions,
                data_dirs=data_dirs,
                acks=orders.acks,
                planted=orders.planted,
                settings=dict(orders.settings),
            )
        )
        readers = None
        if case.members:
            readers = GroupReaders(cluster, directory / "members", case.members)
            stack.callback(readers.kill)
            readers.load()
        fault = case.fault(cluster)
        done = run_under_fault(
            cluster,
            fault,
            directory,
            budget=budget,
            rate=orders.rate,
            seed=orders.seed,
            readers=readers,
        )
        code = exit_code(done)
        return code if readers is None else worst(code, readers.report())


def worst(*codes: int) -> int:
    """Of several verdicts on one run: an anomaly counts more than a run that proves nothing."""
    return 1 if 1 in codes else max(codes)


def exit_code(done: RunDone) -> int:
    """Print the verdict; see the module."""
    code = report(done.verdict)
    if code == 1:
        return 1
    for number, each in enumerate(done.rounds, 1):
        if each.is_stuck:
            print(f"STUCK: in round {number} something stood still until the fault was undone")
            code = 1
    if code == 1:
        return 1
    if not done.is_valid:
        print("INVALID: in some round nothing was acknowledged before the fault, or nobody felt it")
        return 3
    return code
