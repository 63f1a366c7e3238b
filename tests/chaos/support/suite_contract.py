"""What every suite of the simulation is held to: a slice of its seeds is clean, it finds its bugs.

Owns how much of that a run of all tests does. A slice is as many seeds, from 0 on, as fit into
its share of the processor time. Planted bugs that the search finds late are in SLOW: a run of all
tests searches one of them, by turns of the commit, for as long as it has time, and tells it as
skipped if that is not enough; `make test T=tests/chaos ARGS=--every-plant` all, to the end.
"""

import functools
import gc
import hashlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import pytest

from tests.support.telling import Tell
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.planted import Plant
from tidelog.chaos.sim.planted.search import find
from tidelog.chaos.sim.runner import Totals
from tidelog.chaos.sim.suites import SUITES, Suite, load_suite

SLICES_CPU_SECONDS: Final = 30.0
"""Of all suites together: one more takes its share from the others, not from who waits."""
SLICE_SEEDS_MIN: Final = 8
SOON_CPU_SECONDS: Final = 6.0
"""A planted bug that takes more is told at the end of the run: its place is in SLOW."""
PLANTED_SEEDS_MAX: Final = 2_000
TURN_CPU_SECONDS: Final = 120.0
"""For the one whose turn it is: how soon it is found changes with every change of the code."""
RARE: Final = (
    ("cluster", "accept_a_gap"),
    ("cluster", "call_out_of_range_what_is_not_here"),
    ("cluster", "count_on_a_crashed_machine"),
    ("cluster", "elect_no_longest_log"),
    ("cluster", "leave_one_alone_too_early"),
    ("cluster", "leave_stopped_logs_alone"),
    ("cluster", "shrink_and_count_on_all"),
    ("cluster", "skip_the_resync_after_a_break"),
    ("transactions", "hold_back_for_the_newest_only"),
)
"""Needs more seeds than a run of all tests has time for: by `--every-plant` only."""
SLOW: Final = (
    ("cluster", "believe_an_old_copy"),
    ("cluster", "believe_logs_without_marks"),
    ("cluster", "believe_any_start"),
    ("cluster", "count_a_copy_without_its_head"),
    ("cluster", "drop_the_epoch_check"),
    ("cluster", "elect_anybody"),
    ("cluster", "expand_too_early"),
    ("cluster", "forget_the_watermark_on_restart"),
    ("cluster", "hold_the_time_of_the_start"),
    ("cluster", "ignore_where_logs_part"),
    ("cluster", "show_a_watermark_that_lags"),
    ("cluster", "stamp_with_any_clock"),
    ("cluster", "stop_all_for_one_file"),
    ("cluster", "store_a_duplicate"),
    ("cluster", "truncate_to_the_watermark"),
    ("cluster", "watermark_below_the_minimum"),
    ("cluster", "watermark_from_log_end"),
    ("groups", "commit_what_is_not_owned"),
    ("groups", "commit_what_was_returned"),
    ("groups", "load_to_the_watermark"),
    ("groups", "take_late_heartbeats"),
    ("groups", "tell_an_assignment_once"),
    ("log", "forget_the_flush_of_a_swap"),
    ("log", "index_the_time_of_one_batch"),
    ("log", "keep_epochs_of_a_cut_tail"),
    ("log", "recover_past_a_torn_batch"),
    ("log", "retry_a_failed_flush"),
    ("log", "serve_without_verifying"),
    ("log", "take_a_trim_back"),
    ("quorum", "commit_beyond_what_is_equal"),
    ("quorum", "storage_hides_damage"),
    ("skeleton", "recover_past_a_torn_batch"),
    ("transactions", "begin_after_an_unknown_end"),
    ("transactions", "begin_before_the_end_is_here"),
    ("transactions", "bump_twice_at_a_takeover"),
    ("transactions", "commit_before_all_is_stored"),
    ("transactions", "give_an_identity_to_two"),
    ("transactions", "never_time_out"),
    ("transactions", "send_markers_once"),
    ("transactions", "take_markers_of_any_epoch"),
)
"""Suite and planted bug: about five seconds of processor time and more until it is found."""


class SuiteContract:
    """A test class of a suite names the suite and its bugs."""

    suite: ClassVar[Suite]
    planted: ClassVar[Mapping[str, Plant]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each planted bug that is found soon."""
        if "soon_found" in metafunc.fixturenames:
            slow = {name for suite, name in (*SLOW, *RARE) if suite == self.suite.name}
            metafunc.parametrize("soon_found", sorted(set(self.planted) - slow))

    @pytest.fixture(autouse=True)
    def quiet(self) -> Iterator[None]:
        """Simulated nodes log what they suffer."""
        with runner.quiet():
            yield

    @pytest.fixture
    def totals(self) -> Totals:
        """Of a slice of the seeds, which is run once."""
        return run_slice(self.suite.name)

    @pytest.mark.slow
    def test_a_slice_of_seeds_shows_no_violation(self, totals: Totals, tell: Tell) -> None:
        ran = len(totals.results)
        tell(
            f"suite {self.suite.name}: {totals.counting} of {ran} seeds count, "
            f"in {totals.cpu_seconds:.1f} s of processor time"
        )
        assert [(result.seed, result.violations) for result in totals.failures] == []
        assert totals.counting >= ran * 5 // 8, "most seeds do enough to count"

    @pytest.mark.slow
    def test_a_planted_bug_is_found_by_the_suite_as_it_is(
        self, soon_found: str, tell: Tell
    ) -> None:
        began_s = time.process_time()
        told = search(self.suite, soon_found, self.planted[soon_found])
        took_s = time.process_time() - began_s
        if took_s > SOON_CPU_SECONDS:
            tell(f"suite {self.suite.name}: not soon, {took_s:.1f} s of processor time; {told}")


@functools.cache
def run_slice(name: str) -> Totals:
    """Seed after seed of a suite while there is processor time left."""
    began_s = time.process_time()
    share_s = SLICES_CPU_SECONDS / len(SUITES)

    def seeds() -> Iterator[int]:
        for seed in itertools.count():
            is_over = time.process_time() - began_s >= share_s
            if is_over and seed >= SLICE_SEEDS_MIN:
                return
            yield seed

    totals = runner.run_seeds(load_suite(name), seeds())
    gc.freeze()  # the runner gives back what it has frozen, and with it what was before
    return totals


def search(suite: Suite, name: str, plant: Plant, *, cpu_seconds: float | None = None) -> str:
    """Fails if the suite, as it is, does not find the bug; what it found.

    With a limit of processor time it says as skipped that this was not enough.
    """
    limit_s = math.inf if cpu_seconds is None else time.process_time() + cpu_seconds
    seeds = itertools.takewhile(lambda _: time.process_time() < limit_s, range(PLANTED_SEEDS_MAX))
    with runner.quiet():
        found = find(suite, name, plant, seeds)
    if found.seed is None and found.seeds_run < PLANTED_SEEDS_MAX:
        pytest.skip(f"{found} in {cpu_seconds} s: --every-plant searches on")
    assert found.seed is not None, str(found)
    return str(found).splitlines()[0]


def whose_turn_it_is(commit: str) -> tuple[str, str]:
    """The slow planted bug that is searched at this commit."""
    number = int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8])
    return SLOW[number % len(SLOW)]
