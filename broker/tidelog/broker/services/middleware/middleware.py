"""What every call of a listener passes on its way to a handler, once and in this order:

    counted and timed ─▶ within its client's quota ─▶ allowed ─▶ the node is ready for it ─▶
    … each message: within the contract's bounds ─▶ from the node that it names ─▶ handler

Owns the order, and the only wrapper around handlers and their streams: tables of methods are bare,
and the node puts this around them where it binds a listener. The authorizer is asked before a
request's bytes are looked at, and nothing is made of them before they are counted; a message that
does not fit the contract is the caller's error.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.middleware.node_callers import Claims, NodeCallers, claims_of
from tidelog.broker.services.middleware.quotas import MethodQuota, Throttle
from tidelog.broker.shared.meter import MethodFigures
from tidelog.metadata_quorum.admin.access import access_of, check_allowed, malformed
from tidelog.ports import (
    Authorizer,
    Method,
    RequestContext,
    Stream,
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from tidelog.ports.bounds import MessageCount
from tidelog.wire.errors import ErrorCode, TidelogError

STEPS_A_TURN: Final = 5_000
"""Tags of a message behind which nothing else is done in the same turn of the loop."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Methods of one table, which are ready at the same moment."""

    methods: Mapping[str, Method]
    """By full name, with nothing around them."""
    is_ready: Callable[[], bool]
    is_late: bool = False
    """They answer only once the broker is up: the health service says so until then."""


class Middleware:
    """Stands around the methods of one listener."""

    def __init__(
        self,
        listener: str,
        authorizer: Authorizer,
        metering: Metering,
        *,
        throttle: Throttle | None = None,
        callers: NodeCallers | None = None,
    ) -> None:
        self.listener = listener
        self.authorizer = authorizer
        self.metering = metering
        self.throttle = throttle
        """None: no client of the listener has a quota."""
        self.callers = callers
        """Holds callers that name a node against their certificates; None: none is bound to an
        id."""

    def around(self, *tables: Served) -> dict[str, Method]:
        """The methods of the tables behind all checks; a later table's replaces an earlier one's
        of the same name."""
        methods: dict[str, Method] = {}
        for table in tables:
            for name, method in table.methods.items():
                passage = _Passage(self, name, table.is_ready)
                if isinstance(method, UnaryMethod):
                    methods[name] = UnaryMethod(passage.unary(method.handler))
                else:
                    methods[name] = StreamMethod(passage.stream(method.handler))
        return methods


class _Passage:
    """The way to one method."""

    def __init__(self, middleware: Middleware, name: str, is_ready: Callable[[], bool]) -> None:
        self._middleware = middleware
        self._name = name
        self._is_ready = is_ready
        self._access = access_of(name)
        assert self._access.listener == middleware.listener, (
            f"{name} is served on the listener that the contract assigns to it"
        )
        self._count = MessageCount(name)
        self._callers = middleware.callers
        self._claims: Claims | None = None if self._callers is None else claims_of(name)
        throttle = middleware.throttle
        self.quota: MethodQuota | None = None if throttle is None else throttle.of(name)

    def unary(self, handler: UnaryHandler) -> UnaryHandler:
        """The handler of one message behind everything."""
        metering, listener, name = self._middleware.metering, self._middleware.listener, self._name
        quota = self.quota

        async def answer(context: RequestContext, message: bytes) -> bytes:
            with metering.call(listener, name, context, message) as call:
                client = None if quota is None else await quota.admit(context, message)
                answered = await self._handle(handler, context, message)
                if quota is not None and client is not None:
                    answered = quota.charge_answer(client, answered)
                call.response_bytes = len(answered)
                return answered

        return answer

    async def _handle(
        self, handler: UnaryHandler, context: RequestContext, message: bytes
    ) -> bytes:
        self._check_call(context)
        try:
            await self.check_message(context, message, is_first=True)
            return await handler(context, message)
        except DecodeError as error:
            raise malformed(self._name, error) from None

    def stream(self, handler: StreamHandler) -> StreamHandler:
        """The handler of a stream behind everything."""
        metering, listener, name = self._middleware.metering, self._middleware.listener, self._name
        quota = self.quota

        async def talk(context: RequestContext, stream: Stream) -> None:
            with metering.stream(listener, name, context) as figures:
                passed = context if quota is None else quota.with_paid_room(context)
                self._check_call(context)
                try:
                    await handler(passed, _PassedStream(self, passed, stream, figures))
                except DecodeError as error:
                    raise malformed(name, error) from None

        return talk

    def _check_call(self, context: RequestContext) -> None:
        check_allowed(self._name, context, self._access, self._middleware.authorizer)
        if not self._is_ready():
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=f"call {self._name}",
                happened="the node is starting or stopping",
            )

    async def check_message(
        self, context: RequestContext, message: bytes, *, is_first: bool
    ) -> None:
        """Refuse a message that holds too much, or that names another node than its sender."""
        if self._count.check(context, message).steps > STEPS_A_TURN:
            # Counting was a turn's work, and what is made of the message is another one's.
            await asyncio.sleep(0)
        if self._callers is None or self._claims is None:
            return
        claimed = self._claims(message)
        if not is_first:
            # No node has the id 0: it stands for the one that the first message named.
            claimed = tuple(filter(None, claimed))
        self._callers.check(self._name, context, claimed)


class _PassedStream:
    """A handler's end of a stream: not read, and not sent on, while its client is over its quota,
    and each message that comes is checked before the handler sees it."""

    def __init__(
        self, passage: _Passage, context: RequestContext, stream: Stream, figures: MethodFigures
    ) -> None:
        self._passage = passage
        self._context = context
        self._stream = stream
        self._figures = figures
        self._is_first = True

    async def send(self, message: bytes) -> None:
        """Queue a message; what holds records has waited for room, the rest tells how long to
        wait."""
        quota = self._passage.quota
        client = None if quota is None else quota.client(self._context)
        if quota is not None and client is not None:
            message = quota.charge_answer(client, message)
        self._figures.response_bytes += len(message)
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        """The next message, once the client has paid for those before."""
        quota = self._passage.quota
        if quota is not None:
            await quota.wait_to_receive(self._context, self._stream)
        message = await self._stream.receive()
        if message is None:
            return None
        self._figures.request_bytes += len(message)
        if quota is not None:
            quota.charge_request(self._context, message)
        await self._passage.check_message(self._context, message, is_first=self._is_first)
        self._is_first = False
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
