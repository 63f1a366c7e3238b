"""Runs a suite with a planted bug until a check names what the bug's definition expects."""

from collections.abc import Iterable

import msgspec

from tidelog.chaos.sim.planted import Plant, planted
from tidelog.chaos.sim.verdicts.result import RunResult, Suite


class BrokenPlant(Exception):
    """A substitute raised: what the search would find is the substitute, not the bug."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a search."""

    planted: str
    seeds_run: int
    seed: int | None
    """None: not found."""
    violations: tuple[str, ...] = ()
    """Of expected kinds that the same seed does not show without the bug."""

    def __str__(self) -> str:
        if self.seed is None:
            return f"planted bug {self.planted}: not found within {self.seeds_run} seeds"
        return (
            f"planted bug {self.planted}: found after {self.seeds_run} seeds (seed {self.seed})\n"
            f"  {self.violations[0][:200]}"
        )


def find(suite: Suite, name: str, plant: Plant, seeds: Iterable[int]) -> Found:
    """Seed after seed, as the suite always runs them. Raises BrokenPlant."""
    count = 0
    for count, seed in enumerate(seeds, start=1):
        with planted(plant) as breakages:
            with_bug = suite.run(seed, None)
        if breakages:
            raise BrokenPlant(
                f"planted bug {name}: its substitute raised {breakages[0]} (seed {seed})"
            )
        shown = _kinds(with_bug) & plant.expected
        if not shown:
            continue
        new = shown - _kinds(suite.run(seed, None))
        if new:
            violations = tuple(v for v in with_bug.violations if kind_of(v) in new)
            return Found(planted=name, seeds_run=count, seed=seed, violations=violations)
    return Found(planted=name, seeds_run=count, seed=None)


def kind_of(violation: str) -> str:
    """The first word of a violation is its kind."""
    return violation.split(maxsplit=1)[0].rstrip(":")


def _kinds(result: RunResult) -> set[str]:
    return {kind_of(violation) for violation in result.violations}
