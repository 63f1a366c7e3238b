"""The serving end: listeners on grpc.aio, with an address that is really taken.

Owns binding, and why it failed; what is served is `network.handlers`' business.
"""

import errno
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc
import grpc.aio

from tidelog.ports.clock import Clock
from tidelog.ports.network import Listener, ListenerUsage, Method
from tidelog.ports.real.network import extras as network_extras
from tidelog.ports.real.network import options as network_options
from tidelog.ports.real.network.admission import CallAdmission
from tidelog.ports.real.network.callers import Callers
from tidelog.ports.real.network.dispatch import add_methods, make_server
from tidelog.ports.real.network.handlers import (
    Serving,
    handlers_by_service,
    split_name,
    strangers_handler,
)
from tidelog.ports.real.network.memory import ListenerMemory
from tidelog.ports.real.network.tls import RealCertificates
from tidelog.ports.real.network.watch import CallerWatch
from tidelog.wire.errors import ErrorCode, TidelogError

PORT_MAX: Final = 65_535
REFUSALS_MAX: Final = 4_096
"""Calls that are being told why they are refused; beyond it gRPC refuses without a reason."""


class GrpcServer:
    """A listener at work."""

    def __init__(
        self,
        server: grpc.aio.Server,
        address: str,
        extras: network_extras.Extras,
        memory: ListenerMemory,
        watch: CallerWatch,
        admission: CallAdmission,
    ) -> None:
        self.memory: Final = memory
        """What is held of callers' messages, for whoever counts."""
        self.watch: Final = watch
        self.admission: Final = admission
        self._server = server
        self._address = address
        self._extras = extras

    @property
    def address(self) -> str:
        """`host:port` with the port that was really taken."""
        return self._address

    def usage(self) -> ListenerUsage:
        """As of now."""
        memory = self.memory
        return ListenerUsage(
            request_bytes=memory.request_bytes,
            answer_bytes=memory.answer_bytes,
            refused=dict(memory.refused),
        )

    async def set_serving(self, services: Sequence[str], *, is_serving: bool) -> None:
        """What the health service says of them; the empty name is the listener as a whole."""
        await self._extras.set(services, is_serving=is_serving)

    async def end_serving(self) -> None:
        """The health service says of all that they do not serve, and stays with it."""
        await self._extras.stop()

    async def stop(self, grace_ms: int) -> None:
        """Accept nothing new; break what is still open after `grace_ms`."""
        await self._extras.stop()
        await self._server.stop(grace_ms / 1000)
        await self.watch.stop()


async def start_server(
    listener: Listener,
    methods: Mapping[str, Method],
    clock: Clock,
    certificates: RealCertificates,
) -> GrpcServer:
    """Bind and serve; an address or files that cannot be used raise, and tell why."""
    credentials = None if listener.tls is None else certificates.server_credentials(listener)
    options = network_options.server_options(listener.limits)
    server = make_server(options, listener.limits.calls_max + REFUSALS_MAX)
    memory = ListenerMemory(listener.name, listener.limits, clock.monotonic_ns)
    callers = Callers(listener.limits)
    admission = CallAdmission(
        listener.name, listener.limits, clock.monotonic_ns, memory.note_refused
    )
    serving = Serving(
        listener=listener, clock=clock, memory=memory, callers=callers, admission=admission
    )
    services = sorted({split_name(method)[0] for method in methods})
    extras = network_extras.Extras(services, starts_serving=listener.starts_serving)
    more = network_extras.reflection_methods(listener.reflection_services)
    every = {**methods, **extras.methods(), **more}
    add_methods(server, handlers_by_service(every, serving), strangers_handler(serving))
    address = _bind(server, listener, credentials)
    await server.start()
    port = int(address.rpartition(":")[2])
    watch = CallerWatch(listener.name, port, clock, memory, callers)
    watch.start()
    return GrpcServer(server, address, extras, memory, watch, admission)


def _bind(
    server: grpc.aio.Server, listener: Listener, credentials: grpc.ServerCredentials | None
) -> str:
    host, colon, port = listener.bind.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise _cannot_bind(listener, "the address is not `host:port`")
    if port != "0" and (reason := _why_not(host.strip("[]"), int(port))):
        raise _cannot_bind(listener, reason)
    try:
        if credentials is None:
            taken = server.add_insecure_port(listener.bind)
        else:
            taken = server.add_secure_port(listener.bind, credentials)
    except RuntimeError as error:
        raise _cannot_bind(listener, str(error)) from None
    return f"{host}:{taken}"


def _cannot_bind(listener: Listener, reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"listen on {listener.bind} (listener {listener.name})",
        happened=reason,
        hint="Choose another port or address for the listener, or stop what uses it.",
    )


def _why_not(host: str, port: int) -> str:
    """Bind plain sockets first: gRPC does not tell its reason, and logs on standard error."""
    if port > PORT_MAX:
        return f"a port is at most {PORT_MAX}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error.strerror or str(error)
    reasons = [_try_bind(family, address) for family, _, _, _, address in found]
    # A name may stand for an address family that this machine lacks; one that works is enough.
    is_taken = any(number == errno.EADDRINUSE for number in reasons)
    if is_taken or all(reasons):
        return os.strerror(errno.EADDRINUSE if is_taken else reasons[0])
    return ""


def _try_bind(family: int, address: tuple[Any, ...]) -> int:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error.errno or errno.EIO
    return 0
