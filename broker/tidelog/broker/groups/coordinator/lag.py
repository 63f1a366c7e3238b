"""How far the groups that this broker coordinates lag behind their partitions: for metrics, lists.

Owns a look every few seconds: the committed offsets of the cores here, the watermarks of the
partitions' leaders, wherever they are. Between two looks it answers what it saw last. It must never
hold the loop up, whatever the number of offsets, nor change anything.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.broker.groups.coordinator.keeper import GroupCoordinators
from tidelog.broker.groups.coordinator.leader_offsets import Found, LeaderOffsets
from tidelog.ports import Clock
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

LOOK_MS: Final = 5_000
"""Between two looks: how old a lag may be."""
RECENT_MS: Final = 1_000
"""How old it may be for a list; however many ask, no more looks than these."""
NS_PER_MS: Final = 1_000_000
OFFSETS_A_TURN: Final = 1_000
"""Offsets that are looked at before the loop may turn."""
NOT_KNOWN: Final = -1


class GroupLag(msgspec.Struct, kw_only=True):
    """Of one group."""

    total: int = 0
    """Records committed by producers and not read, over all partitions whose lag is known."""
    partitions: dict[PartitionKey, int] = msgspec.field(default_factory=dict)


class LagKeeper:
    """One a broker. `run()` is its task."""

    def __init__(
        self, coordinators: GroupCoordinators, offsets: LeaderOffsets, clock: Clock
    ) -> None:
        self._coordinators = coordinators
        self._offsets = offsets
        self._clock = clock
        self._groups: dict[str, GroupLag] = {}
        self._looked_ns = -RECENT_MS * NS_PER_MS

    @property
    def groups(self) -> Mapping[str, GroupLag]:
        """Groups with committed offsets, as of the last look."""
        return self._groups

    def lag_of(self, group: str) -> int:
        """Over all of its partitions; -1: not known, or nothing was committed."""
        found = self._groups.get(group)
        return NOT_KNOWN if found is None else found.total

    async def look_again(self) -> None:
        """Look unless that was done within RECENT_MS: who lists groups wants those that have just
        committed as well."""
        if self._clock.monotonic_ns() - self._looked_ns >= RECENT_MS * NS_PER_MS:
            await self.look()

    async def run(self) -> None:
        """Until cancelled."""
        await self._coordinators.wait_begun()
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()

    async def look(self) -> None:
        """Once."""
        self._looked_ns = self._clock.monotonic_ns()
        committed = await self._committed()
        keys = dict.fromkeys(key for _, key, _ in committed)
        held = await self._offsets.of(keys) if keys else {}
        self._groups = await _lags(committed, held)

    async def _committed(self) -> list[tuple[str, PartitionKey, int]]:
        found: list[tuple[str, PartitionKey, int]] = []
        for coordinator in list(self._coordinators.led()):
            core = coordinator.core
            # A core changes when the loop turns: what is taken of one is taken group by group.
            names = [] if core is None else list(core.groups)
            for name in names:
                group = None if core is None else core.groups.get(name)
                if group is None:
                    continue
                found += [
                    (name, key, stored.committed_offset) for key, stored in group.offsets.items()
                ]
                if len(found) % OFFSETS_A_TURN < len(group.offsets):
                    await asyncio.sleep(0)
        return found


async def _lags(committed: list[tuple[str, PartitionKey, int]], held: Found) -> dict[str, GroupLag]:
    groups: dict[str, GroupLag] = {}
    for place, (name, key, offset) in enumerate(committed):
        if place % OFFSETS_A_TURN == OFFSETS_A_TURN - 1:
            await asyncio.sleep(0)
        group = groups.get(name)
        if group is None:
            group = groups[name] = GroupLag()
        offsets = held[key]
        if not isinstance(offsets, TidelogError):
            lag = offsets.lag(offset)
            group.partitions[key] = lag
            group.total += lag
    return groups
