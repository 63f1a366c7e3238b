"""What is prepared elsewhere: limits hold in the cluster, though each coordinator knows its own."""

from collections.abc import Mapping

from tests.broker.support.transaction_glue import OTHER, OWN
from tests.metadata_quorum.controller import clusters
from tidelog.broker.transactions.coordinator.coordinator import TransactionCoordinator
from tidelog.broker.transactions.coordinator.prepared import PreparedElsewhereKeeper
from tidelog.chaos.sim import World
from tidelog.chaos.sim.ports.clock import SimulatedClock
from tidelog.metadata.image.image import Image
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId


class Told(TransactionCoordinator):
    """Has so many prepared, and keeps what it is told."""

    def __init__(self, own: Mapping[str, int]) -> None:
        self.own = own
        self.elsewhere: Mapping[str, int] = {}

    def prepared(self) -> Mapping[str, int]:
        return self.own

    def hear_prepared(self, by_principal: Mapping[str, int]) -> None:
        self.elsewhere = by_principal


class Broker:
    """Two coordinators here, and others that answer or do not."""

    def __init__(self) -> None:
        self.coordinators = [Told({"alice": 1}), Told({"bob": 2})]
        self.others: dict[BrokerId, Mapping[str, int]] = {OTHER: {"alice": 4}}
        self.image: Image = clusters.with_topic(
            clusters.cluster(3), (1, 2), (2, 1), (3, 1), name="__transactions"
        )

    def led(self) -> list[TransactionCoordinator]:
        return list(self.coordinators)

    async def count_prepared(self, broker_id: BrokerId, *, timeout_ms: int) -> Mapping[str, int]:
        del timeout_ms
        assert broker_id != OWN, "its own coordinators are looked at"
        if broker_id not in self.others:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="call", happened="it is gone")
        return self.others[broker_id]


def test_each_coordinator_is_told_the_sum_of_all_others_and_silence_forgets_nothing() -> None:
    world = World(1)
    clock = SimulatedClock(world.loop, world.machine("node"))

    async def work() -> None:
        broker = Broker()
        keeper = PreparedElsewhereKeeper(broker, lambda: broker.image, broker, clock, broker_id=OWN)
        await keeper.look()
        first, second = broker.coordinators
        assert first.elsewhere == {"alice": 4, "bob": 2}
        assert second.elsewhere == {"alice": 5}
        broker.others = {BrokerId(3): {"carol": 1}}
        await keeper.look()
        assert second.elsewhere == {"alice": 5, "carol": 1}, "what it said last goes on counting"
        broker.image = clusters.with_topic(clusters.cluster(3), (1, 2), name="__transactions")
        await keeper.look()
        assert second.elsewhere == {"alice": 1}, "who leads no partition has none"

    try:
        world.run(work())
    finally:
        world.close()
