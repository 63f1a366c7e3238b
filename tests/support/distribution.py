"""How `make test` shares the tests among its workers.

Owns that the tests of a file stay together and in order, so that a file's fixtures are made once;
that planted bugs, which share nothing, go wherever there is time; that files with long tests come
first, so that the workers end together. What a test finds never depends on any of it.
"""

from typing import Any, Final

import pytest

SHARES_NOTHING: Final = "::test_a_planted_bug_is_found_"
WEIGHTS: Final = ("spark", "live", "slow")
"""Marks, those of the longest tests first."""


def scope_of(test: str) -> str:
    """Tests with the same scope run in one worker, one after the other."""
    return test if SHARES_NOTHING in test else test.partition("::")[0]


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def longest_first(items: list[pytest.Item]) -> None:
    """Files with long tests to the front; within a file the order stays."""
    weights: dict[str, int] = {}
    for item in items:
        weight = min(
            (WEIGHTS.index(mark.name) for mark in item.iter_markers() if mark.name in WEIGHTS),
            default=len(WEIGHTS),
        )
        scope = scope_of(item.nodeid)
        weights[scope] = min(weight, weights.get(scope, weight))
    items.sort(key=lambda item: weights[scope_of(item.nodeid)])
