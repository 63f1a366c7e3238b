"""The transactions' part of a scrape: of those that this broker coordinates."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.states import TransactionState

IDS_A_LOOK: Final = 256
"""After so many it is looked whether the loop should turn."""
MS_PER_S: Final = 1_000
STATES: Final = ("idle", "open", "prepared", "ending")


class TransactionSums(msgspec.Struct, frozen=True, kw_only=True):
    """The transactional ids that this broker coordinates."""

    led: int
    """Partitions of `__transactions`."""
    loaded: int
    ids: Mapping[str, int]
    """By what goes on."""
    oldest_seconds: Mapping[str, float]
    """Of what is in progress, by what goes on."""


class LedCoordinator(Protocol):
    """One of a partition that this broker leads."""

    @property
    def core(self) -> TransactionCoordinatorCore | None:
        """None: not loaded yet."""
        ...


async def sum_transactions(
    coordinators: Iterable[LedCoordinator],
    wall_ms: int,
    breathe: Callable[[], Awaitable[None]],
) -> TransactionSums:
    """Look at every transactional id once."""
    ids = dict.fromkeys(STATES, 0)
    started_ms = dict.fromkeys(STATES[1:], wall_ms)
    led = loaded = 0
    for coordinator in list(coordinators):
        core = coordinator.core
        led += 1
        loaded += core is not None
        by_id = {} if core is None else core.transactions.by_id
        for place, name in enumerate(list(by_id)):
            found = by_id.get(name)
            if found is not None:
                kind = _kind_of(found.value)
                ids[kind] += 1
                if kind in started_ms:
                    started_ms[kind] = min(started_ms[kind], found.value.started_ms)
            if place % IDS_A_LOOK == IDS_A_LOOK - 1:
                await breathe()
    await breathe()
    oldest = {kind: max(0, wall_ms - since) / MS_PER_S for kind, since in started_ms.items()}
    return TransactionSums(led=led, loaded=loaded, ids=ids, oldest_seconds=oldest)


def _kind_of(value: TransactionValue) -> str:
    if value.is_idle:
        return "idle"
    if value.is_ending:
        return "ending"
    return "prepared" if value.state is TransactionState.PREPARED else "open"
