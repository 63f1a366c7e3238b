"""Clients of the suite: concurrent commands and linearizable reads, written down as they ended.

A client has one operation at a time and waits for it only so long; what it then does not know is
indeterminate. Every value is written once. It must never retry an operation.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.linearizability import Operation, Value
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.sim.quorum.key_value import Command, encode_command

_TIMEOUT_NS: Final = (300 * MS, 3_000 * MS)
_THINK_NS: Final = 70 * MS
_OUTCOMES: Final = {
    "ok": Outcome.ACKNOWLEDGED,
    "failed": Outcome.FAILED,
    "unknown": Outcome.INDETERMINATE,
}


class Agenda(Protocol):
    """Virtual time."""

    @property
    def now_ns(self) -> int:
        """Of this moment."""
        ...

    def after(self, delay_ns: int, callback: Callable[..., None], *arguments: object) -> None:
        """Call it then."""
        ...


class Server(Protocol):
    """A node, as its clients see it."""

    def propose(self, data: bytes, done: Callable[[str, Value], None]) -> None:
        """A command."""
        ...

    def read(self, key: str, done: Callable[[str, Value], None]) -> None:
        """A linearizable read."""
        ...


class Client:
    """One of several."""

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        random: SeededRandom,
        keys: int,
        choose: Callable[[], Server | None],
    ) -> None:
        self._name = name
        self._agenda = agenda
        self._random = random
        self._keys = keys
        self._choose = choose
        self._made = 0
        self._known: dict[str, Value] = {}
        self._current: Operation | None = None
        self.is_stopped = False
        self.operations: list[Operation] = []

    def start(self) -> None:
        """Begin after a while."""
        self._agenda.after(int(self._random.unit() * 500 * MS), self._next)

    def _next(self) -> None:
        if self.is_stopped:
            return
        server = self._choose()
        if server is None:
            self._think()
            return
        self._made += 1
        operation = self._draw()
        self._current = operation
        timeout_ns = self._random.between(*_TIMEOUT_NS)
        self._agenda.after(timeout_ns, self._end, operation, "unknown", None)

        def done(outcome: str, result: Value) -> None:
            self._end(operation, outcome, result)

        if operation.name == "read":
            server.read(operation.key, done)
        else:
            expected = operation.expected
            assert expected is None or isinstance(expected, str), "registers hold texts"
            command = Command(operation.name, operation.key, str(operation.argument), expected)
            server.propose(encode_command(command), done)

    def _draw(self) -> Operation:
        random = self._random
        number = random.below(self._keys)
        # The last key is a list, the others are registers.
        key, is_list = f"k{number}", number == self._keys - 1
        name, argument, expected = "read", None, None
        roll = random.unit()
        if roll > 0.35:
            argument = f"{self._name}.{self._made}"
            name = "append" if is_list else "write"
            known = self._known.get(key)
            if not is_list and roll > 0.65 and isinstance(known, str):
                name, expected = "compare_and_set", known
        return Operation(
            client=self._name,
            key=key,
            name=name,
            argument=argument,
            expected=expected,
            began_ns=self._agenda.now_ns,
            ended_ns=0,
            outcome=Outcome.INDETERMINATE,
        )

    def _end(self, operation: Operation, outcome: str, result: Value) -> None:
        if self._current is not operation:
            return
        self._current = None
        ended = msgspec.structs.replace(
            operation, ended_ns=self._agenda.now_ns, outcome=_OUTCOMES[outcome], result=result
        )
        self.operations.append(ended)
        if ended.outcome is Outcome.ACKNOWLEDGED:
            is_write = operation.name == "write"
            self._known[operation.key] = operation.argument if is_write else result
        self._think()

    def _think(self) -> None:
        """The longer the run is already, the more slowly: what is rare costs no traffic."""
        patience = 1 + len(self.operations) // 20
        self._agenda.after(int(MS + self._random.unit() * _THINK_NS * patience), self._next)

    def settle(self) -> None:
        """The run is over: what never ended is indeterminate."""
        if self._current is not None:
            self.operations.append(self._current)
            self._current = None
