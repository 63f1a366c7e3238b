"""Long polls of one connection share what it may leave unread: the more at once, the less each.

A caller can ask for hundreds of large answers at once and read none of them. That there is too much
shows only when answers are made, and by then all of them are being read from disk. So each call is
given its share of the connection's bound when it comes in; whole batches may exceed it, as always.
Streams need none of it: what they send is paid for by credit, and waits for the reader.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.ports import Method, RequestContext, UnaryHandler, UnaryMethod
from tidelog.v1 import fetch_pb2

FETCH: Final = "/tidelog.v1.FetchService/Fetch"
SHARE_BYTES_MIN: Final = 64 * 1024


def with_fetch_share(
    methods: Mapping[str, Method], *, connection_bytes: int, default_bytes: int
) -> dict[str, Method]:
    """The same methods. `default_bytes`: of a call that names no size."""
    found = dict(methods)
    method = found.get(FETCH)
    if isinstance(method, UnaryMethod):
        shares = FetchShares(connection_bytes, default_bytes)
        found[FETCH] = UnaryMethod(shares.around(method.handler))
    return found


class FetchShares:
    """Counts the calls in progress of each connection."""

    def __init__(self, connection_bytes: int, default_bytes: int) -> None:
        self._connection_bytes = connection_bytes
        self._default_bytes = default_bytes
        self._in_progress: dict[str, int] = {}

    def around(self, handler: UnaryHandler) -> UnaryHandler:
        """The handler, asked for no more than the call's share."""

        async def shared(context: RequestContext, message: bytes) -> bytes:
            count = self._in_progress.get(context.address, 0) + 1
            self._in_progress[context.address] = count
            try:
                return await handler(context, self._cut(message, count))
            finally:
                self._leave(context.address)

        return shared

    def _cut(self, message: bytes, count: int) -> bytes:
        if count == 1:
            return message
        share = max(SHARE_BYTES_MIN, self._connection_bytes // count)
        request = fetch_pb2.FetchRequest.FromString(message)
        if (request.max_bytes or self._default_bytes) <= share:
            return message
        request.max_bytes = share
        return request.SerializeToString()

    def _leave(self, address: str) -> None:
        left = self._in_progress[address] - 1
        assert left >= 0, "a call ends once"
        if left:
            self._in_progress[address] = left
        else:
            del self._in_progress[address]
