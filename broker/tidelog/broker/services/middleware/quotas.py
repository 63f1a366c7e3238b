"""Quotas of the methods that produce and fetch: counted, told by throttle_ms, then by delay.

Owns which methods count for what, and how long a call waits; the middleware asks. Handlers know
nothing of it: a request is counted by its bytes when it comes, an answer when it goes.
Administration is never held back: it is how a quota is lifted.
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
from tidelog.ports import Clock, RequestContext, Stream
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
    "/tidelog.v1.TransactionService/SendOffsets": _Kind(),
    "/tidelog.v1.MetadataService/GetMetadata": _Kind(),
    "/tidelog.v1.MetadataService/ListOffsets": _Kind(),
}


class Throttle:
    """The quotas of a broker's clients, held up to their calls."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def of(self, method: str) -> "MethodQuota | None":
        """How calls of the method are held back; None: they never are."""
        kind = _KINDS.get(method)
        return None if kind is None else MethodQuota(method, kind, self._quotas, self._clock)


class MethodQuota:
    """What the calls of one method cost their clients."""

    def __init__(self, name: str, kind: _Kind, quotas: Quotas, clock: Clock) -> None:
        self._name = name
        self._kind = kind
        self._quotas = quotas
        self._clock = clock

    def client(self, context: RequestContext) -> ClientQuota | None:
        """The caller's buckets; None: nothing limits it."""
        return self._quotas.of(context.client_id, self._clock.monotonic_ns())

    async def admit(self, context: RequestContext, message: bytes) -> ClientQuota | None:
        """Count a request, once its client has paid for those before."""
        clock, client_id = self._clock, context.client_id
        client = self.client(context)
        if client is not None and client.debt_ms(clock.monotonic_ns()):
            await _wait_turn(self._name, client_id, client, len(message), self._quotas, clock)
            client = self.client(context)
        if client is not None:
            client.take(self._kind.of_request(message), clock.monotonic_ns())
        return client

    def charge_request(self, context: RequestContext, message: bytes) -> None:
        """Count a message that came over a stream."""
        client = self.client(context)
        if client is not None:
            client.take(self._kind.of_request(message), self._clock.monotonic_ns())

    def charge_answer(self, client: ClientQuota, answer: bytes) -> bytes:
        """Count an answer; with `throttle_ms` in it if its client is to wait now."""
        kind = self._kind
        client.take(kind.of_answer(answer), self._clock.monotonic_ns())
        throttle_ms = client.debt_ms(self._clock.monotonic_ns())
        return answer if not throttle_ms or kind.tell is None else kind.tell(answer, throttle_ms)

    async def wait_to_receive(self, context: RequestContext, stream: Stream) -> None:
        """Until the producer of a stream has paid for what it sent before."""
        if not self._kind.produces:
            return
        if self._quotas.debt_ms(context.client_id, self._clock.monotonic_ns()):
            # Else a few who are held back could use up the memory of all who are not.
            stream.let_go()
            await _pay(context.client_id, self._quotas, self._clock)

    def with_paid_room(self, context: RequestContext) -> RequestContext:
        """The context of a stream; answers that hold records wait until they are paid for."""
        if not self._kind.fetches:
            return context
        room = _PaidRoom(context, self._quotas, self._clock)
        return msgspec.structs.replace(context, answer_room=room)


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
