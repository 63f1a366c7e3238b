"""Room for what is made of one message: taken once it is known how much that is, and before any of
it is made. The message's own bytes are counted by the network port itself.
"""

from typing import Final, Protocol


class RequestRoom(Protocol):
    """Of one call. The network port gives back what was taken: a call's once its handler is done,
    a stream's once the message is let go.
    """

    def take(self, more_bytes: int) -> None:
        """Count so much more; a call that finds no room is refused RESOURCE_EXHAUSTED."""
        ...


class _Unbounded:
    """Nobody counts: in the simulator, in tests, and within a node."""

    def take(self, more_bytes: int) -> None:
        del more_bytes


NO_REQUEST_LIMIT: Final[RequestRoom] = _Unbounded()
