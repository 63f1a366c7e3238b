"""The suite of clients: a slice of its seeds is clean, replays alike, and finds planted bugs."""

import gc
from collections.abc import Iterator
from types import CodeType

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.clients.admin_scenes import ADMINISTERING
from tidelog.chaos.sim.clients.cells import MOMENTS_A_SEED, ROWS, moments_of, row_of
from tidelog.chaos.sim.clients.reading_scenes import MEMBERS, READING
from tidelog.chaos.sim.clients.strikes import Fault, Role
from tidelog.chaos.sim.clients.suite import CLIENTS
from tidelog.chaos.sim.clients.transaction_scenes import (
    ADMINISTERING_TRANSACTIONS,
    IN_TRANSACTIONS,
)
from tidelog.chaos.sim.clients.writing_scenes import WRITING
from tidelog.chaos.sim.planted.of_clients import PLANTED
from tidelog.chaos.sim.world.world import World
from tidelog.client import aio

PLANTS_MIN = 5
MESSAGES_MAX = 60


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated nodes log what they suffer."""
    with runner.quiet():
        yield


class TestClientsSuite(SuiteContract):
    """The contract of every suite."""

    suite = CLIENTS
    planted = PLANTED


def worlds() -> int:
    """How many are in memory."""
    gc.collect()
    return sum(isinstance(each, World) for each in gc.get_objects())


@pytest.mark.slow
def test_a_world_that_was_played_is_let_go() -> None:
    before = worlds()
    CLIENTS.run(0, None)
    assert worlds() == before, "each one that stays takes 9 MB"


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED) >= PLANTS_MIN


def test_as_many_seeds_as_there_are_rows_play_each_of_them_once() -> None:
    played = [row_of(seed) for seed in range(len(ROWS))]
    assert {row.name for row, _ in played} == {row.name for row in ROWS}
    assert {turn for _, turn in played} == {0}
    assert row_of(len(ROWS)) == (row_of(0)[0], 1)


@pytest.mark.parametrize("messages", range(MESSAGES_MAX))
def test_the_turns_of_a_row_strike_at_each_message_of_its_call(messages: int) -> None:
    turns = range(-(-(messages + 1) // MOMENTS_A_SEED))
    struck = [moment for turn in turns for moment in moments_of(messages, turn)]
    assert sorted(struck) == list(range(messages + 1)), "also just before the first"


def test_every_scene_is_struck_by_every_fault_and_has_a_name_of_its_own() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for scene in {row.scene.name for row in ROWS}:
        assert {row.fault for row in ROWS if row.scene.name == scene} == set(Fault), scene
    for role in Role:
        assert any(row.role is role for row in ROWS), role


CALLED_OTHERWISE = {
    "AsyncAdminClient": {
        "close": "every scene ends with it",
        "stop": "close by another name",
        "try_create_topics": "create_topics",
        "try_delete_groups": "delete_groups",
        "try_delete_group_offsets": "delete_group_offsets",
        "try_describe_groups": "describe_groups",
        "try_list_groups": "list_groups",
        "try_describe_producers": "describe_producers",
        "try_describe_transactions": "describe_transactions",
        "try_list_transactions": "list_transactions",
    },
    "AsyncConsumer": {
        "close": "every scene ends with it",
        "get_arrow": "get_batches: the same wait",
    },
    "AsyncProducer": {
        "close": "every scene ends with it",
        "send_arrow": "send_batch: the same way",
    },
}
"""Coroutines of the public clients without a scene of their own, and what plays them."""
SCENES = {
    "AsyncAdminClient": (*ADMINISTERING, *ADMINISTERING_TRANSACTIONS),
    "AsyncConsumer": (*READING, *MEMBERS),
    "AsyncProducer": (*WRITING, *IN_TRANSACTIONS),
}


@pytest.mark.parametrize("client", sorted(CALLED_OTHERWISE))
def test_every_call_that_waits_has_a_scene(client: str) -> None:
    """By the names that its scenes' code uses."""
    found = vars(aio)[client]
    calls = {
        name
        for name in dir(found)
        if not name.startswith("_") and getattr(getattr(found, name), "__code__", None) is not None
        if getattr(found, name).__code__.co_flags & 0x80
    }
    used: set[str] = set()
    for scene in SCENES[client]:
        for work in (scene.act, scene.warm, scene.prepare):
            used |= names_in(work)
    assert calls - used == set(CALLED_OTHERWISE[client])


def names_in(work: object) -> set[str]:
    """Of what a scene calls, its own helpers included."""
    code = getattr(work, "__code__", None)
    if code is None:
        return set()
    names = names_of(code)
    module = getattr(work, "__globals__", {})
    for name in list(names):
        helper = module.get(name)
        if name.startswith("_") and getattr(helper, "__code__", code) is not code:
            names |= names_in(helper)
    return names


def names_of(code: CodeType) -> set[str]:
    """With those of the comprehensions inside."""
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *(name for each in inside for name in names_of(each))}


def test_both_kinds_of_consumers_are_there_with_first_look_ups() -> None:
    for scenes in (READING, MEMBERS):
        assert any(not scene.only_warm for scene in scenes)


@pytest.mark.slow
def test_a_seed_replays_to_the_same_hash() -> None:
    first = CLIENTS.run(5, None)
    assert first.figures["cells"] > 0
    assert CLIENTS.run(5, None).trace_hash == first.trace_hash
