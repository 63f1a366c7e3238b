"""`python -m tidelog.chaos.live [--case NAME]`: faults of real processes, and what they showed.

Without a case a lone node is killed while it is written to, and every record is counted.
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tidelog.chaos.live.cases import CASES, GROUPS, PRODUCING
from tidelog.chaos.live.processes.planted import SUITE
from tidelog.chaos.live.processes.toxiproxy import ToxiproxyMissingError
from tidelog.chaos.live.shared.case import RATE, Orders
from tidelog.chaos.sim.planted import load_planted
from tidelog.wire.errors import TidelogError

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
    parser.add_argument("--case", choices=(*CASES, *GROUPS))
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
    name = arguments.case or PRODUCING
    if name not in GROUPS:
        return _run_one(name, _orders(arguments, directory))
    codes: list[int] = []
    for each in GROUPS[name]:
        place = directory / each
        place.mkdir()
        codes.append(_run_one(each, _orders(arguments, place)))
    return max(codes)


def _run_one(name: str, orders: Orders) -> int:
    case, began = CASES[name], time.monotonic()
    print(f"== {name}: {case.summary}", flush=True)
    code = case.run(orders)
    print(f"{name} took {time.monotonic() - began:.0f} s, exit code {code}\n", flush=True)
    return code


def _orders(arguments: argparse.Namespace, directory: Path) -> Orders:
    is_early = arguments.planted == ACKNOWLEDGE_EARLY
    return Orders(
        directory=directory,
        seed=arguments.seed,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        rate=arguments.rate,
        acknowledged_min=arguments.acknowledged_min,
        acks="1" if is_early else "all",
        planted="" if is_early else arguments.planted or "",
        settings=dict(each.split("=", 1) for each in arguments.setting),
    )


if __name__ == "__main__":
    sys.exit(main())
