"""`python -m tidelog.chaos.live`: kill a node while it is written to, and count what is there."""

import argparse
import sys
import tempfile
from pathlib import Path

from tidelog.chaos.live.kill_while_producing import Verdict, run
from tidelog.wire.errors import TidelogError


def main() -> int:
    """Exit code 0: valid and without anomaly; 1: an anomaly; 3: a fault that nobody felt."""
    parser = argparse.ArgumentParser(prog="tidelog.chaos.live", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often the node is killed")
    parser.add_argument("--seed", type=int, default=1, help="decides when it is killed")
    parser.add_argument(
        "--acknowledged-min", type=int, default=3_000, help="records acknowledged before each kill"
    )
    arguments = parser.parse_args()
    if min(arguments.rounds, arguments.acknowledged_min) < 1:
        parser.error("--rounds and --acknowledged-min are at least 1")
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as directory:
        try:
            verdict = run(
                Path(directory),
                rounds=arguments.rounds,
                seed=arguments.seed,
                acknowledged_min=arguments.acknowledged_min,
            )
        except TidelogError as error:
            print(f"error: {error.tried}\n{error.happened}\nhint: {error.hint}", file=sys.stderr)
            return 2
    return report(verdict)


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
