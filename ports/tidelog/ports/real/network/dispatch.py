"""Who takes up a call: the served methods by their names, and one handler all others, unread.

gRPC's own loop decodes the name of each call that it does not know. A name that is no UTF-8 raises
there, and gRPC takes that for its own failure and shuts the whole listener down: one frame of
anybody. So every served method is registered by its name, and calls of others never reach that
loop. Releases of gRPC that know no registered methods decode the name later, where an error ends
that call alone; they are left as they are.
"""

import asyncio
import importlib
from collections.abc import Mapping
from typing import Any, Final

import grpc
import grpc.aio

_core: Final[Any] = importlib.import_module("grpc._cython.cygrpc")
KNOWS_NAMES: Final = all(
    hasattr(owner, name)
    for owner, name in (
        (_core.AioServer, "_request_call"),
        (_core.AioServer, "_request_registered_call"),
        (_core, "_handle_rpc"),
        (_core, "_schedule_rpc_coro"),
    )
)
"""Whether the installed gRPC registers methods by their names."""
_UNKNOWN: Final = "unknown"


class _Strangers:
    """One handler for the calls of methods that are not served."""

    def __init__(self, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        self._handler = handler

    def resolve_handler(self, _: object) -> "grpc.RpcMethodHandler[Any, Any]":
        """Of gRPC's own resolvers; the name is not looked at."""
        return self._handler


class _StrangersByName(grpc.GenericRpcHandler):
    """The same where gRPC asks by name for what no other handler knows."""

    def __init__(self, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        self._handler = handler

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Every one."""
        del handler_call_details
        return self._handler


class _NamedServer(_core.AioServer):  # type: ignore[misc]
    """gRPC's server; calls that are not of a registered method are refused here."""

    strangers: _Strangers

    async def _request_call(self) -> Any:
        """The next call of an unknown name: never handed on."""
        loop = asyncio.get_running_loop()
        refusals: dict[asyncio.Task[None], None] = {}
        while True:
            call = await super()._request_call()
            refusal = _core._handle_rpc(_UNKNOWN, self.strangers, (), call, loop, False)
            task = loop.create_task(_core._schedule_rpc_coro(refusal, call, loop, _UNKNOWN))
            refusals[task] = None
            task.add_done_callback(lambda done: refusals.pop(done, None))


def make_server(options: list[tuple[str, int]], calls_max: int) -> grpc.aio.Server:
    """A server of registered methods; beyond so many calls gRPC refuses without a reason."""
    server: Any = grpc.aio.server(options=options, maximum_concurrent_rpcs=calls_max)
    if KNOWS_NAMES:
        loop = _core.get_working_loop()
        # The one that was made is never started; it goes when nobody refers to it.
        server._server = _NamedServer(loop, None, (), (), tuple(options), calls_max)
    made: grpc.aio.Server = server
    return made


def add_methods(
    server: grpc.aio.Server,
    services: Mapping[str, Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]],
    strangers: "grpc.RpcMethodHandler[Any, Any]",
) -> None:
    """Serve the handlers of each service by their names, and by one of them all else."""
    untyped: Any = server
    if KNOWS_NAMES:
        untyped._server.strangers = _Strangers(strangers)
    for service, handlers in services.items():
        if KNOWS_NAMES:
            untyped.add_registered_method_handlers(service, dict(handlers))
        else:
            handler = grpc.method_handlers_generic_handler(service, dict(handlers))
            server.add_generic_rpc_handlers((handler,))
    if not KNOWS_NAMES:
        server.add_generic_rpc_handlers((_StrangersByName(strangers),))
