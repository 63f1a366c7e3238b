"""One stream between its client and several leaders: which reads go on, and which are given up."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from tests.broker.subscriptions.test_host import FakeGroup
from tests.broker.subscriptions.test_subscription import BEGIN, P0, P1, records
from tidelog.broker.coordinators.leader_offsets import Found
from tidelog.broker.coordinators.watermarks import OwnOffsets
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.subscriptions.core import Subscription
from tidelog.broker.subscriptions.messages import SendRecords
from tidelog.broker.subscriptions.runner import ForClient, Read, SubscriptionRunner
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.ports import Clock
from tidelog.wire.ids import BrokerId, Offset

NEAR, FAR = BrokerId(1), BrokerId(2)
READ_COUNT = 5
LEADERS = {P0: NEAR, P1: FAR}
ANSWER_MS = {NEAR: 1, FAR: 20}


class Leaders:
    """One that answers soon and one that takes its time; both always have more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.leaders = dict(LEADERS)
        self.begun: list[BrokerId] = []
        self.answered: list[BrokerId] = []

    def leader(self, key: PartitionKey) -> BrokerId | None:
        """As told."""
        return self.leaders[key]

    async def offsets(self, keys: Sequence[PartitionKey]) -> Found:
        """Much."""
        return dict.fromkeys(keys, OwnOffsets(Offset(0), Offset(1_000_000)))

    async def read(self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int]) -> list[Read]:
        """The next records."""
        self.begun.append(broker_id)
        await self._clock.sleep(ANSWER_MS[broker_id])
        self.answered.append(broker_id)
        return [
            Read(
                key=key,
                records=records(offset, READ_COUNT),
                next_offset=offset + READ_COUNT,
                high_watermark=1_000_000,
            )
            for key, offset in wanted.items()
        ]


class Client:
    """Grants what it has been sent, if it does."""

    def __init__(self) -> None:
        self.counts = {0: 0, 1: 0}
        self.runner: SubscriptionRunner | None = None
        self.grants = True

    async def take(self, told: ForClient) -> None:
        """Something came."""
        if isinstance(told, SendRecords):
            self.counts[told.partition] += len(told.records)
            if self.grants:
                assert self.runner is not None
                self.runner.grant(len(told.records))


def with_stream(credit: int, work: Callable[[Client, Leaders], Awaitable[None]]) -> None:
    """A stream without a group that reads from both leaders."""
    world = World(1)

    async def serve(ports: SimulatedPorts) -> None:
        client, leaders = Client(), Leaders(ports.clock)
        begin = msgspec.structs.replace(BEGIN, group="", credit_records=credit)
        core = Subscription(begin, "m", 0)
        client.runner = SubscriptionRunner(core, FakeGroup(), leaders, ports.clock, client.take)
        client.runner.show({P0: "t", P1: "t"})
        running = asyncio.create_task(client.runner.run())
        await work(client, leaders)
        running.cancel()

    async def main() -> None:
        process = world.machine("m").start("p", serve)
        await asyncio.sleep(10)
        assert process.exit_error is None, process.exit_error

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


def test_a_leader_that_answers_later_is_read_beside_one_that_uses_up_the_credit_each_time() -> None:
    async def work(client: Client, leaders: Leaders) -> None:
        await asyncio.sleep(0.3)
        assert leaders.answered.count(FAR) > 10, leaders.answered.count(FAR)
        assert client.counts[1] >= 50, client.counts
        assert client.counts[0] > client.counts[1], "who answers sooner does not wait"

    with_stream(READ_COUNT, work)


def test_without_credit_reads_under_way_end_and_no_other_begins() -> None:
    async def work(client: Client, leaders: Leaders) -> None:
        client.grants = False
        await asyncio.sleep(1)
        assert client.counts == {0: READ_COUNT, 1: 0}
        assert leaders.begun == [NEAR, FAR]
        assert leaders.answered == [NEAR, FAR]

    with_stream(READ_COUNT, work)


def test_a_read_at_a_broker_that_leads_no_more_is_given_up() -> None:
    async def work(client: Client, leaders: Leaders) -> None:
        await asyncio.sleep(0.005)
        assert leaders.begun.count(FAR) == 1
        leaders.leaders[P1] = NEAR
        await asyncio.sleep(0.2)
        assert FAR not in leaders.answered
        assert client.counts[1] >= 50, client.counts

    with_stream(READ_COUNT, work)
