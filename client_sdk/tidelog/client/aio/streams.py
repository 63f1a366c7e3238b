"""One bidirectional stream on grpc.aio: a queue towards the broker, answers one by one.

Owns the writing of one stream. It must never write two messages at once: grpc.aio forbids it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.shared import lifecycle
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError


class AsyncStream:
    """Open from construction until it breaks or is cancelled."""

    def __init__(self, connections: AsyncConnections, address: str, method: str) -> None:
        self._address = address
        self._connections = connections
        self._call = connections.stream(address, method)
        lifecycle.hold(self._call)
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, request: bytes) -> None:
        """Queue a request; the engine bounds how many there are."""
        self._requests.put_nowait(request)

    def cancel(self) -> None:
        """End it now."""
        self._call.cancel()

    async def answers(self, scope: TaskScope, *, tried: str) -> AsyncIterator[bytes]:
        """What comes, until the stream ends: then a typed error is raised."""
        import grpc
        from grpc import aio

        writer = scope.start(self._write(), name=f"requests to {self._address}")
        try:
            while True:
                answer: Any = await self._call.read()
                if answer is aio.EOF:
                    await self._raise_end()
                    break
                yield answer
        except grpc.RpcError as error:
            failure = await self._connections.error_of(error, address=self._address, tried=tried)
            raise failure from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Only the call was cancelled: the engine has given the stream up.
        finally:
            writer.cancel()
            self._call.cancel()
            lifecycle.let_go(self._call)
        raise TidelogError(
            ErrorCode.UNAVAILABLE, tried=tried, happened=f"{self._address}: the stream ended"
        )

    async def _raise_end(self) -> None:
        """A broker that ended the stream may have said why."""
        from grpc import aio

        status = await self._call.code()
        if status.value[0] != 0:
            raise aio.AioRpcError(
                status,
                await self._call.initial_metadata(),
                await self._call.trailing_metadata(),
                await self._call.details(),
            )

    async def _write(self) -> None:
        import grpc

        try:
            while True:
                await self._call.write(await self._requests.get())
        except (grpc.RpcError, asyncio.InvalidStateError):
            # Whoever reads the stream is told why.
            return
