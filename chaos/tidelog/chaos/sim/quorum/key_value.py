"""The state machine of the suite: keys with values, small enough to be judged whole.

Owns the encoding of its commands and states. It must never draw or look at time.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.linearizability import Value
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, Snapshot


class Command(msgspec.Struct, frozen=True, array_like=True):
    """One change: name, key, argument, expected value."""

    name: str
    key: str
    argument: str
    expected: str | None = None


class _State(msgspec.Struct, array_like=True):
    applied_index: int
    digest: int
    values: dict[str, str | tuple[str, ...]]


_ENCODER: Final = msgspec.msgpack.Encoder()
_COMMANDS: Final = msgspec.msgpack.Decoder(Command)
_STATES: Final = msgspec.msgpack.Decoder(_State)


def encode_command(command: Command) -> bytes:
    """What an entry holds."""
    return _ENCODER.encode(command)


class KeyValue:
    """One member's copy; fulfils the runner's StateMachine as well."""

    def __init__(self, on_applied: Callable[[Entry, Value], None] | None = None) -> None:
        self.values: dict[str, str | tuple[str, ...]] = {}
        self.applied_index = 0
        self.digest = 0
        """Of the order of everything that was applied."""
        self.on_applied = on_applied
        self.on_restored: Callable[[Snapshot], None] | None = None

    def apply(self, entries: Sequence[Entry]) -> None:
        """Committed entries of every kind."""
        for entry in entries:
            result: Value = None
            if entry.kind is EntryKind.COMMAND:
                result = self._execute(_COMMANDS.decode(entry.data))
            self.digest = zlib.crc32(entry.data, self.digest ^ (entry.index * 31 + entry.term))
            self.applied_index = entry.index
            if self.on_applied is not None:
                self.on_applied(entry, result)

    def _execute(self, command: Command) -> Value:
        values, key = self.values, command.key
        found = values.get(key)
        match command.name:
            case "write":
                values[key] = command.argument
                return None
            case "compare_and_set":
                if found == command.expected:
                    values[key] = command.argument
                return found
            case "append":
                appended = (*(found if isinstance(found, tuple) else ()), command.argument)
                values[key] = appended
                return appended
            case "create":
                if found is None:
                    values[key] = command.argument
                return int(found is None)
            case _:
                raise AssertionError(f"the state machine knows no {command.name}")

    def capture(self) -> Callable[[], Sequence[bytes]]:
        """The state as it is now."""
        state = _State(self.applied_index, self.digest, dict(self.values))
        return lambda: [_ENCODER.encode(state)]

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """Replace everything."""
        found = _STATES.decode(b"".join(bytes(piece) for piece in state))
        self.applied_index, self.digest = found.applied_index, found.digest
        self.values = found.values
        if self.on_restored is not None:
            self.on_restored(snapshot)
