"""A call that any node may answer: which address is asked when.

Owns the order of the addresses and the patience with each. One address is asked after the other,
the next one when the one before has failed, or has said nothing for ADDRESS_TIMEOUT_MS. An address
that has never answered may be one that swallows everything: a call that only reads is sent to the
next one beside it after HEDGE_MS, and the first answer counts. It must never send a call that
changes something to two nodes at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.client.shared import lifecycle
from tidelog.client.shared.asking import (
    ADDRESS_TIMEOUT_MS,
    HEDGE_MS,
    Answer,
    OnAnswer,
    OnFailure,
    all_failed,
    nobody_is_told,
    only_reads,
)
from tidelog.wire.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.sync.connections import Connections


class Round:
    """Every address once, in order, until one answers; on whichever thread something comes."""

    def __init__(
        self,
        connections: Connections,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_answer: OnAnswer,
        on_failure: OnFailure = nobody_is_told,
    ) -> None:
        assert addresses, "a round needs an address"
        self._connections = connections
        self._left = list(addresses)
        self._method = method
        self._data = data
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._may_hedge = only_reads(method)
        self._lock = threading.Lock()
        self._asked: dict[str, None] = {}
        """Without an answer so far."""
        self._errors: dict[str, TidelogError] = {}
        self._is_over = False
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Ask the first one."""
        self._ask_beside()

    def _ask_beside(self) -> None:
        """The next one, whatever became of those before."""
        with self._lock:
            address = self._take()
        if address is not None:
            self._ask(address)

    def _take(self) -> str | None:
        """Who is asked next; None: nobody. Under the lock."""
        is_late = bool(self._errors) and time.monotonic() >= self._deadline
        if self._is_over or not self._left or is_late:
            return None
        address = self._left.pop(0)
        self._asked[address] = None
        return address

    def _ask(self, address: str) -> None:
        left_ms = int((self._deadline - time.monotonic()) * 1000)
        # The last address may use all that is left: nobody waits behind it.
        timeout_ms = min(left_ms, ADDRESS_TIMEOUT_MS) if self._left else left_ms
        if self._left and self._may_hedge and not self._connections.has_answered(address):
            self._hedge_soon()

        def on_answer(answer: Answer) -> None:
            self._on_part(address, answer)

        self._connections.call_later(
            address, self._method, self._data, max(1, timeout_ms), on_answer
        )

    def _hedge_soon(self) -> None:
        timer = threading.Timer(HEDGE_MS / 1000, self._ask_beside)
        timer.daemon = True
        with self._lock:
            former, self._timer = self._timer, timer
        if former is not None:
            former.cancel()
        with lifecycle.watching_threads():
            timer.start()

    def _on_part(self, address: str, answer: Answer) -> None:
        following, told = None, None
        if isinstance(answer, TidelogError):
            self._on_failure(answer)
        with self._lock:
            self._asked.pop(address, None)
            if isinstance(answer, TidelogError):
                self._errors[address] = answer
                following = self._take()
            if not self._is_over and (isinstance(answer, bytes) or not self._asked):
                self._is_over = True
                told = answer
            timer = self._timer
        if following is not None:
            self._ask(following)
        if told is None:
            return
        if timer is not None:
            timer.cancel()
        is_error = isinstance(told, TidelogError)
        self._on_answer(all_failed(list(self._errors.items())) if is_error else told)
