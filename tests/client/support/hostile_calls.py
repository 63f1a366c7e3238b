"""Calls with one wrong argument each, made from the signatures of a surface, and their verdicts.

A verdict is `accepted`, `typed` (an error of Tidelog's that names the argument), or a fault:

    unnamed    refused, and the error does not say which argument it is about
    internal   an error of Python's from the inside
    waited     told when some time was over that has nothing to do with the argument
    hung       no answer in PATIENCE_S, which no clock of a test depends on
    broke      the object does not do its work any more
"""

import collections
import inspect
import queue
import threading
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.client.support.hostile_values import ELEMENTS, VALUES
from tidelog.client.errors import PeerError
from tidelog.wire.errors import ErrorCode, TidelogError

PATIENCE_S: Final = 60.0
FAULTS: Final = ("unnamed", "internal", "waited", "hung", "broke")
_ABOUT_ARGUMENTS: Final = (ErrorCode.INVALID_ARGUMENT, ErrorCode.INVALID_CONFIGURATION)
_OVER: Final = (ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED)
_TIMES: Final = (
    "timeout",
    "place",
    "_ms",
    "buffer_memory",
    "max_request_size",
    "batch_size",
    "in_flight",
)
_STATES: Final = ("is not assigned to this consumer",)
"""What a right argument is told that comes at the wrong time; the partition is named."""
_LISTS: Final = (
    collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection, list, tuple
)  # fmt: skip


class Place(NamedTuple):
    """Where a wrong value goes."""

    method: str
    parameter: str
    form: str
    """`itself`, `element` of a list, `key` or `value` of a mapping."""


class Triple(NamedTuple):
    """One call."""

    place: Place
    value: str

    def __str__(self) -> str:
        form = "" if self.place.form == "itself" else f" ({self.place.form})"
        return f"{self.place.method}({self.place.parameter}{form} = {self.value})"


class Verdict(NamedTuple):
    """What came of it."""

    kind: str
    told: str = ""
    seconds: float = 0.0
    """For the report; no verdict depends on it."""


def places(method: str, function: Callable[..., Any]) -> Iterator[Place]:
    """Of each parameter, the options of a constructor included."""
    hints = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        hint = hints.get(name, Any)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            for option, kind in typing.get_type_hints(_unpacked(hint)).items():
                yield from _forms(method, option, kind)
            continue
        is_many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        yield from [Place(method, name, "itself")] if is_many else _forms(method, name, hint)


def _unpacked(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_args(hint) else hint


def _forms(method: str, name: str, hint: Any) -> Iterator[Place]:
    yield Place(method, name, "itself")
    kinds = {typing.get_origin(each) for each in (hint, *typing.get_args(hint))}
    if collections.abc.Mapping in kinds:
        yield Place(method, name, "key")
        yield Place(method, name, "value")
    if kinds & set(_LISTS):
        yield Place(method, name, "element")


def triples(place: Place) -> Iterator[Triple]:
    """Every kind of wrong value."""
    for value in VALUES if place.form == "itself" else ELEMENTS:
        if place.form != "key" or (isinstance(VALUES[value](), Hashable) and "raises" not in value):
            yield Triple(place, value)


def arguments(triple: Triple, function: Callable[..., Any], good: Mapping[str, Any]) -> Any:
    """Positional and named: the wrong one, and right ones where they must be given."""
    place, wrong = triple.place, VALUES[triple.value]()
    right = good.get(f"{place.method}.{place.parameter}", good.get(place.parameter))
    if place.form == "element":
        wrong = [wrong]
    elif place.form == "key":
        wrong = {wrong: next(iter(right.values()))}
    elif place.form == "value":
        wrong = {next(iter(right)): wrong}
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("self", place.parameter) or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            continue
        wanted = f"{place.method}.{name}"
        is_needed = parameter.default is inspect.Parameter.empty
        if wanted in good or is_needed or name == "validate_only":
            named[name] = good.get(wanted, good.get(name))
    found = inspect.signature(function).parameters.get(place.parameter)
    if found is not None and found.kind is inspect.Parameter.VAR_POSITIONAL:
        positional.append(wrong)
    else:
        named[place.parameter] = wrong
    return positional, named


def verdict_of(error: BaseException, parameter: str) -> Verdict:
    """Of what was raised."""
    try:
        told = f"{type(error).__name__}: {error}"
    except Exception as worse:  # noqa: BLE001 - a text that cannot be made is a fault as well
        return Verdict("internal", f"{type(error).__name__} without a text: {worse!r}")
    if not isinstance(error, TidelogError) or error.code is ErrorCode.UNKNOWN:
        return Verdict("internal", told)
    if error.code in _OVER and not any(each in parameter for each in _TIMES):
        return Verdict("waited", told)
    is_about_it = parameter in told or any(each in told for each in _STATES)
    # What a broker refuses it shows: it knows the value and not the argument.
    if error.code in _ABOUT_ARGUMENTS and not is_about_it and not isinstance(error, PeerError):
        return Verdict("unnamed", told)
    return Verdict("typed", told)


class Worker:
    """Makes calls one by one; one that never ends costs its thread and no more."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._start()

    def _start(self) -> None:
        self._calls, self._results = queue.SimpleQueue(), queue.SimpleQueue()
        threading.Thread(
            target=self._run, args=(self._calls, self._results), name="hostile", daemon=True
        ).start()

    @staticmethod
    def _run(calls: Any, results: Any) -> None:
        while (call := calls.get()) is not None:
            try:
                results.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - it is judged by whoever asked
                results.put((None, error))

    def run(self, call: Callable[[], Any]) -> Any:
        """What the call returns or raises; TimeoutError if it never ends."""
        self._calls.put(call)
        try:
            found, error = self._results.get(timeout=PATIENCE_S)
        except queue.Empty:
            self._start()
            raise TimeoutError from None
        if error is not None:
            raise error
        return found

    def close(self) -> None:
        self._calls.put(None)


class Tally:
    """What came of all calls."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.slow: list[str] = []

    def note(self, triple: Triple, verdict: Verdict) -> None:
        self.counts[verdict.kind] += 1
        if verdict.seconds > 1:
            self.slow.append(
                f"{verdict.seconds:.1f} s, {verdict.kind}: {triple}: {verdict.told[:400]}"
            )
        if verdict.kind in FAULTS:
            self.faults.append(f"{verdict.kind}: {triple}: {verdict.told[:400]}")

    @property
    def tried(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        each = ", ".join(f"{self.counts[kind]} {kind}" for kind in ("accepted", "typed", *FAULTS))
        return f"{self.tried} triples: {each}; {len(self.slow)} took more than a second"


def all_triples(functions: Mapping[str, Callable[..., Any]]) -> list[Triple]:
    """Of a surface."""
    return [
        triple
        for name, function in functions.items()
        for place in places(name, function)
        for triple in triples(place)
    ]


def public_methods(kind: type, leave_out: Iterable[str] = ()) -> dict[str, Callable[..., Any]]:
    """Those with parameters, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name in dir(kind):
        function = inspect.getattr_static(kind, name)
        if name.startswith("_") or name in leave_out or not inspect.isfunction(function):
            continue
        if len(inspect.signature(function).parameters) > 1:
            found[name] = function
    return found
