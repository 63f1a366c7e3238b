"""What counts as finding a planted bug: what a check says of it, never a substitute that breaks."""

import asyncio
import io
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import pytest

from tidelog.broker.directory.core import writing
from tidelog.broker.log.state import recovery
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.__main__ import search_every_plant, search_planted
from tidelog.chaos.sim.planted import PLANTED as ALL_PLANTED
from tidelog.chaos.sim.planted import Plant, Substitution, load_planted, planted
from tidelog.chaos.sim.planted.of_skeleton import PLANTED
from tidelog.chaos.sim.planted.search import BrokenPlant, find
from tidelog.chaos.sim.skeleton.suite import SKELETON
from tidelog.chaos.sim.suites import RunResult, Suite
from tidelog.wire.errors import ErrorCode, TidelogError


class Toy:
    """Stands for a class of a node."""

    def answer(self) -> str:
        """Nothing wrong."""
        return ""


def toy_suite(*always: str, calls: Callable[[], str] = lambda: Toy().answer()) -> Suite:
    """Shows `always`, and what the toy says; what it raises is a bug of the node."""

    def run(seed: int, watch: object) -> RunResult:
        del watch
        violations = list(always)
        try:
            violations += [text for text in [calls()] if text]
        except Exception as error:  # noqa: BLE001 - stands for the suite, which judges crashes
            violations.append(f"bug: {error!r}")
        return RunResult(
            seed=seed,
            trace_hash="",
            events=0,
            steps=0,
            virtual_ms=0,
            violations=tuple(violations),
            missing=(),
            felt={},
            figures={},
            transitions=(),
        )

    return Suite(name="toy", run=run)


def plant(substitute: Callable[..., Any], *expected: str) -> Plant:
    """In the toy's place."""
    return Plant(make=lambda: Substitution(Toy, "answer", substitute), expected=frozenset(expected))


def raise_type_error(self: Toy) -> str:
    del self
    raise TypeError("the substitute is broken")


def test_a_violation_of_an_expected_kind_is_a_find() -> None:
    found = find(toy_suite(), "toy", plant(lambda self: "lost_write in t-0: x", "lost_write"), [4])
    assert (found.seed, found.violations) == (4, ("lost_write in t-0: x",))


@pytest.mark.parametrize("violation", ["duplicate in t-0: x", "bug: TypeError()", "runaway: 1"])
def test_a_violation_of_another_kind_is_no_find(violation: str) -> None:
    found = find(toy_suite(), "toy", plant(lambda self: violation, "lost_write"), range(3))
    assert (found.seed, found.seeds_run) == (None, 3)


def test_a_kind_that_the_seed_shows_without_the_bug_is_no_find() -> None:
    suite = toy_suite("lost_write in t-1: y")
    found = find(suite, "toy", plant(lambda self: "lost_write in t-0: x", "lost_write"), range(3))
    assert found.seed is None


def test_a_substitute_that_raises_a_type_error_fails_the_search() -> None:
    with pytest.raises(BrokenPlant, match=r"toy: its substitute raised TypeError.*seed 4"):
        find(toy_suite(), "toy", plant(raise_type_error, "lost_write"), [4])
    assert Toy().answer() == "", "the substitution is undone all the same"


def test_a_broken_substitute_fails_the_search_although_a_check_names_an_expected_kind() -> None:
    suite = toy_suite("lost_write in t-0: x")
    with pytest.raises(BrokenPlant):
        find(suite, "toy", plant(raise_type_error, "lost_write"), [0])


def test_a_substitute_of_another_signature_fails_the_search() -> None:
    with pytest.raises(BrokenPlant, match="TypeError"):
        find(toy_suite(), "toy", plant(lambda: "lost_write", "lost_write"), [0])


def test_a_coroutine_that_raises_fails_the_search_as_well() -> None:
    async def substitute(self: Toy) -> str:
        return raise_type_error(self)

    suite = toy_suite(calls=lambda: asyncio.run(Toy().answer()))  # type: ignore[arg-type]
    with pytest.raises(BrokenPlant, match="TypeError"):
        find(suite, "toy", plant(substitute, "lost_write"), [0])


def test_what_a_node_answers_with_is_no_breakage_of_a_substitute() -> None:
    def refuse(self: Toy) -> str:
        raise TidelogError(ErrorCode.STORAGE_CORRUPT, tried="open", happened="it is corrupt")

    found = find(toy_suite(), "toy", plant(refuse, "lost_write"), range(2))
    assert found.seed is None


@pytest.mark.parametrize("kind", ["bug", "deadlock", "runaway"])
def test_no_plant_may_expect_a_crash(kind: str) -> None:
    with pytest.raises(AssertionError, match="a crash is not what a check says"):
        plant(raise_type_error, "lost_write", kind)


def break_verify(*_: object) -> None:
    raise TypeError("the substitute is broken")


BROKEN = Plant(
    make=lambda: Substitution(recovery, "verify_checksum", break_verify),
    expected=frozenset({"corrupt_batch"}),
)


@pytest.mark.slow
def test_in_the_suite_itself_a_broken_substitute_is_not_a_find() -> None:
    with runner.quiet(), pytest.raises(BrokenPlant, match="the substitute is broken"):
        find(SKELETON, "broken", BROKEN, range(20))


def test_the_command_says_whether_a_bug_was_found_or_its_substitute_broke() -> None:
    ends = {}
    for name, made in {
        "found": plant(lambda self: "lost_write in t-0: x", "lost_write"),
        "missed": plant(lambda self: "", "lost_write"),
        "broken": plant(raise_type_error, "lost_write"),
    }.items():
        out = io.StringIO()
        ends[name] = (search_planted(toy_suite(), name, made, range(2), out), out.getvalue())
    assert [code for code, _ in ends.values()] == [0, 1, 2]
    assert ends["broken"][1].startswith("BROKEN: planted bug broken: its substitute raised")


def test_every_bug_of_a_suite_is_searched_for_within_a_bound_of_its_own() -> None:
    plants = {
        "missed": plant(lambda self: "", "lost_write"),
        "found": plant(lambda self: "lost_write in t-0: x", "lost_write"),
    }
    out = io.StringIO()
    code = search_every_plant(toy_suite(), plants, seeds_max=3, seconds_max=None, out=out)
    assert code == 1
    lines = out.getvalue().splitlines()
    assert lines[0] == "planted bug missed: not found within 3 seeds"
    assert lines[1] == "planted bug found: found after 1 seeds (seed 0)"
    assert lines[-1] == "1 of 2 planted bugs were found"
    bounded = io.StringIO()
    search_every_plant(toy_suite(), plants, seeds_max=10**9, seconds_max=0, out=bounded)
    assert "missed: not found within 1 seeds" in bounded.getvalue()


def test_every_substitution_is_undone() -> None:
    before = writing.on_append
    with planted(PLANTED["acknowledge_before_flush"]):
        assert writing.on_append is not before
    assert writing.on_append is before


def every_plant() -> list[tuple[str, str, Plant]]:
    return [
        (suite, name, bug) for suite in ALL_PLANTED for name, bug in load_planted(suite).items()
    ]


@pytest.mark.parametrize(
    ("suite", "name", "bug"), every_plant(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_substitute_can_be_called_as_what_it_stands_for(
    suite: str, name: str, bug: Plant
) -> None:
    """Late ones are searched by turns: what nobody can call any more would be noticed late."""
    made = bug.make()
    original = signature(getattr(made.owner, made.name)).parameters.values()
    by_place = [each for each in original if each.kind is not Parameter.KEYWORD_ONLY]
    by_name = {each.name: each for each in original if each.kind is Parameter.KEYWORD_ONLY}
    assert not any(each.kind is Parameter.VAR_POSITIONAL for each in by_place), f"{suite}: {name}"
    signature(made.substitute).bind(*by_place, **by_name)
