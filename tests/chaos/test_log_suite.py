"""The suite of the partition log: a slice of its seeds is clean, and it finds the planted bugs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.chaos.checkers import log_derived, log_medium, log_model
from tidelog.chaos.sim import FaultKind, runner
from tidelog.chaos.sim.ledger import hash_rooms
from tidelog.chaos.sim.log import inspection, keeper, partition_client, readers
from tidelog.chaos.sim.planted.of_log import PLANTED
from tidelog.chaos.sim.planted.search import find
from tidelog.chaos.sim.suites import load_suite
from tidelog.chaos.sim.suites import log as suite
from tidelog.chaos.sim.suites.log import LOG, run_log

SLICE = 40
JOBS = 2
PLANTED_SEEDS_MAX = 2_000
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


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated nodes log what they suffer."""
    with runner.quiet():
        yield


@pytest.mark.slow
def test_a_slice_of_seeds_shows_no_violation() -> None:
    totals = runner.run_seeds(LOG, range(SLICE), jobs=JOBS)
    print(f"{totals.counting} of {SLICE} seeds of the suite log count")
    assert [(result.seed, result.violations) for result in totals.failures] == []
    assert totals.counting >= SLICE * 3 // 4, "most seeds do enough to count"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found_by_the_suite_as_it_is(name: str) -> None:
    found = find(LOG, name, PLANTED[name], range(PLANTED_SEEDS_MAX))
    print(found)
    assert found.seed is not None, str(found)


@pytest.mark.slow
def test_one_seed_gives_one_history() -> None:
    first = run_log(3)
    assert first.events > 0
    assert run_log(3) == first


@pytest.mark.slow
def test_seeds_compact_trim_cut_and_stop_cleanly() -> None:
    totals = runner.run_seeds(LOG, range(12), jobs=JOBS)
    for name in ("checkpoints", "cuts", "jobs", "reads", "recoveries", "trims"):
        assert sum(result.figures[name] for result in totals.results) > 0, f"no {name} at all"


def test_the_suite_is_found_by_its_name_and_its_rooms_are_there() -> None:
    assert load_suite("log") is LOG
    root = Path(__file__).resolve().parents[2]
    assert [room for room in LOG.rooms if not (root / room).exists()] == []
    assert hash_rooms(LOG.rooms) == hash_rooms(LOG.rooms)


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
