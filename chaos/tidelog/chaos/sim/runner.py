"""Runs many seeds of a suite and says what they showed; or one seed, event by event.

Owns everything that is printed. A failure prints (seed, commit) and one line that replays it; the
summary says how many seeds count and why others do not. Real time is read here and nowhere else.
"""

import functools
import gc
import logging
import multiprocessing
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.loop import START_NS
from tidelog.chaos.sim.base.trace import Trace
from tidelog.chaos.sim.verdicts.result import RunResult, Suite, Watch

_VIOLATIONS_SHOWN: Final = 5
FAILURES_SHOWN: Final = 20
_ROOT: Final = Path(__file__).resolve().parents[4]


class Totals:
    """What many seeds add up to."""

    def __init__(self) -> None:
        self.results: list[RunResult] = []
        self.failures: list[RunResult] = []
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.transitions: dict[tuple[str, str], None] = {}

    def add(self, result: RunResult) -> None:
        """One more seed."""
        self.transitions.update(dict.fromkeys(result.transitions))
        slim = msgspec.structs.replace(result, transitions=())
        self.results.append(slim)
        if result.violations:
            self.failures.append(slim)

    @property
    def counting(self) -> int:
        """Seeds in which enough happened, and every enabled fault was felt."""
        return sum(not result.missing for result in self.results)


def commit() -> str:
    """The commit of this checkout, with `+` if files differ from it; unknown outside one."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "*.py") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()


def replay_line(suite: Suite, seed: int) -> str:
    """What to type to see a seed again."""
    return f"make sim SUITE={suite.name} SEED={seed}"


def run_seeds(
    suite: Suite,
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    seconds_max: float | None = None,
    on_result: Callable[[RunResult, float], None] = lambda _result, _seconds: None,
) -> Totals:
    """Run seed after seed, in `jobs` processes, until the time is over."""
    totals = Totals()
    begin_s = time.perf_counter()
    with _results(suite, seeds, jobs) as results:
        for result, cpu_s in results:
            totals.add(result)
            totals.cpu_seconds += cpu_s
            on_result(result, cpu_s)
            if seconds_max is not None and time.perf_counter() - begin_s >= seconds_max:
                break
    totals.seconds = time.perf_counter() - begin_s
    return totals


@contextmanager
def _results(
    suite: Suite, seeds: Iterable[int], jobs: int
) -> Iterator[Iterator[tuple[RunResult, float]]]:
    """Results in the order of the seeds, each with the seconds of processor time that it took."""
    if jobs == 1:
        _prepare()
        try:
            yield (_run_timed(suite.run, seed) for seed in seeds)
        finally:
            gc.unfreeze()
        return
    work = functools.partial(_run_timed, suite.run)
    with multiprocessing.get_context("spawn").Pool(jobs, _prepare) as pool:
        yield pool.imap(work, seeds)


def _prepare() -> None:
    gc.collect()
    gc.freeze()


def _run_timed(run: Callable[[int, Watch | None], RunResult], seed: int) -> tuple[RunResult, float]:
    begin_s = time.process_time()
    with quiet():
        result = run(seed, None)
    gc.collect()
    return result, time.process_time() - begin_s


def print_failure(suite: Suite, result: RunResult, at_commit: str, out: TextIO) -> None:
    """What went wrong, and how to see it again."""
    print(f"FAILED (seed {result.seed}, commit {at_commit})", file=out)
    for violation in result.violations[:_VIOLATIONS_SHOWN]:
        print(f"  {violation}", file=out)
    if len(result.violations) > _VIOLATIONS_SHOWN:
        print(f"  and {len(result.violations) - _VIOLATIONS_SHOWN} more", file=out)
    print(f"  replay: {replay_line(suite, result.seed)}", file=out)


def print_summary(suite: Suite, totals: Totals, at_commit: str, out: TextIO) -> None:
    """The figures of a run of many seeds."""
    results = totals.results
    events = sum(result.events for result in results)
    print(f"suite {suite.name}, commit {at_commit}", file=out)
    print(
        f"seeds      {len(results)} run, {totals.counting} counting, "
        f"{len(totals.failures)} with violations",
        file=out,
    )
    print(f"events     {_spread([result.events for result in results])}", file=out)
    print(f"steps      {_spread([result.steps for result in results])}", file=out)
    for name in results[0].figures:
        print(f"{name:<10} {_spread([result.figures[name] for result in results])}", file=out)
    print(f"transitions {len(totals.transitions)} distinct (state, event) pairs", file=out)
    steps = sum(result.steps for result in results)
    for name, seconds in (("wall time", totals.seconds), ("cpu time", totals.cpu_seconds)):
        print(
            f"{name:<10} {seconds:.1f} s: {len(results) / seconds:.2f} seeds/s, "
            f"{events / seconds:,.0f} events/s, {steps / seconds:,.0f} steps/s",
            file=out,
        )
    _print_faults(results, out)
    _print_missing(results, out)


def _print_faults(results: list[RunResult], out: TextIO) -> None:
    print("faults     kind: runs with it enabled, runs in which it was felt, times felt", file=out)
    for kind in FaultKind:
        felt = [result.felt[kind.value] for result in results if kind.value in result.felt]
        if felt:
            seen = sum(1 for times in felt if times)
            print(f"  {kind.value:<20} {len(felt):>6} {seen:>6} {sum(felt):>8}", file=out)
    calm = sum(1 for result in results if not result.felt)
    print(f"  {'none at all':<20} {calm:>6}", file=out)


def _print_missing(results: list[RunResult], out: TextIO) -> None:
    reasons: dict[str, int] = {}
    for result in results:
        for reason in result.missing:
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        worst = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:8]
        print("not counting because of " + ", ".join(f"{name}: {n}" for name, n in worst), file=out)


def _spread(values: list[int]) -> str:
    if len(values) < 2:
        return f"{values[0]}"
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return f"p10 {deciles[0]:,.0f}, p50 {deciles[4]:,.0f}, sum {sum(values):,}"


def run_verbose(suite: Suite, seed: int, out: TextIO) -> RunResult:
    """Run one seed and print every event, aligned."""

    def watch(trace: Trace) -> None:
        def show(now_ns: int, subject: str, kind: str, detail: str) -> None:
            ms = (now_ns - START_NS) / 1e6
            print(f"{ms:12.3f} ms  {subject:<18} {kind:<24} {detail}".rstrip(), file=out)

        trace.on_event = show

    result = suite.run(seed, watch)
    print(f"trace hash {result.trace_hash}, {result.events} events", file=out)
    return result


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the logs of simulated nodes out of the output."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
