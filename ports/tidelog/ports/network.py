"""Bytes between processes: unary calls and bidirectional streams, by method name.

Protobuf lives above this port, sockets and gRPC below it, so that the simulator runs the same
converters and handlers as a real node. What the port promises (tests/ports holds both adapters
to it):

 1. Within a stream messages arrive in order and at most once. A break loses any suffix in both
    directions, and neither side can tell which; what was delivered may still be processed after
    the other side gave up.
 2. A call that ends with an error other than the peer's own answer has an unknown outcome.
 3. A handler's TidelogError reaches the caller as an equal TidelogError.
 4. A handler may be cancelled at any await when its caller goes away.
 5. Deadlines travel as durations. A caller's wait ends at its deadline, whatever the peer does.
 6. A peer that cannot be reached raises PeerUnreachable, which tells how sure that is.
 7. A call, a send or a receive whose task is cancelled is given up: the call is withdrawn, the
    calling end of the stream breaks, the handler's end receives nothing more.
 8. What is ended from this side (`cancel`, `close`) raises CLOSED here, to whoever waits.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from tidelog.ports.request_context import RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""No message of the contract is larger, in either direction, envelope included."""


class DeathHint(enum.Enum):
    """What a failed connection says about the peer's process."""

    NONE = "none"
    """Silence, a timeout: the peer may be alive."""
    REFUSED = "refused"
    """Nothing listens at the address."""
    CLOSED_EARLY = "closed_early"
    """Closed before the first HTTP/2 settings frame: a proxy without a peer behind it."""


class PeerUnreachable(TidelogError):
    """The call did not reach the peer, or its stream broke."""

    def __init__(self, *, tried: str, happened: str, death_hint: DeathHint) -> None:
        super().__init__(ErrorCode.UNAVAILABLE, tried=tried, happened=happened)
        self.death_hint = death_hint


class Stream(Protocol):
    """One end of a bidirectional stream. One task sends and one receives at a time."""

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the other side is slow."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None after the other side has ended its sending in order.

        At a handler's end None may also be a break that the handler is cancelled for a moment
        later: a caller that means something by its end says so in a message.
        """
        ...

    def let_go(self) -> None:
        """The last message that was received is done with. To be called by a handler that waits for
        something else before it receives the next: until then it counts as held, which may keep
        out the messages of all others.
        """
        ...

    async def end_sending(self) -> None:
        """No more messages from here. Only the calling end has it; a handler just returns."""
        ...

    def cancel(self) -> None:
        """Break the stream at once."""
        ...


UnaryHandler = Callable[[RequestContext, bytes], Awaitable[bytes]]
StreamHandler = Callable[[RequestContext, Stream], Awaitable[None]]


class UnaryMethod(msgspec.Struct, frozen=True):
    """A method that answers one message with one message."""

    handler: UnaryHandler


class StreamMethod(msgspec.Struct, frozen=True):
    """A method that talks over a stream; the stream ends when the handler returns."""

    handler: StreamHandler


Method = UnaryMethod | StreamMethod


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What one end of encrypted connections proves itself with, and whom it trusts.

    Names of PEM files, read by the real adapter and again when they change; the simulator has no
    use for them.
    """

    certificate: str = ""
    """This end's certificate, intermediates behind it; a calling end may have none."""
    key: str = ""
    """The key of the certificate, not encrypted."""
    authorities: str = ""
    """Authorities whose certificates are believed; empty: at a listener nobody is asked for one,
    at a calling end the authorities that gRPC comes with."""
    is_for_calling: bool = False
    """The certificate proves a calling end, and has to be usable for that; else a listener's."""
    wanted_name: str = ""
    """Whom the certificate has to be for, in the words of `CertificateNames`; empty: anybody."""


class ListenerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one listener takes from its callers, all of them and each."""

    connections_max: Annotated[
        int,
        Meta(description="Open connections; beyond it one more is closed at once.", ge=1),
    ] = 8_192
    calls_max: Annotated[
        int,
        Meta(
            description="Calls in progress, parked streams included; beyond it a call is refused "
            "RESOURCE_EXHAUSTED. Of one connection no more than are left to all others.",
            ge=1,
        ),
    ] = 16_384
    connection_calls_max: Annotated[
        int,
        Meta(description="Calls in progress of one connection; more wait at the caller.", ge=1),
    ] = 1_024
    request_bytes_max: Annotated[
        int,
        Meta(
            description="One message of a caller; a larger one is refused without being kept.",
            ge=64 * 1024,
            le=MESSAGE_BYTES_MAX,
        ),
    ] = MESSAGE_BYTES_MAX
    request_memory_bytes: Annotated[
        int,
        Meta(
            description="Messages whose handlers are at work, together; beyond it a call is "
            "refused RESOURCE_EXHAUSTED, and streams are not read.",
            ge=1024 * 1024,
        ),
    ] = 256 * 1024 * 1024
    answer_memory_bytes: Annotated[
        int,
        Meta(
            description="Memory of answers that callers have not taken yet, together; each takes "
            "twice its size. Beyond it fetches wait, and other large answers are refused.",
            ge=1024 * 1024,
        ),
    ] = 256 * 1024 * 1024
    connection_answer_bytes: Annotated[
        int,
        Meta(description="The same of one connection.", ge=1024 * 1024),
    ] = 64 * 1024 * 1024
    answer_ms_max: Annotated[
        int,
        Meta(
            description="A connection of which an answer was not taken for this time is closed; "
            "after 5 s already while others wait for the memory.",
            ge=1_000,
            le=86_400_000,
        ),
    ] = 60_000
    message_ms_max: Annotated[
        int,
        Meta(
            description="A call of which no message has come after this time is refused; a "
            "connection of which a message was begun and stays unfinished for it is closed.",
            ge=1_000,
            le=86_400_000,
        ),
    ] = 60_000
    call_ms_max: Annotated[
        int,
        Meta(
            description="How long a call may take, whatever its caller says; streams may stay.",
            ge=1_000,
            le=86_400_000,
        ),
    ] = 3_600_000
    connection_idle_ms: Annotated[
        int,
        Meta(description="A connection without calls is closed after this time.", ge=1_000),
    ] = 600_000
    connection_age_ms: Annotated[
        int,
        Meta(
            description="A connection that is older gets no new calls, so that callers spread "
            "anew; open streams stay.",
            ge=10_000,
        ),
    ] = 3_600_000


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address to serve on."""

    name: str
    """`client` or `cluster`: goes into every RequestContext."""
    bind: str
    """`host:port`; port 0 picks a free one."""
    reflection_services: tuple[str, ...] = ()
    """Full service names that reflection lists; empty: no reflection."""
    tls: TlsFiles | None = None
    """None: in plaintext."""
    requires_client_certificate: bool = False
    """With TLS: whoever has no certificate of the authorities cannot connect. The subject of the
    certificate is the principal of the caller."""
    limits: ListenerLimits = ListenerLimits()
    starts_serving: bool = True
    """What the health service says at first of all services, and of the listener as a whole."""


class ListenerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener holds of its callers' messages, and what it has refused."""

    request_bytes: int
    answer_bytes: int
    refused: Mapping[str, int]
    """Since the start, by the limit that was used up."""


class Server(Protocol):
    """A listener at work."""

    @property
    def address(self) -> str:
        """`host:port` with the port that was really taken."""
        ...

    async def stop(self, grace_ms: int) -> None:
        """Accept nothing new; break what is still open after `grace_ms`."""
        ...


@runtime_checkable
class WatchedServer(Protocol):
    """A server with a health service and limits; the simulated one has neither."""

    def usage(self) -> ListenerUsage:
        """As of now."""
        ...

    async def set_serving(self, services: Sequence[str], *, is_serving: bool) -> None:
        """What the health service says of them; the empty name is the listener as a whole."""
        ...

    async def end_serving(self) -> None:
        """The health service says of all that they do not serve, and stays with it."""
        ...


class Network(Protocol):
    """All connections of one node or client. Connections are shared and made when needed."""

    async def serve(self, listener: Listener, methods: Mapping[str, Method]) -> Server:
        """Serve methods by full name (`/tidelog.v1.FetchService/Fetch`).

        An address that cannot be bound raises UNAVAILABLE naming address and reason.
        """
        ...

    async def call(self, peer: str, method: str, message: bytes, *, timeout_ms: int) -> bytes:
        """One message there and one back; `peer` is `host:port`.

        Raises DEADLINE_EXCEEDED after `timeout_ms`.
        """
        ...

    def stream(self, peer: str, method: str) -> Stream:
        """Begin a stream; a failure to connect shows at the first send or receive."""
        ...

    async def close(self) -> None:
        """Break every connection made from here."""
        ...
