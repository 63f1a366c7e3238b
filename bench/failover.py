"""`python -m bench.failover --peers kafka`: brokers die or stop, Tidelog's and Apache Kafka's.

Owns the order of a run: the same script, the same rounds, rate, partitions and replicas, one
system behind the other, and a table of how long partitions stood still. It must never fail for
being slow; it fails for a record that is lost.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.node import KAFKA_VERSION, PeerMissingError, prepare
from bench.processes import ChildFailedError
from bench.table import load_average
from tidelog.chaos.live.cluster.faults.cases import CLUSTER_CASES, NODES, exit_code
from tidelog.chaos.live.cluster.faults.processes import Kill, Pause
from tidelog.chaos.live.cluster.load import WRITERS
from tidelog.chaos.live.cluster.nodes import IN_SYNC_MIN, PARTITIONS, REPLICAS, TidelogCluster
from tidelog.chaos.live.cluster.rounds import Budget, Fault
from tidelog.chaos.live.cluster.run import RunDone, figures_of, run_under_fault
from tidelog.chaos.live.cluster.under_test import StoppableCluster
from tidelog.chaos.live.processes.toxiproxy import ToxiproxyMissingError
from tidelog.chaos.live.quorum.rounds import percentile
from tidelog.chaos.live.shared.case import RATE
from tidelog.wire.errors import TidelogError

FAULTS: Final[dict[str, Callable[[StoppableCluster], Fault]]] = {
    "broker-kill": Kill,
    "broker-pause": Pause,
}
FAILURES: Final = (
    TidelogError,
    ChildFailedError,
    PeerMissingError,
    KafkaException,
    ToxiproxyMissingError,
)
Make = Callable[[Path], AbstractContextManager[StoppableCluster]]


def main() -> int:
    """Exit code 0: no record is lost; else as the live cases have it."""
    arguments = _parser().parse_args()
    budgets = _budgets(arguments)
    systems: list[tuple[str, Make]] = [("Tidelog", _tidelog(arguments))]
    try:
        prepare()
        systems.append((f"Apache Kafka {KAFKA_VERSION}", _kafka(arguments)))
    except PeerMissingError as error:
        print(error)
    print(
        f"{arguments.partitions} partitions, {REPLICAS} replicas, min.insync.replicas="
        f"{IN_SYNC_MIN}, acks=all with sequences, {arguments.rate:.0f} records/s of 100 bytes by "
        f"{WRITERS} producers; Tidelog flushes before it acknowledges, Kafka does not; "
        f"{load_average()}"
    )
    done: dict[str, RunDone] = {}
    codes: list[int] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-failover-")))
        for name, make in systems:
            print(f"== {name}: {CLUSTER_CASES[arguments.case].summary}", flush=True)
            try:
                directory = place / name.split()[0].lower()
                done[name] = _run(make, directory, arguments, budgets[name == "Tidelog"])
            except FAILURES as error:
                print(f"{name} is left out: {error}")
                codes.append(2)
                continue
            codes.append(exit_code(done[name]))
    print_beside(done)
    return max(codes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.failover", description=__doc__)
    parser.add_argument("--case", choices=FAULTS, default="broker-kill")
    parser.add_argument("--peers", choices=["kafka"], default="kafka")
    parser.add_argument("--rounds", type=int, help="how often; default: the case's own number")
    parser.add_argument("--seconds", type=float, help="of each system: rounds begin until then")
    parser.add_argument("--peer-seconds", type=float, help="of the peer; default: the same")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def _tidelog(arguments: argparse.Namespace) -> Make:
    return lambda place: TidelogCluster(place, voters=NODES, partitions=arguments.partitions)


def _kafka(arguments: argparse.Namespace) -> Make:
    return lambda _place: KafkaCluster(nodes=NODES, partitions=arguments.partitions)


def _budgets(arguments: argparse.Namespace) -> dict[bool, Budget]:
    """Of ourselves, and of the peer."""
    rounds = arguments.rounds or CLUSTER_CASES[arguments.case].rounds
    seconds = arguments.peer_seconds or arguments.seconds
    return {
        True: Budget(rounds=rounds, seconds=arguments.seconds),
        False: Budget(rounds=rounds, seconds=seconds),
    }


def _run(make: Make, place: Path, arguments: argparse.Namespace, budget: Budget) -> RunDone:
    with make(place) as cluster:
        return run_under_fault(
            cluster,
            FAULTS[arguments.case](cluster),
            place,
            budget=budget,
            rate=arguments.rate,
            seed=arguments.seed,
        )


def print_beside(done: dict[str, RunDone]) -> None:
    """One line a system, and how much longer the peer stands still."""
    print("\nlongest time without an acknowledgement, of each partition that the broker led")
    for name, each in done.items():
        print(f"  {name:20}  {figures_of(each.unavailable.led_ms)}")
    if len(done) == 2:
        ours, theirs = (each.unavailable.led_ms for each in done.values())
        if ours and theirs:
            median = percentile(theirs, 0.5) / percentile(ours, 0.5)
            print(f"  the peer's by ours: p50 {median:.1f}, max {max(theirs) / max(ours):.1f}")


if __name__ == "__main__":
    sys.exit(main())
