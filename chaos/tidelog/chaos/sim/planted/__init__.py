"""Bugs that the simulator must find: planted into a node's classes for as long as a run lasts.

Each one is a substitution made here, in the simulator, and undone at the end; nothing of a node
knows of it and no path of a real node leads here. The suites, seeds and schedules know nothing of
them either: a planted bug counts as found only by the suite as it is, and only by a kind of
violation that its definition expects. A substitute that breaks is no bug of a node: whatever it
raises, other than what a node itself answers with, is remembered and ends the search.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec

from tidelog.wire.errors import TidelogError

NOT_CHECKS: Final = frozenset({"bug", "deadlock", "runaway"})
"""Kinds that a crash inside a substitute would show as well: no plant may expect them."""


class Substitution(msgspec.Struct, frozen=True):
    """What stands in for an attribute of a node's module or class."""

    owner: object
    name: str
    substitute: Callable[..., Any]


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """A bug, and the kinds of violation that say that it was this one."""

    make: Callable[[], Substitution]
    expected: frozenset[str]

    def __post_init__(self) -> None:
        """Only checks may be expected."""
        assert self.expected, "a bug that nothing can show is not found"
        assert not self.expected & NOT_CHECKS, "a crash is not what a check says"


@contextmanager
def planted(plant: Plant) -> Iterator[list[str]]:
    """The bug is there; yields what its substitute raised, one text each, empty if it works."""
    breakages: list[str] = []
    made = plant.make()
    original = getattr(made.owner, made.name)
    setattr(made.owner, made.name, _watched(made.substitute, breakages))
    try:
        yield breakages
    finally:
        setattr(made.owner, made.name, original)


def _watched(substitute: Callable[..., Any], breakages: list[str]) -> Callable[..., Any]:
    """The substitute; an exception that is not one of a node's answers is written down."""

    @contextmanager
    def watching() -> Iterator[None]:
        try:
            yield
        except TidelogError:
            raise
        except Exception as error:
            breakages.append(repr(error))
            raise

    @functools.wraps(substitute)
    async def run_async(*arguments: object, **options: object) -> object:
        with watching():
            return await substitute(*arguments, **options)

    @functools.wraps(substitute)
    def run(*arguments: object, **options: object) -> object:
        with watching():
            return substitute(*arguments, **options)

    return run_async if inspect.iscoroutinefunction(substitute) else run


PLANTED: Final = {
    "skeleton": "tidelog.chaos.sim.planted.of_skeleton:PLANTED",
    "quorum": "tidelog.chaos.sim.planted.of_quorum:PLANTED",
    "log": "tidelog.chaos.sim.planted.of_log:PLANTED",
    "cluster": "tidelog.chaos.sim.planted.of_cluster:PLANTED",
    "groups": "tidelog.chaos.sim.planted.of_groups:PLANTED",
    "clients": "tidelog.chaos.sim.planted.of_clients:PLANTED",
    "transactions": "tidelog.chaos.sim.planted.of_transactional_clients:PLANTED",
}
"""By suite, where its bugs are."""


def load_planted(suite: str) -> Mapping[str, Plant]:
    """The bugs that a suite must find, by name."""
    module_name, _, attribute = PLANTED[suite].partition(":")
    return cast("Mapping[str, Plant]", getattr(importlib.import_module(module_name), attribute))
