"""Both drivers behind one set of names, so that one test tells what both must do.

The asyncio clients run on a loop in a thread of their own; each call waits for its coroutine.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import HANG_SECONDS
from tidelog.client import AdminClient, Consumer, Producer, Table
from tidelog.client.aio import (
    AsyncAdminClient,
    AsyncConsumer,
    AsyncProducer,
    AsyncSendBatchFuture,
    AsyncSendFuture,
    AsyncTable,
    AsyncTransaction,
)
from tidelog.client.errors import TidelogError

RENAMED = {"poll": "getmany", "poll_batches": "get_batches", "poll_arrow": "get_arrow"}


class LoopThread:
    """An event loop that runs until it is closed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # One that a test leaves open must not keep the process.
        self._thread = threading.Thread(target=self.loop.run_forever, name="test loop", daemon=True)
        self._thread.start()

    def run(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The call on the loop, and what it awaits, if it gives something to await."""

        async def work() -> Any:
            found = call(*arguments, **named)
            if inspect.iscoroutine(found):
                return await found
            return found

        if self.loop.is_closed():
            return asyncio.run(work())
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(HANG_SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(HANG_SECONDS)
        self.loop.close()


class Waited:
    """A future of the asyncio producer, waited for from another thread."""

    def __init__(self, thread: LoopThread, future: Any) -> None:
        self._thread = thread
        self._future = future

    def get(self, timeout: float | None = None) -> Any:
        async def wait(future: Awaitable[Any]) -> Any:
            async with asyncio.timeout(timeout or None):
                return await future

        return self._thread.run(wait, self._future)

    def exception(self, timeout: float | None = 0) -> TidelogError | None:
        try:
            self.get(timeout)
        except TidelogError as error:
            return error
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._future, name)

    def __len__(self) -> int:
        return len(self._future)


class Blocking:
    """An asyncio client with the synchronous one's ways."""

    kind: type[Any]
    _thread: LoopThread
    _is_guest = False

    def __init__(self, *arguments: Any, on_loop_of: "Blocking | None" = None, **named: Any) -> None:
        self._client = self.kind(*arguments, **named)
        self._is_guest = on_loop_of is not None
        self._thread = LoopThread() if on_loop_of is None else on_loop_of._thread

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, RENAMED.get(name, name))
        if not callable(method):
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            for key, value in named.items():
                if isinstance(value, Blocking):
                    named[key] = value._client
            found = self._thread.run(method, *arguments, **named)
            if isinstance(found, AsyncTransaction):
                return BlockingTransaction(found, self._thread)
            is_future = isinstance(found, AsyncSendFuture | AsyncSendBatchFuture)
            return Waited(self._thread, found) if is_future else found

        return call

    def close(self, *arguments: Any) -> None:
        if self._thread.loop.is_closed():
            return
        try:
            self._thread.run(self._client.close, *arguments)
        finally:
            if not self._is_guest:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BlockingTransaction(Blocking):
    """A block of an asyncio producer."""

    def __init__(self, client: AsyncTransaction, thread: LoopThread) -> None:
        self._client = client
        self._thread = thread

    def __enter__(self) -> Self:
        self._thread.run(self._client.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.run(self._client.__aexit__, kind, error, trace)


class BlockingConsumer(Blocking):
    kind = AsyncConsumer

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._thread.run(self._client.__anext__)
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        return self._thread.run(self._client.__anext__)


class BlockingProducer(Blocking):
    kind = AsyncProducer


class BlockingAdmin(Blocking):
    kind = AsyncAdminClient


class BlockingTable(Blocking):
    kind = AsyncTable

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._thread = LoopThread()
        self._client = self._thread.run(self.kind, *arguments, **named)

    def __enter__(self) -> Self:
        try:
            self._thread.run(self._client.__aenter__)
        except BaseException:
            self._thread.close()
            raise
        return self

    def __getitem__(self, key: Any) -> Any:
        return self._thread.run(self._client.__getitem__, key)

    def __len__(self) -> int:
        return len(self._client)

    @property
    def offsets(self) -> Any:
        return self._client.offsets


class Clients:
    """The clients of one driver."""

    def __init__(self, driver: str) -> None:
        self.driver = driver
        is_async = driver == "asyncio"
        self.Consumer: type[Any] = BlockingConsumer if is_async else Consumer
        self.Producer: type[Any] = BlockingProducer if is_async else Producer
        self.Table: type[Any] = BlockingTable if is_async else Table
        self.AdminClient: type[Any] = BlockingAdmin if is_async else AdminClient

    def __repr__(self) -> str:
        return self.driver


BOTH = [Clients("threads"), Clients("asyncio")]
