"""One stream between its client and several leaders: which reads go on, and which are given up."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import pytest

from tests.broker.groups.subscription.test_host import FakeGroup
from tests.broker.groups.subscription.test_subscription import BEGIN, P0, P1, records
from tidelog.broker.groups.coordinator.leader_offsets import Found
from tidelog.broker.groups.coordinator.watermarks import OwnOffsets
from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.messages import Position, SendAcknowledged, SendRecords
from tidelog.broker.groups.subscription.core.subscription import Subscription
from tidelog.broker.groups.subscription.runner import ForClient, Read, SubscriptionRunner
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.ports import Clock
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, Offset, PartitionId, PartitionKey

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
        return dict.fromkeys(keys, OwnOffsets(Offset(0), Offset(1_000_000), Offset(1_000_000)))

    async def read(
        self, broker_id: BrokerId, wanted: Mapping[PartitionKey, int], isolation: IsolationLevel
    ) -> list[Read]:
        """The next records."""
        assert isolation is IsolationLevel.READ_UNCOMMITTED
        self.begun.append(broker_id)
        await self._clock.sleep(ANSWER_MS[broker_id])
        self.answered.append(broker_id)
        return [
            Read(
                key=key,
                records=records(offset, READ_COUNT),
                next_offset=Offset(offset + READ_COUNT),
                high_watermark=Offset(1_000_000),
                last_stable_offset=Offset(1_000_000),
            )
            for key, offset in wanted.items()
        ]


class Client:
    """Grants what it has been sent, if it does."""

    def __init__(self) -> None:
        self.counts = {0: 0, 1: 0}
        self.runner: SubscriptionRunner | None = None
        self.running: asyncio.Task[None] | None = None
        self.grants = True
        self.reads = asyncio.Event()
        self.reads.set()
        self.answer_count = 0

    async def take(self, told: ForClient) -> None:
        """Something came."""
        await self.reads.wait()
        self.answer_count += isinstance(told, SendAcknowledged)
        if isinstance(told, SendRecords):
            self.counts[told.partition] += len(told.records)
            if self.grants:
                assert self.runner is not None
                self.runner.grant(len(told.records))


def with_stream(credit: int, work: Callable[[Client, Leaders], Awaitable[None]]) -> None:
    """A stream without a group that reads from both leaders."""
    world, has_finished = World(1), asyncio.Event()

    async def serve(ports: SimulatedPorts) -> None:
        client, leaders = Client(), Leaders(ports.clock)
        begin = msgspec.structs.replace(BEGIN, group="", credit_records=credit)
        core = Subscription(begin, "m", ports.clock.monotonic_ns() // 1_000_000)
        client.runner = SubscriptionRunner(core, FakeGroup(), leaders, ports.clock, client.take)
        client.runner.show({P0: "t", P1: "t"})
        client.running = asyncio.create_task(client.runner.run())
        await work(client, leaders)
        client.running.cancel()
        has_finished.set()

    async def main() -> None:
        process = world.machine("m").start("p", serve)
        await asyncio.sleep(10)
        assert process.exit_error is None, process.exit_error
        assert has_finished.is_set(), "it still waits for something"

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


HALF = tuple(
    Position("other", PartitionId(number), Offset(1))
    for number in range(limits.ANSWERS_WAITING_MAX // 2)
)
"""Of partitions that the stream does not own: each is answered with an error."""


@pytest.mark.parametrize(
    ("positions", "count"), [((), limits.ANSWERS_WAITING_MAX), (HALF, 2)], ids=["empty", "refused"]
)
def test_a_client_that_acknowledges_and_takes_no_answers_ends_its_stream(
    positions: Sequence[Position], count: int
) -> None:
    async def work(client: Client, leaders: Leaders) -> None:
        del leaders
        client.reads.clear()
        assert client.runner is not None
        assert client.running is not None
        for correlation_id in range(count):
            client.runner.acknowledge(positions, correlation_id)
        await asyncio.sleep(1)
        assert not client.running.done(), "so much may wait"
        client.runner.acknowledge(positions, count)
        with pytest.raises(TidelogError) as caught:
            await client.running
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert "wait to be read" in caught.value.happened
        assert client.answer_count == 0

    with_stream(READ_COUNT, work)


@pytest.mark.slow
def test_a_client_that_takes_the_answers_late_goes_on_acknowledging() -> None:
    async def work(client: Client, leaders: Leaders) -> None:
        del leaders
        assert client.runner is not None
        assert client.running is not None
        for _ in range(2):
            client.reads.clear()
            for correlation_id in (1, 2):
                client.runner.acknowledge(HALF, correlation_id)
            await asyncio.sleep(1)
            client.reads.set()
            await asyncio.sleep(1)
        assert client.answer_count == 4
        assert not client.running.done()

    with_stream(READ_COUNT, work)
