"""What every call of the admin client stands on: connections, deadlines, who is asked, how it ends.

Owns the rule for calls that change something: an answer of a broker counts, be it an error, and
only a broker that could not be reached or knows no controller is passed over for the next one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.options import AdminArguments, AdminOptions
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.tries import Doubt
from tidelog.client.errors import PeerError, is_lost
from tidelog.client.shared import io_threads
from tidelog.client.shared.asking import ADDRESS_TIMEOUT_MS, all_failed, doubt_of
from tidelog.client.shared.lifecycle import Client
from tidelog.client.shared.portions import portions
from tidelog.client.sync.cluster_calls import ClusterCalls
from tidelog.client.sync.connections import Connections
from tidelog.client.tls.security import security_of
from tidelog.wire.errors import ErrorCode, TidelogError

T = TypeVar("T")
_PASSED_OVER: Final = (ErrorCode.UNAVAILABLE, ErrorCode.NOT_CONTROLLER)
"""What a broker answers that could not do the call itself and did nothing."""


class AdminBase(Client):
    """Opens, asks, closes."""

    def __init__(self, **arguments: Unpack[AdminArguments]) -> None:
        options = client_options.build(AdminOptions, "AdminClient", arguments)
        security = security_of("AdminClient", options)
        bootstrap = client_options.bootstrap_addresses("AdminClient", options.bootstrap_servers)
        super().__init__()
        self._options = options
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._connections = Connections(options.client_id, security)
        self._calls = ClusterCalls(
            self._connections,
            bootstrap,
            MetadataCache(),
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )

    def close(self) -> None:
        """Break the connections."""
        if self._refusal is not None:
            return
        self._become_closed()
        self._connections.close()

    def _check_usable(self, tried: str) -> None:
        super()._check_usable(tried)
        # There is no call of an admin client that does not wait.
        io_threads.refuse_waiting(tried)

    def __enter__(self) -> Self:
        self._check_usable("use the admin client")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close_at_exit(self) -> None:
        """Nothing is lost by it: close."""
        self.close()

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._options.request_timeout_ms if timeout_ms is None else timeout_ms

    def _any(
        self,
        tried: str,
        method: str,
        request: bytes,
        timeout_ms: int,
        *,
        doubt: Doubt | None = None,
    ) -> bytes:
        self._learn_brokers(tried, timeout_ms)
        return self._calls.any(method, request, timeout_ms, doubt=doubt)

    def _ask(
        self,
        tried: str,
        method: str,
        request: bytes,
        timeout_ms: int,
        *,
        may_repeat: bool = True,
        validate_only: bool = False,
        doubt: Doubt | None = None,
    ) -> bytes:
        """The answer of the first broker that has one; its error is raised at once.

        `may_repeat`: asked a second time, the call would not deny what it did the first time.
        `doubt`: of a call that is made of several; by default this one has its own.
        """
        self._learn_brokers(tried, timeout_ms)
        doubt = doubt or doubt_of(tried, method, may_repeat=may_repeat, validate_only=validate_only)
        answer = self._calls.until(
            timeout_ms,
            lambda left_ms: self._ask_round(
                method, request, left_ms, may_repeat=may_repeat, doubt=doubt
            ),
            doubt=doubt,
        )
        if isinstance(answer, TidelogError):
            raise answer if doubt is None else doubt.told(answer)
        return answer

    def _ask_in_portions(
        self,
        tried: str,
        method: str,
        items: Sequence[T],
        encode: Callable[[Sequence[T]], bytes],
        timeout_ms: int,
        *,
        may_repeat: bool = True,
        validate_only: bool = False,
    ) -> Iterator[tuple[Sequence[T], bytes]]:
        """The answers of a call about many things, with what each is about; all in one time."""
        end = time.monotonic() + timeout_ms / 1000
        for part, request in portions(method, items, encode):
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            data = self._ask(
                tried, method, request, left_ms, may_repeat=may_repeat, validate_only=validate_only
            )
            yield part, data

    def _ask_round(
        self,
        method: str,
        request: bytes,
        timeout_ms: int,
        *,
        may_repeat: bool,
        doubt: Doubt | None,
    ) -> bytes | TidelogError:
        """A value is final; what is raised may be tried again."""
        deadline = time.monotonic() + timeout_ms / 1000
        failures: list[tuple[str, TidelogError]] = []
        addresses = self._calls.addresses()
        for place, address in enumerate(addresses):
            left_ms = int((deadline - time.monotonic()) * 1000)
            if failures and left_ms <= 0:
                break
            limit_ms = share_ms(left_ms, len(addresses) - place, may_repeat=may_repeat)
            try:
                return self._connections.call(address, method, request, max(1, limit_ms))
            except TidelogError as error:
                if doubt is not None:
                    doubt.note(error)
                if not is_passed_over(error, may_repeat=may_repeat):
                    return error
                failures.append((address, error))
        raise all_failed(failures)

    def _pieces(self, tried: str, method: str, request: bytes, timeout_ms: int) -> Iterator[bytes]:
        """The answers of a call that has several, from one broker."""
        self._learn_brokers(tried, timeout_ms)
        failures: list[tuple[str, TidelogError]] = []
        for address in self._calls.addresses():
            pieces = self._connections.pieces(address, method, request, timeout_ms)
            try:
                first = next(pieces, None)
            except TidelogError as error:
                if error.code not in _PASSED_OVER:
                    raise
                failures.append((address, error))
                continue
            if first is not None:
                yield first
                yield from pieces
            return
        raise all_failed(failures)

    def _learn_brokers(self, tried: str, timeout_ms: int) -> None:
        """Fails soon and in words if there is nobody."""
        self._check_usable(tried)
        if not self._calls.metadata.is_known:
            self._calls.refresh((), timeout_ms)


def share_ms(left_ms: int, addresses: int, *, may_repeat: bool) -> int:
    """A broker that knows no controller looks for one until its share is over."""
    if addresses == 1:
        return left_ms
    if may_repeat:
        return min(left_ms, ADDRESS_TIMEOUT_MS)
    return min(left_ms, max(ADDRESS_TIMEOUT_MS, left_ms // addresses))


def is_passed_over(error: TidelogError, *, may_repeat: bool) -> bool:
    """Where the answer was lost it may have been done: what cannot be repeated is not asked of
    anybody else."""
    if is_lost(error):
        return may_repeat
    if isinstance(error, PeerError):
        return error.code in _PASSED_OVER
    return error.code is ErrorCode.UNAVAILABLE


def all_or_raise(results: Iterable[T | TidelogError]) -> list[T]:
    """The first error is raised."""
    found: list[T] = []
    for result in results:
        if isinstance(result, TidelogError):
            raise result
        found.append(result)
    return found
