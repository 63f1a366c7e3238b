"""How `make test` shares the tests among its workers.

Owns that the tests of a file stay together and in order, so that a file's fixtures are made once;
that planted bugs, which share nothing, go wherever there is time; that files with long tests come
first, so that the workers end together; that those which wait for real processes stand between
those which compute, so that the processors have work. What a test finds never depends on it.
"""

from typing import Any, Final

import pytest

SHARES_NOTHING: Final = "::test_a_planted_bug_is_found_"
LIVE: Final = "live"
SLOW: Final = "slow"
MARKS: Final = ("spark", LIVE, SLOW)
"""Of long tests; a file is of the first one that any of its tests has."""


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
    """Spark's files, then live and slow ones by turns, then all others; in a file nothing moves."""
    ranks: dict[str, int] = {}
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        rank = next((rank for rank, name in enumerate(MARKS) if name in names), len(MARKS))
        scope = scope_of(item.nodeid)
        ranks[scope] = min(rank, ranks.get(scope, rank))
    places = _places(ranks)
    items.sort(key=lambda item: places[scope_of(item.nodeid)])


def _places(ranks: dict[str, int]) -> dict[str, tuple[int, float]]:
    """What to sort the scopes by: live and slow ones are spread evenly over the same stretch."""
    live, slow = MARKS.index(LIVE), MARKS.index(SLOW)
    counts = {rank: list(ranks.values()).count(rank) for rank in (live, slow)}
    seen = {live: 0.5, slow: 0.5}
    places: dict[str, tuple[int, float]] = {}
    for scope, rank in ranks.items():
        if rank in seen:
            places[scope] = (live, seen[rank] / counts[rank])
            seen[rank] += 1
        else:
            places[scope] = (rank, 0.0)
    return places
