"""Runs a suite with a planted bug until it shows something that it does not show without."""

from collections.abc import Iterable

import msgspec

from tidelog.chaos.sim.planted import PLANTED
from tidelog.chaos.sim.suites.result import RunResult, Suite


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a search."""

    planted: str
    seeds_run: int
    seed: int | None
    """None: not found."""
    violations: tuple[str, ...] = ()
    """Of kinds that the same seed does not show without the bug."""

    def __str__(self) -> str:
        if self.seed is None:
            return f"planted bug {self.planted}: not found within {self.seeds_run} seeds"
        return (
            f"planted bug {self.planted}: found after {self.seeds_run} seeds (seed {self.seed})\n"
            f"  {self.violations[0][:200]}"
        )


def find(suite: Suite, planted: str, seeds: Iterable[int]) -> Found:
    """Seed after seed, as the suite always runs them."""
    count = 0
    for count, seed in enumerate(seeds, start=1):
        with PLANTED[planted]():
            with_bug = suite.run(seed, None)
        if not with_bug.violations:
            continue
        known = _kinds(suite.run(seed, None))
        new = tuple(v for v in with_bug.violations if v.split()[0] not in known)
        if new:
            return Found(planted=planted, seeds_run=count, seed=seed, violations=new)
    return Found(planted=planted, seeds_run=count, seed=None)


def _kinds(result: RunResult) -> set[str]:
    return {violation.split()[0] for violation in result.violations}
