"""What a driver of one of the SDK's cores owns, over a Network port: streams, calls, their order.

Owns the way of a message to the core and of a request to its stream. Decides nothing: what is
sent, sent again or given up is the core's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from tidelog.chaos.workloads.cluster_client import ClusterClient
from tidelog.client.wire import calls as wire
from tidelog.ports import TaskScope
from tidelog.ports.network import Stream
from tidelog.wire.errors import ErrorCode, TidelogError

REQUEST_MS: Final = 3_000
CALL_MS: Final = 1_500

Message = TypeVar("Message")


class Opening(Protocol):
    """The effect by which a core wants a stream."""

    @property
    def broker_id(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def address(self) -> str: ...


class EngineDriver(ABC, Generic[Message]):
    """One core of the SDK, on one simulated process."""

    method: ClassVar[str]
    """Of its streams."""
    verb: ClassVar[str]
    tried: ClassVar[str]
    """In errors, before the broker's id."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self.messages: list[Message] = []
        self.news = asyncio.Event()
        self.scope: TaskScope
        self._streams: dict[int, Stream] = {}
        self._queues: dict[int, list[bytes]] = {}
        """By stream, requests that are not handed to the network yet."""
        self._sending: dict[int, asyncio.Event] = {}

    @abstractmethod
    def opened(self, effect: Opening) -> Message:
        """The stream can be used."""

    @abstractmethod
    def unreached(self, effect: Opening, error: TidelogError) -> Message:
        """There is no stream."""

    @abstractmethod
    def broken(self, effect: Opening, error: TidelogError) -> Message:
        """The stream is gone."""

    @abstractmethod
    def answered(self, effect: Opening, data: bytes) -> Message:
        """The broker said something on it."""

    def put(self, message: Message) -> None:
        """For the core's next step."""
        self.messages.append(message)
        self.news.set()

    async def wait_news(self, left_s: float | None) -> None:
        """Until there is a message, or the time is over; None: it never is."""
        if left_s is None:
            await self.news.wait()
        else:
            timer = asyncio.get_running_loop().call_later(left_s, self.news.set)
            try:
                await self.news.wait()
            finally:
                timer.cancel()
        self.news.clear()

    def take_messages(self) -> list[Message]:
        """All that came, once."""
        messages, self.messages = self.messages, []
        return messages

    def send_on(self, stream: int, request: bytes) -> None:
        """Behind what is queued there; a stream that broke has told so."""
        queue = self._queues.get(stream)
        if queue is not None:
            queue.append(request)
            self._sending[stream].set()

    def break_stream(self, number: int) -> None:
        """What it still says is ignored."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.cancel()

    async def ask(
        self, addresses: Iterable[str], method: str, request: bytes
    ) -> bytes | TidelogError:
        """The first that answers, or why the last one did not."""
        error: TidelogError | None = None
        for address in addresses:
            try:
                return await self.client.ports.network.call(
                    address, method, request, timeout_ms=CALL_MS
                )
            except TidelogError as found:
                error = found
        assert error is not None, "there is a broker to ask"
        return error

    async def live(self, effect: Opening) -> None:
        """Reach the broker with a harmless call first: then nothing sent means nothing stored."""
        network, number = self.client.ports.network, effect.stream
        try:
            request = wire.metadata_request(())
            await network.call(effect.address, wire.GET_METADATA, request, timeout_ms=REQUEST_MS)
            stream = network.stream(effect.address, self.method)
        except TidelogError as error:
            self.put(self.unreached(effect, error))
            return
        self._streams[number] = stream
        self._queues[number] = []
        self._sending[number] = asyncio.Event()
        self.put(self.opened(effect))
        self.scope.start(self._write(number, stream), name=f"{self.verb} requests")
        await self._read(effect, stream)

    async def _write(self, number: int, stream: Stream) -> None:
        queue, sending = self._queues[number], self._sending[number]
        try:
            while number in self._queues:
                while queue:
                    await stream.send(queue.pop(0))
                sending.clear()
                if not queue:
                    await sending.wait()
        except TidelogError:
            # The reader is told of the break as well, and tells the core.
            return

    async def _read(self, effect: Opening, stream: Stream) -> None:
        error = TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"{self.tried} broker {effect.broker_id}",
            happened="the broker ended the stream",
        )
        try:
            while (data := await stream.receive()) is not None:
                self.put(self.answered(effect, data))
        except TidelogError as found:
            error = found
        stream.cancel()
        self._streams.pop(effect.stream, None)
        self._queues.pop(effect.stream, None)
        self._sending.pop(effect.stream).set()
        self.put(self.broken(effect, error))
