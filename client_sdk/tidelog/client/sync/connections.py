"""Channels to brokers, calls on them, and what their failures mean in words.

Owns every gRPC object of a client. gRPC is imported by the first call, not before. Errors name the
address and the reason: refused, unknown name, silence, something that is not Tidelog.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.errors import LostAnswerError, NoAnswerError
from tidelog.client.shared import io_threads, lifecycle
from tidelog.client.shared.asking import (
    ADDRESS_TIMEOUT_MS,
    Answer,
    OnAnswer,
    OnFailure,
    nobody_is_told,
)
from tidelog.client.sync.rounds import Round
from tidelog.client.tls.security import Security
from tidelog.client.wire import calls as wire
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    import grpc

    from tidelog.client.tls.look import Seen
    from tidelog.ports.real.tls.reasons import Mistake

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
CLIENT_ID_HEADER: Final = "tidelog-client-id"

NEVER_CONNECTED: Final = "failed to connect to all addresses"
_NEVER_SENT: Final = (NEVER_CONNECTED, "errors resolving", "dns resolution failed")

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX + 64 * 1024),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX + 64 * 1024),
    # A transparent retry could store a batch twice.
    ("grpc.enable_retries", 0),
    # Brokers are reached directly, as with every Kafka client.
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", ADDRESS_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.primary_user_agent", "tidelog-python"),
)

_REASONS: Final = (
    ("connection refused", "connection refused, nothing listens there"),
    ("errors resolving", "the host name cannot be resolved (DNS)"),
    ("dns resolution failed", "the host name cannot be resolved (DNS)"),
    ("parsing http/2", "what listens there is not a Tidelog node (it does not speak gRPC)"),
    ("settings frame", "it accepts connections and says nothing (not a Tidelog node, or it hangs)"),
    ("handshaker shutdown", "it did not accept the connection in time"),
    ("network is unreachable", "the network is unreachable"),
    ("no route to host", "there is no route to the host"),
    ("timeout occurred", "it did not accept the connection in time"),
)


class Connections:
    """One per client."""

    def __init__(self, client_id: str, security: Security | None = None) -> None:
        self._metadata = ((CLIENT_ID_HEADER, client_id),)
        self._security = Security() if security is None else security
        self._channels: dict[str, grpc.Channel] = {}
        self._unnamed: set[str] = set()
        """Addresses whose channel wants a name that their node does not have any more."""
        self._answered: dict[str, None] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def channel(self, address: str) -> grpc.Channel:
        """The channel to an address; it connects with its first call."""
        import grpc

        if address in self._unnamed:
            self._drop(address)
        names = [] if address in self._channels else self._names(address)
        with self._lock:
            if self._is_closed:
                raise TidelogError(
                    ErrorCode.CLOSED, tried=f"call {address}", happened="the client is closed"
                )
            channel = self._channels.get(address)
            if channel is None:
                options = [*CHANNEL_OPTIONS, *_ping_options(), *names]
                if self._security.is_encrypted:
                    credentials = self._security.credentials()
                    channel = grpc.secure_channel(address, credentials, options=options)
                else:
                    channel = grpc.insecure_channel(address, options=options)
                lifecycle.hold(channel)
                self._channels[address] = channel
            return channel

    def error_of(
        self, call: Any, *, address: str, tried: str, timeout_ms: int | None = None
    ) -> TidelogError:
        """What a failed call or stream means; a look at the address tells mistakes of TLS apart."""
        error = error_of(call, address=address, tried=tried, timeout_ms=timeout_ms)
        details = call.details() or ""
        if NEVER_CONNECTED not in details:
            return error
        if self._security.is_encrypted and not self._security.checks_host_name:
            self._unnamed.add(address)
        from tidelog.client.sync import tls_probe
        from tidelog.client.tls import look as tls_look

        seen = tls_probe.look(address, self._security) if tls_look.wants_look(details) else None
        mistake = tls_look.explain(address, details, self._security, seen)
        return told_by_tls(error, mistake, address, tried, is_unnamed=address in self._unnamed)

    def _drop(self, address: str) -> None:
        with self._lock:
            self._unnamed.discard(address)
            channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()
            lifecycle.let_go(channel)

    def _names(self, address: str) -> list[tuple[str, str]]:
        """Without the check of host names the name in the node's certificate is the right one: gRPC
        can be told which one to want, not to want none.
        """
        if not self._security.is_encrypted or self._security.checks_host_name:
            return []
        from tidelog.client.sync import tls_probe

        seen = tls_probe.look(address, self._security)
        return name_options(seen)

    def call_later(
        self, address: str, method: str, data: bytes, timeout_ms: int, on_answer: OnAnswer
    ) -> None:
        """One call; `on_answer` runs once, on a thread of gRPC's."""
        tried = _tried(method, address)
        try:
            channel: Any = self.channel(address)
            multicallable = channel.unary_unary(method)
            with lifecycle.watching_threads():
                call = multicallable.future(
                    data, timeout=timeout_ms / 1000, metadata=self._metadata
                )
        except TidelogError as error:
            on_answer(error)
            return
        except ValueError:
            on_answer(TidelogError(ErrorCode.CLOSED, tried=tried, happened="the client is closed"))
            return
        lifecycle.hold(call)

        def on_done(done: Any) -> None:
            lifecycle.let_go(done)
            if done.code().value[0] == 0:
                self._answered[address] = None
                on_answer(done.result())
            else:
                on_answer(self.error_of(done, address=address, tried=tried, timeout_ms=timeout_ms))

        call.add_done_callback(on_done)

    def has_answered(self, address: str) -> bool:
        """Whether a call to it succeeded since the client began: then it is not one that hangs."""
        return address in self._answered

    def call(self, address: str, method: str, data: bytes, timeout_ms: int) -> bytes:
        """One call, waited for; Ctrl-C ends the wait."""
        io_threads.refuse_waiting(_tried(method, address))
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.call_later(address, method, data, timeout_ms, answers.put)
        return unwrap(answers.get())

    def call_any_later(
        self,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_answer: OnAnswer,
        on_failure: OnFailure = nobody_is_told,
    ) -> None:
        """Ask one address after the other (`rounds`); the error names each of them."""
        Round(self, addresses, method, data, timeout_ms, on_answer, on_failure).begin()

    def call_any(
        self,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_failure: OnFailure = nobody_is_told,
    ) -> bytes:
        """The same, waited for."""
        io_threads.refuse_waiting(_tried(method, " or ".join(addresses)))
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.call_any_later(addresses, method, data, timeout_ms, answers.put, on_failure)
        return unwrap(answers.get())

    def stream(self, address: str, method: str, requests: Iterator[bytes]) -> Any:
        """A bidirectional stream; iterate it for the answers."""
        channel: Any = self.channel(address)
        multicallable = channel.stream_stream(method)
        with lifecycle.watching_threads():
            call = multicallable(requests, metadata=self._metadata)
        lifecycle.hold(call)
        return call

    def pieces(self, address: str, method: str, data: bytes, timeout_ms: int) -> Iterator[bytes]:
        """A call with several answers, as they come; all within the timeout."""
        import grpc

        tried = _tried(method, address)
        io_threads.refuse_waiting(tried)
        channel: Any = self.channel(address)
        multicallable = channel.unary_stream(method)
        with lifecycle.watching_threads():
            call = multicallable(data, timeout=timeout_ms / 1000, metadata=self._metadata)
        lifecycle.hold(call)
        try:
            while True:
                try:
                    piece = next(call)
                except StopIteration:
                    return
                except grpc.RpcError as error:
                    raise self.error_of(
                        error, address=address, tried=tried, timeout_ms=timeout_ms
                    ) from None
                yield piece
        finally:
            call.cancel()
            lifecycle.let_go(call)

    def close(self) -> None:
        """Break everything."""
        with self._lock:
            self._is_closed = True
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()
            lifecycle.let_go(channel)


def _tried(method: str, address: str) -> str:
    return f"call {method.rpartition('/')[2]} at {address}"


def _ping_options() -> list[tuple[str, int]]:
    """As often as a node allows: a silent node is noticed, and nobody earns `too_many_pings`."""
    from tidelog.ports.real.network import options as network_options

    return network_options.ping_options()


def unwrap(answer: Answer) -> bytes:
    """The answer, or its error raised."""
    if isinstance(answer, TidelogError):
        raise answer
    return answer


def error_of(call: Any, *, address: str, tried: str, timeout_ms: int | None = None) -> TidelogError:
    """What a failed call or stream means."""
    for key, value in call.trailing_metadata() or ():
        if key == wire.ERROR_TRAILER:
            return wire.read_error_bytes(value)
    status = call.code().name
    details = call.details() or ""
    if status == "DEADLINE_EXCEEDED":
        silence = "" if timeout_ms is None else f" within {timeout_ms} ms"
        return NoAnswerError(
            ErrorCode.DEADLINE_EXCEEDED, tried=tried, happened=f"{address}: no answer{silence}"
        )
    if status == "UNIMPLEMENTED":
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=tried,
            happened=f"{address}: what listens there does not serve this call ({details}): it is a "
            "node's cluster listener, a node of another release, or no Tidelog node",
            hint="connect to the client listener of a node, by default port 9192",
        )
    if NEVER_CONNECTED in details and (mistake := _tls_mistake(details)) is not None:
        return _mistaken(mistake, address, tried)
    code = ErrorCode.__members__.get(status, ErrorCode.UNKNOWN)
    make = LostAnswerError if _was_sent(code, details) else TidelogError
    return make(code, tried=tried, happened=f"{address}: {_reason(details)}")


def name_options(seen: Seen | None) -> list[tuple[str, str]]:
    """By which gRPC wants the first name of the certificate that was seen."""
    return [("grpc.ssl_target_name_override", each) for each in seen.names[:1]] if seen else []


def told_by_tls(
    error: TidelogError, mistake: Mistake | None, address: str, tried: str, *, is_unnamed: bool
) -> TidelogError:
    """The error of a connection that never came to be, with what TLS has to do with it."""
    if mistake is None:
        return error
    if mistake.is_host_name and is_unnamed:
        # The node's certificate was replaced: the next channel asks for the new one's name.
        return TidelogError(ErrorCode.UNAVAILABLE, tried=tried, happened=error.happened)
    return _mistaken(mistake, address, tried)


def _tls_mistake(details: str) -> Mistake | None:
    from tidelog.ports.real.tls import reasons as tls_reasons

    return tls_reasons.find(details)


def _mistaken(mistake: Mistake, address: str, tried: str) -> TidelogError:
    """Trying again would not help: somebody has to mend a certificate or a setting."""
    return TidelogError(
        ErrorCode.UNAUTHENTICATED,
        tried=tried,
        happened=f"{address}: {mistake.happened}",
        hint=mistake.hint,
    )


def _was_sent(code: ErrorCode, details: str) -> bool:
    """Whether the connection broke with the call on it; without one nothing was sent."""
    lowered = details.lower()
    return code is ErrorCode.UNAVAILABLE and not any(sign in lowered for sign in _NEVER_SENT)


def _reason(details: str) -> str:
    lowered = details.lower()
    for sign, reason in _REASONS:
        if sign in lowered:
            return reason
    if NEVER_CONNECTED in details and "socket closed" in lowered:
        return (
            "it closed the connection at once (too many of them, a proxy without a node, or a "
            "broker of Kafka, whose protocol Tidelog does not speak)"
        )
    return details or "the connection broke"
