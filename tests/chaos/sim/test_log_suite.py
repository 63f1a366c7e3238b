"""The suite of the partition log: a slice of its seeds is clean, and it finds the planted bugs."""

import re
from pathlib import Path

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.checkers.log import derived as log_derived
from tidelog.chaos.checkers.log import medium as log_medium
from tidelog.chaos.checkers.log import model as log_model
from tidelog.chaos.sim import FaultKind, runner
from tidelog.chaos.sim.log import inspection, keeper, partition_client, readers, suite
from tidelog.chaos.sim.log.suite import LOG, run_log
from tidelog.chaos.sim.planted.of_log import PLANTED
from tidelog.chaos.sim.runner import Totals
from tidelog.chaos.sim.suites import load_suite

PLANTED_MIN = 12
CHECKS = (
    log_derived,
    log_medium,
    log_model,
    inspection,
    keeper,
    partition_client,
    readers,
    suite,
)
_KIND = re.compile(r'"([a-z_]+)(?:"|: | in |\{)')


class TestLogSuite(SuiteContract):
    """The contract of every suite; its slice shows the log's own work too."""

    suite = LOG
    planted = PLANTED

    @pytest.mark.slow
    def test_seeds_compact_trim_cut_and_stop_cleanly(self, totals: Totals) -> None:
        for name in ("checkpoints", "cuts", "jobs", "reads", "recoveries", "trims"):
            assert sum(result.figures[name] for result in totals.results) > 0, f"no {name} at all"


@pytest.mark.slow
def test_one_seed_gives_one_history() -> None:
    with runner.quiet():
        first = run_log(3)
        assert first.events > 0
        assert run_log(3) == first


def test_the_suite_is_found_by_its_name() -> None:
    assert load_suite("log") is LOG


def test_every_kind_of_the_disk_and_of_crashes_belongs_to_the_suite() -> None:
    kinds = {kind.value for kind in suite.KINDS}
    assert {
        "lost_write",
        "torn_write",
        "hole",
        "lost_name",
        "bit_flip",
        "read_error",
        "write_error",
        "flush_error",
        "no_space",
        "read_only",
        "slow_disk",
        "process_crash",
        "machine_crash",
        "worker_crash",
        "wall_jump",
    } <= kinds
    assert FaultKind.PARTITION not in suite.KINDS, "there is no network"


def test_every_plant_expects_what_some_check_says() -> None:
    assert len(PLANTED) >= PLANTED_MIN
    source = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in CHECKS)
    known = set(_KIND.findall(source))
    for name, plant in PLANTED.items():
        assert plant.expected <= known, f"{name} expects {plant.expected - known}"
