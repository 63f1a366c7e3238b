"""Brokers tell their clocks: verdicts, who leads what is stamped, what an operator is shown."""

import asyncio

from tests.metadata_quorum.active.broker_calls import Broker
from tests.metadata_quorum.active.test_sessions import ended, start
from tests.metadata_quorum.active.voters_world import Voter, Voters, simulate
from tests.metadata_quorum.quorum.quorum_world import until
from tidelog.chaos.sim import World
from tidelog.v1 import admin_pb2, broker_admin_pb2

DAY_MS = 86_400_000
RIGHT, OFF = broker_admin_pb2.CLOCK_STATE_RIGHT, broker_admin_pb2.CLOCK_STATE_OFF
CREATE = "/tidelog.v1.AdminService/CreateTopics"
LIST = "/tidelog.v1.BrokerAdminService/ListBrokers"


async def beat_on(broker: Broker) -> None:
    """With a right clock, until killed."""
    broker.off_ms = 0
    await broker.serve()
    while True:
        await asyncio.sleep(1)
        await broker.beat()


def leader(voter: Voter) -> int:
    """Of the only partition; -1: there is none yet."""
    topics = list(voter.machine.image().topics.values())
    return int(topics[0].partitions[0].leader_id) if topics else -1


async def create_topic(broker: Broker, timestamp_type: str) -> None:
    request = admin_pb2.CreateTopicsRequest()
    request.topics.add(
        name="t",
        partition_count=1,
        replication_factor=2,
        configuration={"message.timestamp.type": timestamp_type},
    )
    await broker.forward(CREATE, request.SerializeToString())


def test_a_broker_is_told_how_far_its_clock_is_off_the_others() -> None:
    async def life(broker: Broker) -> None:
        broker.off_ms = DAY_MS
        await broker.serve()
        await asyncio.sleep(3)
        answer = await broker.beat()
        assert answer.clock_state == OFF
        assert abs(answer.clock_skew_ms - DAY_MS) < 1_000
        assert answer.clock_skew_max_ms == 60_000
        listed = broker_admin_pb2.ListBrokersResponse.FromString(await broker.forward(LIST, b""))
        assert [each.clock_state for each in listed.brokers] == [RIGHT, OFF]
        assert abs(listed.brokers[1].clock_skew_ms - DAY_MS) < 1_000
        broker.off_ms = 30
        assert (await broker.beat()).clock_state == RIGHT
        broker.off_ms = None
        assert (await broker.beat()).clock_state == broker_admin_pb2.CLOCK_STATE_UNSPECIFIED

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        start(world, 7, beat_on)
        await ended(start(world, 8, life))

    simulate(work)


def test_a_controller_alone_with_a_broker_that_disagrees_takes_neither_for_right() -> None:
    async def life(broker: Broker) -> None:
        broker.off_ms = DAY_MS
        await broker.serve()
        no_majority = broker_admin_pb2.CLOCK_STATE_NO_MAJORITY
        assert (await broker.beat()).clock_state == no_majority
        broker.off_ms = 0
        assert (await broker.beat()).clock_state == RIGHT

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 8, life))

    simulate(work)


def follow_the_lead(timestamp_type: str) -> list[int]:
    """Who leads: at first, and some time after the leader's clock was seen to be off."""
    seen: list[int] = []

    async def work(world: World) -> None:
        voter = await Voters(world, 1).active()
        made = asyncio.Event()

        async def life(broker: Broker) -> None:
            broker.off_ms = 0
            await broker.serve()
            if broker.broker_id == 7:
                await create_topic(broker, timestamp_type)
                made.set()
            await made.wait()
            first = leader(voter)
            seen.extend([first] if broker.broker_id == 7 else [])
            broker.off_ms = DAY_MS if broker.broker_id == first else 0
            while True:
                await asyncio.sleep(1)
                await broker.beat()

        start(world, 8, life)
        await until(lambda: len(voter.machine.image().brokers) or None)
        start(world, 7, life)
        await until(lambda: seen or None)
        await asyncio.sleep(8)
        seen.append(leader(voter))

    simulate(work)
    return seen


def test_what_is_stamped_by_a_clock_that_is_off_gets_another_leader() -> None:
    first, then = follow_the_lead("LogAppendTime")
    assert {first, then} == {7, 8}


def test_what_carries_its_producers_time_stays_where_it_is() -> None:
    first, then = follow_the_lead("CreateTime")
    assert first == then
