"""The suite of a cluster: a slice of its seeds is clean, replays alike, and finds planted bugs."""

from collections.abc import Iterator

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.cluster.plan import DISK_KINDS, Change, draw_plan
from tidelog.chaos.sim.cluster.suite import CLUSTER, REPLICATION_MAX
from tidelog.chaos.sim.planted.of_cluster import PLANTED

PLANTS_MIN = 15


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated nodes log what they suffer."""
    with runner.quiet():
        yield


class TestClusterSuite(SuiteContract):
    """The contract of every suite."""

    suite = CLUSTER
    planted = PLANTED


def test_a_broker_that_votes_neither_comes_nor_goes_nor_loses_its_disk() -> None:
    for seed in range(300):
        plan = draw_plan(Seeds(seed), replication_max=REPLICATION_MAX)
        if plan.nodes[-1].is_controller:
            assert not {Change.ADD_BROKER, Change.REMOVE_BROKER} & set(plan.changes)
            assert FaultKind.WIPE not in plan.kinds
        if len(plan.topics) == 1:
            assert Change.DELETE_WHILE_AWAY not in plan.changes, "its only topic stays"


@pytest.mark.slow
def test_a_seed_replays_to_the_same_hash() -> None:
    assert CLUSTER.run(5, None).trace_hash == CLUSTER.run(5, None).trace_hash


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED) >= PLANTS_MIN


def test_plans_vary_in_nodes_racks_copies_and_settings() -> None:
    plans = [draw_plan(Seeds(seed), replication_max=REPLICATION_MAX) for seed in range(200)]
    assert {len(plan.nodes) for plan in plans} == {3, 4, 5}
    assert {len({node.rack for node in plan.nodes}) for plan in plans} == {1, 2, 3}
    topics = [topic for plan in plans for topic in plan.topics]
    assert {topic.replication_factor for topic in topics} == {1, 2, 3}
    assert {topic.in_sync_min for topic in topics} == {1, 2}
    assert {topic.is_flush_sync for topic in topics} == {False, True}
    assert all(topic.in_sync_min <= topic.replication_factor for topic in topics)
    assert {change for plan in plans for change in plan.changes} == set(Change)
    assert DISK_KINDS & {kind for plan in plans for kind in plan.kinds}
