"""What every call of the asyncio admin client stands on, as `sync.admin_base` for threads."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.connections import AsyncConnections
from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.options import AdminArguments, AdminOptions
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.tries import Doubt
from tidelog.client.shared.asking import all_failed, doubt_of
from tidelog.client.shared.lifecycle import Client
from tidelog.client.shared.portions import portions
from tidelog.client.sync.admin.base import is_passed_over, share_ms
from tidelog.client.tls.security import security_of
from tidelog.wire.errors import TidelogError

T = TypeVar("T")


class AsyncAdminBase(Client):
    """Opens, asks, closes."""

    def __init__(self, **arguments: Unpack[AdminArguments]) -> None:
        options = client_options.build(AdminOptions, "AsyncAdminClient", arguments)
        security = security_of("AsyncAdminClient", options)
        bootstrap = client_options.bootstrap_addresses(
            "AsyncAdminClient", options.bootstrap_servers
        )
        super().__init__()
        self._options = options
        backoff = Backoff(
            initial_ms=options.retry_backoff_ms,
            max_ms=options.retry_backoff_max_ms,
            salt=time.monotonic_ns() & 0xFFFF,
        )
        self._connections = AsyncConnections(options.client_id, security)
        self._calls = AsyncClusterCalls(
            self._connections,
            bootstrap,
            MetadataCache(),
            backoff,
            options.bootstrap_timeout_ms,
            options.request_timeout_ms,
        )

    async def start(self) -> None:
        """Reach the cluster; not needed, but it says soon if there is none."""
        self._check_usable("start the admin client")
        await self._calls.refresh((), self._options.bootstrap_timeout_ms)

    async def close(self) -> None:
        """Break the connections."""
        if self._refusal is not None:
            return
        self._become_closed()
        await self._connections.close()

    stop = close

    async def __aenter__(self) -> Self:
        self._check_usable("use the admin client")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._options.request_timeout_ms if timeout_ms is None else timeout_ms

    async def _any(
        self,
        tried: str,
        method: str,
        request: bytes,
        timeout_ms: int,
        *,
        doubt: Doubt | None = None,
    ) -> bytes:
        """Asked again until somebody answers."""
        await self._learn_brokers(tried, timeout_ms)
        return await self._calls.any(method, request, timeout_ms, doubt=doubt)

    async def _ask_in_portions(
        self,
        tried: str,
        method: str,
        items: Sequence[T],
        encode: Callable[[Sequence[T]], bytes],
        timeout_ms: int,
        *,
        may_repeat: bool = True,
    ) -> list[bytes]:
        """The answers of a call about many things, in order; all in one time."""
        end = time.monotonic() + timeout_ms / 1000
        answers: list[bytes] = []
        for _, request in portions(method, items, encode):
            left_ms = max(1, int((end - time.monotonic()) * 1000))
            answers.append(await self._ask(tried, method, request, left_ms, may_repeat=may_repeat))
        return answers

    async def _ask(
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
        await self._learn_brokers(tried, timeout_ms)
        doubt = doubt or doubt_of(tried, method, may_repeat=may_repeat, validate_only=validate_only)
        answer = await self._calls.until(
            timeout_ms,
            lambda left_ms: self._ask_round(
                method, request, left_ms, may_repeat=may_repeat, doubt=doubt
            ),
            doubt=doubt,
        )
        if isinstance(answer, TidelogError):
            raise answer if doubt is None else doubt.told(answer)
        return answer

    async def _ask_round(
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
                return await self._connections.call(address, method, request, max(1, limit_ms))
            except TidelogError as error:
                if doubt is not None:
                    doubt.note(error)
                if not is_passed_over(error, may_repeat=may_repeat):
                    return error
                failures.append((address, error))
        raise all_failed(failures)

    async def _learn_brokers(self, tried: str, timeout_ms: int) -> None:
        """Fails soon and in words if there is nobody."""
        self._check_usable(tried)
        if not self._calls.metadata.is_known:
            await self._calls.refresh((), timeout_ms)
