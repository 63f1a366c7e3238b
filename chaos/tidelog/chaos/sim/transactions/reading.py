"""Plain readers of committed records, and the last read of everything."""

from typing import Final

from tidelog.chaos.checkers.transactions import HistoryBuilder
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.client import TransactionalClient
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import TidelogError

_MS: Final = 1_000_000
PAUSE_NS: Final = (2 * _MS, 120 * _MS)
_TO_END: Final = 0.3


class Reader:
    """Reads some partitions, each from its start on."""

    def __init__(
        self, world: World, builder: HistoryBuilder, name: str, partitions: list[str]
    ) -> None:
        self.name: Final = name
        self._world = world
        self._builder = builder
        self._random: SeededRandom = world.seeds.purpose(name)
        self._positions = dict.fromkeys(partitions, 0)
        self.polls = 0

    async def run(self, client: TransactionalClient) -> None:
        """For as long as its process lives."""
        loop = self._world.loop
        self._builder.assign(self.name, self._positions, at_ns=loop.now_ns)
        names = list(self._positions)
        while True:
            await sleep_ns(loop, self._random.between(*PAUSE_NS))
            some = [each for each in names if self._random.chance(0.5)] or names[:1]
            to_end, began_ns = self._random.chance(_TO_END), loop.now_ns
            try:
                read = await client.read(
                    {name: self._positions[name] for name in some},
                    records_max=1 + self._random.below(8),
                    to_end=to_end,
                )
            except TidelogError:
                continue
            self._positions.update(read.positions)
            self.polls += 1
            self._builder.poll(
                self.name,
                read.records,
                began_ns=began_ns,
                ended_ns=loop.now_ns,
                ends=read.ends if to_end else None,
            )


async def drain(
    world: World, builder: HistoryBuilder, client: TransactionalClient, partitions: list[str]
) -> None:
    """Everything is read once more, to the end."""
    name = "judge"
    builder.assign(name, dict.fromkeys(partitions, 0), at_ns=world.loop.now_ns)
    for partition in partitions:
        while True:
            began_ns = world.loop.now_ns
            try:
                read = await client.read({partition: 0}, records_max=20, to_end=True)
            except TidelogError:
                await sleep_ns(world.loop, 20 * _MS)
                continue
            builder.poll(
                name,
                read.records,
                began_ns=began_ns,
                ended_ns=world.loop.now_ns,
                ends=read.ends,
                is_final=True,
            )
            break
