"""Who takes up a call: the served methods by their names, and whatever else is refused unread.

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


class _Nobody:
    """Serves nothing: the call ends UNIMPLEMENTED."""

    def resolve_handler(self, _: object) -> None:
        return None


class _NamedServer(_core.AioServer):  # type: ignore[misc]
    """gRPC's server; calls that are not of a registered method are refused here."""

    async def _request_call(self) -> Any:
        """The next call of an unknown name: never handed on."""
        loop = asyncio.get_running_loop()
        refusals: dict[asyncio.Task[None], None] = {}
        while True:
            call = await super()._request_call()
            refusal = _core._handle_rpc(_UNKNOWN, _Nobody(), (), call, loop, False)
            task = loop.create_task(_core._schedule_rpc_coro(refusal, call, loop, _UNKNOWN))
            refusals[task] = None
            task.add_done_callback(lambda done: refusals.pop(done, None))


def make_server(options: list[tuple[str, int]], calls_max: int) -> grpc.aio.Server:
    """A server of registered methods."""
    server: Any = grpc.aio.server(options=options, maximum_concurrent_rpcs=calls_max)
    if KNOWS_NAMES:
        loop = _core.get_working_loop()
        # The one that was made is never started; it goes when nobody refers to it.
        server._server = _NamedServer(loop, None, (), (), tuple(options), calls_max)
    made: grpc.aio.Server = server
    return made


def add_methods(
    server: grpc.aio.Server, services: Mapping[str, Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]]
) -> None:
    """Serve the handlers of each service by their names."""
    untyped: Any = server
    for service, handlers in services.items():
        if KNOWS_NAMES:
            untyped.add_registered_method_handlers(service, dict(handlers))
        else:
            handler = grpc.method_handlers_generic_handler(service, dict(handlers))
            server.add_generic_rpc_handlers((handler,))
