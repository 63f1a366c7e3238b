"""`python -m tidelog.chaos.sim`: run seeds of a suite, or replay one of them."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from tidelog.chaos.checkers.raft.invariants import list_invariants
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.ledger import Ledger, hash_sources, ledger_path
from tidelog.chaos.sim.planted import Plant, load_planted
from tidelog.chaos.sim.planted.search import BrokenPlant, find
from tidelog.chaos.sim.sources import sources_behind
from tidelog.chaos.sim.suites import SUITES, RunResult, Suite, load_suite

SEEDS_DEFAULT = 100
PLANTED_SEEDS = 2_000
LEDGER_EVERY = 50


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.chaos.sim", description="The simulated cluster, by seed."
    )
    parser.add_argument("--suite", choices=sorted(SUITES), default="skeleton")
    parser.add_argument("--seeds", type=_positive, help=f"how many; default {SEEDS_DEFAULT}")
    parser.add_argument("--first-seed", type=int, default=0, help="where to begin; default 0")
    parser.add_argument("--seed", type=int, help="replay this one and print every event")
    parser.add_argument("--seconds", type=_positive, help="stop after the seed that ends later")
    parser.add_argument("--hashes", action="store_true", help="print each seed's trace hash")
    parser.add_argument(
        "--resume", action="store_true", help="go on where the ledger ends, and write it on"
    )
    parser.add_argument("--planted", help="plant this bug and stop at the first finding")
    parser.add_argument(
        "--every-plant",
        action="store_true",
        help="plant one bug of the suite after the other; --seconds: of processor time for each",
    )
    parser.add_argument(
        "--list-invariants", action="store_true", help="what is checked of a quorum, and when"
    )
    parser.add_argument("--jobs", type=_positive, default=1, help="processes; default 1")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def main(arguments: list[str] | None = None) -> int:
    """0: nothing wrong; 1: a seed shows a violation, or none a planted bug; 2: a broken plant."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and options.first_seed:
        parser.error("--resume begins where the ledger ends, not at --first-seed")
    out = sys.stdout
    if options.list_invariants:
        print("\n".join(list_invariants()), file=out)
        return 0
    suite, at_commit = load_suite(options.suite), runner.commit()
    if options.seed is not None:
        with runner.quiet():
            result = runner.run_verbose(suite, options.seed, out)
        if result.violations:
            runner.print_failure(suite, result, at_commit, out)
        return 1 if result.violations else 0
    if options.planted is not None:
        plants = load_planted(suite.name)
        if options.planted not in plants:
            parser.error(f"no planted bug {options.planted}; there are {', '.join(plants)}")
        return search_planted(suite, options.planted, plants[options.planted], _seeds(options), out)
    if options.every_plant:
        return search_every_plant(
            suite,
            load_planted(suite.name),
            seeds_max=options.seeds or PLANTED_SEEDS,
            seconds_max=options.seconds,
            out=out,
        )
    return run_many(suite, options, at_commit, out)


def run_many(suite: Suite, options: argparse.Namespace, at_commit: str, out: TextIO) -> int:
    """Seed after seed; 1: one of them shows a violation."""
    shown = itertools.count(1)
    ledger = _open_ledger(suite, at_commit) if options.resume else None
    seeds = _seeds(options, 0 if ledger is None else ledger.page.next_seed)

    def on_result(result: RunResult, cpu_seconds: float) -> None:
        if options.hashes:
            print(f"{result.seed} {result.trace_hash}", file=out)
        if result.violations and next(shown) <= runner.FAILURES_SHOWN:
            runner.print_failure(suite, result, at_commit, out)
        out.flush()
        if ledger is not None:
            ledger.add(result, cpu_seconds)
            if result.seed % LEDGER_EVERY == 0:
                ledger.save()

    totals = runner.run_seeds(
        suite,
        seeds,
        jobs=options.jobs,
        seconds_max=options.seconds,
        on_result=on_result,
    )
    runner.print_summary(suite, totals, at_commit, out)
    if ledger is not None:
        ledger.save()
        page = ledger.page
        print(
            f"ledger     {ledger.key}: {page.next_seed} run, {page.counting} counting, "
            f"{len(page.seeds_with_violations)} with violations",
            file=out,
        )
    return 1 if totals.failures else 0


def search_planted(suite: Suite, name: str, plant: Plant, seeds: Iterable[int], out: TextIO) -> int:
    """0: the bug was found; 1: it was not; 2: its substitute broke, so that nobody can tell."""
    try:
        with runner.quiet():
            found = find(suite, name, plant, seeds)
    except BrokenPlant as error:
        print(f"BROKEN: {error}", file=out)
        return 2
    print(found, file=out)
    return 0 if found.seed is not None else 1


def search_every_plant(
    suite: Suite,
    plants: Mapping[str, Plant],
    *,
    seeds_max: int,
    seconds_max: float | None,
    out: TextIO,
) -> int:
    """What became of each bug, and how many were found; the worst of what each search returns."""
    results = []
    for name, plant in plants.items():
        seeds = _within(seconds_max, range(seeds_max))
        results.append(search_planted(suite, name, plant, seeds, out))
        out.flush()
    print(f"{results.count(0)} of {len(plants)} planted bugs were found", file=out)
    return max(results)


def _within(seconds_max: float | None, seeds: Iterable[int]) -> Iterator[int]:
    began_s = time.process_time()
    for seed in seeds:
        yield seed
        if seconds_max is not None and time.process_time() - began_s >= seconds_max:
            return


def _open_ledger(suite: Suite, at_commit: str) -> Ledger:
    key = hash_sources(sources_behind(suite.run.__module__))
    return Ledger(ledger_path(suite.name), key, at_commit)


def _seeds(options: argparse.Namespace, resumed: int = 0) -> Iterable[int]:
    first = resumed or options.first_seed
    if options.seeds is None and options.seconds is not None:
        return itertools.count(first)
    return range(first, first + (options.seeds or SEEDS_DEFAULT))


if __name__ == "__main__":
    sys.exit(main())
