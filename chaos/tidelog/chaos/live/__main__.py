"""`python -m tidelog.chaos.live [--case NAME]`: faults of real processes, and what they showed.

Without a case a node is killed while it is written to, and every record is counted; `--case` runs
those of the metadata quorum and of a replicated cluster.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tidelog.chaos.live.cases import CLUSTER_CASES, run_cluster_case
from tidelog.chaos.live.cluster.rounds import RATE, Budget
from tidelog.chaos.live.processes.planted import SUITE
from tidelog.chaos.live.processes.toxiproxy import ToxiproxyMissingError
from tidelog.chaos.live.quorum.cases import CASES
from tidelog.chaos.live.single.kill_while_producing import Verdict, run
from tidelog.chaos.live.single.slow_clients import run_slow_clients
from tidelog.chaos.sim.planted import load_planted
from tidelog.wire.errors import TidelogError

PRODUCING = "producing"
PRODUCING_ROUNDS = 10
SLOW_CLIENTS = "slow-clients"
CHOICES = (PRODUCING, SLOW_CLIENTS, *CASES, "quorum", *CLUSTER_CASES)
ACKNOWLEDGE_EARLY = "acknowledge-early"
"""Producers take a leader's word for everybody's."""


def main() -> int:
    """Exit code 0: valid and without anomaly; 1: an anomaly; 3: a fault that nobody felt."""
    arguments = _parser().parse_args()
    if arguments.acknowledged_min < 1 or (arguments.rounds is not None and arguments.rounds < 1):
        print("--rounds and --acknowledged-min are at least 1", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        try:
            return _run(arguments, _directory(arguments.directory, stack))
        except TidelogError as error:
            print(f"error: {error.tried}\n{error.happened}\nhint: {error.hint}", file=sys.stderr)
            return 2
        except ToxiproxyMissingError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidelog.chaos.live", description=__doc__)
    parser.add_argument("--case", choices=CHOICES)
    parser.add_argument("--rounds", type=int, help="how often; default: the case's own number")
    parser.add_argument("--seed", type=int, default=1, help="decides when and where")
    parser.add_argument(
        "--acknowledged-min", type=int, default=3_000, help="records acknowledged before each kill"
    )
    parser.add_argument("--seconds", type=float, help="of a cluster: rounds begin until then")
    parser.add_argument("--rate", type=float, default=RATE, help="of a cluster: records a second")
    parser.add_argument(
        "--planted",
        choices=[ACKNOWLEDGE_EARLY, *load_planted(SUITE)],
        metavar="MISTAKE",
        help=f"one that the verdict has to find: {ACKNOWLEDGE_EARLY} in the producers, or in the "
        f"brokers one of the simulator's: {', '.join(load_planted(SUITE))}",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of a cluster's topic, for example segment.bytes=4194304; may be given again",
    )
    parser.add_argument("--directory", help="an empty one, kept with logs and histories")
    return parser


def _directory(given: str | None, stack: ExitStack) -> Path:
    if given is None:
        temporary = tempfile.TemporaryDirectory(prefix="tidelog-chaos-")
        return Path(stack.enter_context(temporary))
    directory = Path(given)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _run(arguments: argparse.Namespace, directory: Path) -> int:
    if arguments.case in CLUSTER_CASES:
        return run_cluster(arguments, arguments.case, directory)
    if arguments.case == SLOW_CLIENTS:
        return run_slow_clients(directory)
    if arguments.case in (None, PRODUCING):
        rounds = arguments.rounds or PRODUCING_ROUNDS
        least = arguments.acknowledged_min
        found = run(directory, rounds=rounds, seed=arguments.seed, acknowledged_min=least)
        return report(found)
    names = list(CASES) if arguments.case == "quorum" else [arguments.case]
    codes: list[int] = []
    for name in names:
        case, began = CASES[name], time.monotonic()
        print(f"== {name}: {case.summary}", flush=True)
        place = directory / name
        place.mkdir()
        rounds = arguments.rounds or case.rounds
        codes.append(case.run(place, rounds=rounds, seed=arguments.seed))
        print(f"{name} took {time.monotonic() - began:.0f} s\n", flush=True)
    return max(codes)


def run_cluster(arguments: argparse.Namespace, name: str, directory: Path) -> int:
    """One case of a replicated cluster."""
    case, began = CLUSTER_CASES[name], time.monotonic()
    print(f"== {name}: {case.summary}", flush=True)
    budget = Budget(rounds=arguments.rounds or case.rounds, seconds=arguments.seconds)
    is_early = arguments.planted == ACKNOWLEDGE_EARLY
    code = run_cluster_case(
        name,
        directory,
        budget=budget,
        seed=arguments.seed,
        rate=arguments.rate,
        acks="1" if is_early else "all",
        planted="" if is_early else arguments.planted or "",
        settings=dict(each.split("=", 1) for each in arguments.setting),
    )
    print(f"{name} took {time.monotonic() - began:.0f} s, exit code {code}")
    return code


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


if __name__ == "__main__":
    sys.exit(main())
