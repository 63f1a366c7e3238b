"""Whether a history of concurrent operations could have happened one after another.

Theory of operation. Each operation has to take effect at one instant between its call and its
return; an operation of unknown outcome at any instant after its call, or never. The search of Wing
and Gong, with the memory of Lowe: depth first through the orders that the times allow, from each
set of operations placed and state of the object only once. Objects are independent, so each key is
searched alone. The cost is bounded: a search that exceeds it says so, and is not a verdict.

Pure; for simulated and live histories. It must never know how the object is built.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import Outcome

Value = str | int | None | tuple[str, ...]
State = Value

CONFIGURATIONS_MAX: Final = 400_000
"""Sets of placed operations with a state; beyond it the search gives up."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a client, and what came of it."""

    client: str
    key: str
    name: str
    """read, write, compare_and_set, append, create: whatever the model knows."""
    argument: Value = None
    expected: Value = None
    """Of compare_and_set."""
    began_ns: int
    ended_ns: int
    """Of no meaning if the outcome is indeterminate."""
    outcome: Outcome
    result: Value = None
    """Of an acknowledged one."""


Model = Callable[[State, Operation], tuple[bool, State]]
"""Whether the operation can give its result in this state, and the state after it."""


class Verdict(enum.Enum):
    """How a search ended."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    TOO_COSTLY = "too_costly"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one key."""

    key: str
    verdict: Verdict
    configurations: int
    stuck: tuple[Operation, ...] = ()
    """If violated: the operations of which none could come next, where the search came furthest."""

    def __str__(self) -> str:
        names = "; ".join(describe(operation) for operation in self.stuck[:4])
        return f"{self.key}: after the longest order none of these can be next: {names}"


def describe(operation: Operation) -> str:
    """For messages."""
    call = f"{operation.client} {operation.name}({operation.argument!r}"
    if operation.expected is not None:
        call += f", expected {operation.expected!r}"
    if operation.outcome is Outcome.INDETERMINATE:
        return f"{call}) began {operation.began_ns}, unknown"
    return f"{call}) = {operation.result!r} in {operation.began_ns}..{operation.ended_ns}"


def register_model(state: State, operation: Operation) -> tuple[bool, State]:
    """read, write, compare_and_set (its result is what it found), append, create (if absent).

    An append returns the whole new value, a create whether there was nothing before.
    """
    is_known = operation.outcome is Outcome.ACKNOWLEDGED
    match operation.name:
        case "read":
            return not is_known or operation.result == state, state
        case "write":
            return True, operation.argument
        case "compare_and_set":
            after = operation.argument if state == operation.expected else state
            return not is_known or operation.result == state, after
        case "append":
            before = state if isinstance(state, tuple) else ()
            appended = (*before, str(operation.argument))
            return not is_known or operation.result == appended, appended
        case "create":
            after = operation.argument if state is None else state
            return not is_known or operation.result == int(state is None), after
        case _:
            raise AssertionError(f"the model knows no {operation.name}")


def check_history(
    operations: Iterable[Operation],
    *,
    model: Model = register_model,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> list[Judgement]:
    """One judgement for each key, in the order of first call. Refused operations do not matter."""
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.outcome is not Outcome.FAILED:
            by_key.setdefault(operation.key, []).append(operation)
    return [
        check_key(key, part, model=model, configurations_max=configurations_max)
        for key, part in by_key.items()
    ]


def check_key(
    key: str,
    operations: list[Operation],
    *,
    model: Model = register_model,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Judgement:
    """Search one object."""
    search = _Search(sorted(filter(_matters, operations), key=_began), model, configurations_max)
    verdict = search.run()
    stuck = search.stuck() if verdict is Verdict.VIOLATED else ()
    return Judgement(key=key, verdict=verdict, configurations=len(search.visited), stuck=stuck)


def _began(operation: Operation) -> int:
    return operation.began_ns


def _matters(operation: Operation) -> bool:
    """A read of which nobody saw the result says nothing."""
    return operation.outcome is Outcome.ACKNOWLEDGED or operation.name != "read"


class _Search:
    """Operations are bits, in the order of their calls."""

    def __init__(self, operations: list[Operation], model: Model, limit: int) -> None:
        self._operations = operations
        self._model = model
        self._limit = limit
        self._needed = 0
        for position, operation in enumerate(operations):
            if operation.outcome is Outcome.ACKNOWLEDGED:
                self._needed |= 1 << position
        self.visited: set[tuple[int, State]] = set()
        self._furthest = (-1, 0)

    def run(self) -> Verdict:
        """Depth first; a configuration is entered once."""
        stack: list[tuple[int, State]] = [(0, None)]
        while stack:
            placed, state = stack.pop()
            if placed & self._needed == self._needed:
                return Verdict.LINEARIZABLE
            if (placed, state) in self.visited:
                continue
            if len(self.visited) >= self._limit:
                return Verdict.TOO_COSTLY
            self.visited.add((placed, state))
            count = (placed & self._needed).bit_count()
            if count > self._furthest[0]:
                self._furthest = (count, placed)
            stack.extend(self._successors(placed, state))
        return Verdict.VIOLATED

    def stuck(self) -> tuple[Operation, ...]:
        """What could not go on."""
        return tuple(self._operations[position] for position in self._candidates(self._furthest[1]))

    def _successors(self, placed: int, state: State) -> list[tuple[int, State]]:
        """Last what is tried first: known operations in the order of their calls."""
        known: list[tuple[int, State]] = []
        unknown: list[tuple[int, State]] = []
        for position in self._candidates(placed):
            operation = self._operations[position]
            is_possible, after = self._model(state, operation)
            if not is_possible:
                continue
            if operation.outcome is Outcome.ACKNOWLEDGED:
                known.append((placed | 1 << position, after))
            elif after != state:
                unknown.append((placed | 1 << position, after))
        return unknown + known[::-1]

    def _candidates(self, placed: int) -> list[int]:
        """Those not placed yet that no other one, not placed and returned, has to precede."""
        found: list[int] = []
        first_return_ns: int | None = None
        first_free = (~placed & (placed + 1)).bit_length() - 1
        for position in range(first_free, len(self._operations)):
            operation = self._operations[position]
            if first_return_ns is not None and operation.began_ns > first_return_ns:
                break
            if placed >> position & 1:
                continue
            found.append(position)
            if operation.outcome is Outcome.ACKNOWLEDGED and (
                first_return_ns is None or operation.ended_ns < first_return_ns
            ):
                first_return_ns = operation.ended_ns
        return found
