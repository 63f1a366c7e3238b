"""Quotas around the methods that produce and fetch: counted, told by throttle_ms, then by delay.

Stands outside of the handlers, which know nothing of it: a request is counted by its bytes when it
comes, an answer when it goes. Administration is never held back: it is how a quota is lifted.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidelog.broker.services.middleware.metering import holding
from tidelog.broker.services.middleware.quota import (
    DELAYED_BYTES_MAX,
    DELAYED_CALLS_MAX,
    LOOK_MS,
    ClientQuota,
    Quotas,
    Use,
)
from tidelog.ports import (
    Clock,
    Method,
    RequestContext,
    Stream,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.v1 import fetch_pb2, groups_pb2, produce_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

Tell = Callable[[bytes, int], bytes]
"""The answer with throttle_ms in it."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How a method is counted."""

    produces: bool = False
    fetches: bool = False
    tell: Tell | None = None
    """None: its answer has no field for it; the client is only held back."""

    def of_request(self, message: bytes) -> Use:
        return Use(requests=1, produce_bytes=len(message) if self.produces else 0)

    def of_answer(self, answer: bytes) -> Use:
        return Use(fetch_bytes=len(answer) if self.fetches else 0)


def _tell_produce(answer: bytes, throttle_ms: int) -> bytes:
    # Fields that come later replace those before: nothing is parsed.
    return answer + produce_pb2.ProduceResponse(throttle_ms=throttle_ms).SerializeToString()


def _tell_fetch(answer: bytes, throttle_ms: int) -> bytes:
    return answer + fetch_pb2.FetchResponse(throttle_ms=throttle_ms).SerializeToString()


def _tell_commit(answer: bytes, throttle_ms: int) -> bytes:
    return answer + groups_pb2.CommitOffsetsResponse(throttle_ms=throttle_ms).SerializeToString()


def _tell_produce_stream(answer: bytes, throttle_ms: int) -> bytes:
    message = produce_pb2.ProduceStreamResponse.FromString(answer)
    if not message.HasField("response"):
        return answer
    message.response.throttle_ms = throttle_ms
    return message.SerializeToString()


_KINDS: Final[Mapping[str, _Kind]] = {
    "/tidelog.v1.ProduceService/Produce": _Kind(produces=True, tell=_tell_produce),
    "/tidelog.v1.ProduceService/ProduceStream": _Kind(produces=True, tell=_tell_produce_stream),
    "/tidelog.v1.FetchService/Fetch": _Kind(fetches=True, tell=_tell_fetch),
    "/tidelog.v1.FetchService/FetchStream": _Kind(fetches=True),
    "/tidelog.v1.RecordsService/ProduceRecords": _Kind(produces=True),
    "/tidelog.v1.RecordsService/FetchRecords": _Kind(fetches=True),
    "/tidelog.v1.SubscribeService/Subscribe": _Kind(fetches=True),
    "/tidelog.v1.GroupService/CommitOffsets": _Kind(tell=_tell_commit),
    "/tidelog.v1.GroupService/FetchOffsets": _Kind(),
    "/tidelog.v1.MetadataService/GetMetadata": _Kind(),
    "/tidelog.v1.MetadataService/ListOffsets": _Kind(),
}


def with_quotas(methods: Mapping[str, Method], quotas: Quotas, clock: Clock) -> dict[str, Method]:
    """The same methods; those that move records behind the quotas."""
    found = dict(methods)
    for name, kind in _KINDS.items():
        method = found.get(name)
        if isinstance(method, UnaryMethod):
            found[name] = UnaryMethod(_limited(name, method.handler, kind, quotas, clock))
        elif isinstance(method, StreamMethod):
            found[name] = StreamMethod(_limited_stream(method.handler, kind, quotas, clock))
    return found


def _limited(
    name: str, handler: UnaryHandler, kind: _Kind, quotas: Quotas, clock: Clock
) -> UnaryHandler:
    async def limited(context: RequestContext, message: bytes) -> bytes:
        client = quotas.of(context.client_id, clock.monotonic_ns())
        if client is not None and client.debt_ms(clock.monotonic_ns()):
            await _wait_turn(name, context.client_id, client, len(message), quotas, clock)
            client = quotas.of(context.client_id, clock.monotonic_ns())
        if client is None:
            return await handler(context, message)
        client.take(kind.of_request(message), clock.monotonic_ns())
        answer = await handler(context, message)
        client.take(kind.of_answer(answer), clock.monotonic_ns())
        throttle_ms = client.debt_ms(clock.monotonic_ns())
        return answer if not throttle_ms or kind.tell is None else kind.tell(answer, throttle_ms)

    return limited


async def _wait_turn(
    name: str, client_id: str, client: ClientQuota, size_bytes: int, quotas: Quotas, clock: Clock
) -> None:
    """Hold a call back that came too early, or refuse it if too much waits already."""
    calls, held_bytes = client.delayed_calls, client.delayed_bytes
    if calls >= DELAYED_CALLS_MAX or (calls and held_bytes + size_bytes > DELAYED_BYTES_MAX):
        quotas.refused_count += 1
        raise TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=f"call {name}",
            happened=f"client id `{client_id}` is over its quota, and {calls} of its calls with "
            f"{held_bytes} bytes wait already: at most {DELAYED_CALLS_MAX} may, with "
            f"{DELAYED_BYTES_MAX} bytes",
            hint="Wait for throttle_ms before the next request, or raise the quota.",
        )
    client.delayed_calls += 1
    client.delayed_bytes += size_bytes
    try:
        with holding(clock):
            await _pay(client_id, quotas, clock)
    finally:
        client.delayed_calls -= 1
        client.delayed_bytes -= size_bytes


async def _pay(client_id: str, quotas: Quotas, clock: Clock) -> None:
    """Until the client owes nothing, or its quota is lifted. Whoever waited beside may have used up
    the room again."""
    quotas.delayed_count += 1
    while delay_ms := quotas.debt_ms(client_id, clock.monotonic_ns()):
        await clock.sleep(min(delay_ms, LOOK_MS))


def _limited_stream(
    handler: StreamHandler, kind: _Kind, quotas: Quotas, clock: Clock
) -> StreamHandler:
    async def limited(context: RequestContext, stream: Stream) -> None:
        asked = context
        if kind.fetches:
            room = _PaidRoom(context, quotas, clock)
            asked = msgspec.structs.replace(context, answer_room=room)
        await handler(asked, _LimitedStream(context.client_id, stream, kind, quotas, clock))

    return limited


class _PaidRoom:
    """Room for an answer once the client owes nothing: who waits for that holds no memory."""

    def __init__(self, context: RequestContext, quotas: Quotas, clock: Clock) -> None:
        self._client_id = context.client_id
        self._room = context.answer_room
        self._quotas = quotas
        self._clock = clock

    async def take(self, wanted_bytes: int) -> int:
        """Wait for both."""
        if self._quotas.debt_ms(self._client_id, self._clock.monotonic_ns()):
            await _pay(self._client_id, self._quotas, self._clock)
        return await self._room.take(wanted_bytes)

    def give_back(self) -> None:
        """There is no answer after all."""
        self._room.give_back()


class _LimitedStream:
    """A handler's end of a stream: not read, and not sent on, while its client is ahead."""

    def __init__(
        self, client_id: str, stream: Stream, kind: _Kind, quotas: Quotas, clock: Clock
    ) -> None:
        self._client_id = client_id
        self._stream = stream
        self._kind = kind
        self._quotas = quotas
        self._clock = clock

    async def send(self, message: bytes) -> None:
        """Answers that hold records have waited for room; others tell how long to wait."""
        client = self._client()
        if client is not None:
            client.take(self._kind.of_answer(message), self._clock.monotonic_ns())
            throttle_ms = client.debt_ms(self._clock.monotonic_ns())
            if throttle_ms and self._kind.tell is not None:
                message = self._kind.tell(message, throttle_ms)
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        """The next message, once the client has paid for those before."""
        now_ns = self._clock.monotonic_ns()
        if self._kind.produces and self._quotas.debt_ms(self._client_id, now_ns):
            # Else a few who are held back could use up the memory of all who are not.
            self._stream.let_go()
            await _pay(self._client_id, self._quotas, self._clock)
        message = await self._stream.receive()
        client = self._client()
        if message is not None and client is not None:
            client.take(self._kind.of_request(message), self._clock.monotonic_ns())
        return message

    def let_go(self) -> None:
        """The last message that was received is done with."""
        self._stream.let_go()

    async def end_sending(self) -> None:
        """A handler ends its sending by returning."""
        await self._stream.end_sending()

    def cancel(self) -> None:
        """Break the stream at once."""
        self._stream.cancel()

    def _client(self) -> ClientQuota | None:
        return self._quotas.of(self._client_id, self._clock.monotonic_ns())
