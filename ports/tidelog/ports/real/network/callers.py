"""What each connection of a listener has sent, beside what has come out of it as messages.

Pure. gRPC shows a message once it is whole; what it holds of unfinished ones shows nowhere. The
system tells how many bytes a connection has received, and handlers how many came out as messages:
the difference is what is unfinished, but for envelopes, for which a generous part is taken off. So
whoever begins messages and never ends them is known, and how much that is.

A connection whose last call is over holds nothing: the count begins anew there, and so errors do
not add up. What it receives from then on without beginning a call belongs to headers that do not
end: HTTP/2 puts nothing between the parts of a header block, so that none is unfinished once a call
has begun. gRPC keeps a part of them for as long as the connection lasts.

The loop counts what comes out, the thread of `network.watch` what has been received: a lock keeps
each step whole, or a sum that both change would lose one of them.
"""

import threading
from collections.abc import Collection
from typing import Final

import msgspec

from tidelog.ports.network import ListenerLimits
from tidelog.ports.real.network.answers import Stalled

CALL_OVERHEAD_BYTES: Final = 2 * 1024
"""Headers of a call."""
MESSAGE_OVERHEAD_BYTES: Final = 64
MESSAGE_OVERHEAD_PART: Final = 32
"""One byte in so many: frames of HTTP/2, records of TLS."""
QUIET_OVERHEAD_BYTES_PER_S: Final = 64
"""Pings, windows."""
START_OVERHEAD_BYTES: Final = 32 * 1024
"""The handshake of TLS with its certificates, settings of HTTP/2."""
UNFINISHED_BYTES_MIN: Final = 64 * 1024
"""Less than that is what gRPC takes in of every stream; it is not looked at."""

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000


class Caller(msgspec.Struct):
    """One connection."""

    calls: int = 0
    """In progress."""
    delivered_bytes: int = 0
    expected_bytes: int = START_OVERHEAD_BYTES
    """What may have been received for what came out, envelopes included."""
    base_bytes: int = 0
    """What had been received when the count began."""
    base_ns: int = 0
    delivered_ns: int = 0
    """When a message came out last, or a call began that is the only one."""
    unfinished_bytes: int = 0
    """As of the last look."""
    is_idle: bool = True
    """No call was begun since the count began."""


class Callers:
    """Of one listener."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._callers: dict[str, Caller] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._callers)

    @property
    def unfinished_bytes(self) -> int:
        """Of all of them, as of the last look."""
        with self._lock:
            return sum(each.unfinished_bytes for each in self._callers.values())

    def begin(self, connection: str, now_ns: int) -> None:
        """A call has begun."""
        with self._lock:
            caller = self._callers.get(connection)
            if caller is None:
                caller = self._callers[connection] = Caller(base_ns=now_ns)
            if not caller.calls:
                caller.delivered_ns = now_ns
            caller.is_idle = False
            caller.calls += 1
            caller.expected_bytes += CALL_OVERHEAD_BYTES

    def delivered(self, connection: str, length_bytes: int, now_ns: int) -> None:
        """A message came out whole."""
        with self._lock:
            caller = self._callers.get(connection)
            if caller is None:
                return
            caller.delivered_ns = now_ns
            caller.delivered_bytes += length_bytes
            caller.expected_bytes += (
                length_bytes + length_bytes // MESSAGE_OVERHEAD_PART + MESSAGE_OVERHEAD_BYTES
            )

    def end(self, connection: str) -> None:
        """A call is over."""
        with self._lock:
            caller = self._callers.get(connection)
            if caller is not None:
                caller.calls -= 1
                assert caller.calls >= 0, "a call ends once"
                if not caller.calls:
                    caller.unfinished_bytes = 0

    def look(self, connection: str, received_bytes: int, now_ns: int) -> None:
        """So much has been received over it since it was made."""
        with self._lock:
            caller = self._callers.get(connection)
            if caller is None:
                caller = self._callers[connection] = Caller(base_ns=now_ns, delivered_ns=now_ns)
            if not caller.calls and not caller.is_idle:
                caller.base_bytes, caller.base_ns = received_bytes, now_ns
                caller.delivered_bytes = caller.unfinished_bytes = 0
                caller.expected_bytes = START_OVERHEAD_BYTES
                caller.delivered_ns, caller.is_idle = now_ns, True
                return
            quiet = (now_ns - caller.base_ns) // NS_PER_S * QUIET_OVERHEAD_BYTES_PER_S
            expected = caller.base_bytes + caller.expected_bytes + quiet
            caller.unfinished_bytes = max(0, received_bytes - expected)

    def keep(self, connections: Collection[str], begun_ns: int) -> None:
        """Of those that a look found gone which began then gRPC holds nothing: a caller that was
        hung up on is not counted again. Forget them once their calls are over.
        """
        with self._lock:
            for connection, caller in list(self._callers.items()):
                # Who came after the look began may have been missed by it.
                if connection in connections or caller.base_ns >= begun_ns:
                    continue
                caller.unfinished_bytes = 0
                if not caller.calls:
                    del self._callers[connection]

    def stalled(self, now_ns: int, *, is_timed: bool = True) -> list[Stalled]:
        """Whom to hang up on: unfinished for too long, if time is looked at, and the largest if
        all are too much.
        """
        with self._lock:
            held = [
                (caller.unfinished_bytes, connection, (now_ns - caller.delivered_ns) // NS_PER_MS)
                for connection, caller in self._callers.items()
                if caller.unfinished_bytes >= UNFINISHED_BYTES_MIN
            ]
        limit_ms = self._limits.message_ms_max
        found = [
            Stalled(
                connection,
                "message_ms_max",
                f"{size_bytes} bytes of messages or headers were not finished in {quiet_ms} ms",
            )
            for size_bytes, connection, quiet_ms in held
            if is_timed and quiet_ms >= limit_ms
        ]
        late = {each.connection for each in found}
        left = sorted((each for each in held if each[1] not in late), reverse=True)
        left_bytes = sum(size_bytes for size_bytes, _, _ in left)
        for size_bytes, connection, _ in left:
            if left_bytes <= self._limits.request_memory_bytes:
                break
            happened = (
                f"{size_bytes} bytes of messages or headers are not finished, {left_bytes} of all"
            )
            found.append(Stalled(connection, "request_memory_bytes", happened))
            left_bytes -= size_bytes
        return found
