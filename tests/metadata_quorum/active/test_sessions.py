"""Brokers register, beat, stop and die: the session service over the simulated network."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.metadata_quorum.active.broker_calls import Broker
from tests.metadata_quorum.active.voters_world import Voter, Voters, simulate
from tests.metadata_quorum.quorum.quorum_world import until
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.world.process import Process
from tidelog.contract.errors import read_error
from tidelog.v1 import admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

Life = Callable[[Broker], Awaitable[None]]


def start(world: World, broker_id: int, life: Life, *, cluster_id: str = "c") -> Process:
    """A broker's process on a machine of its own."""

    async def live(ports: SimulatedPorts) -> None:
        broker = Broker(ports, broker_id, cluster_id=cluster_id)
        await broker.listen()
        await life(broker)

    return world.machine(f"b{broker_id}").start(f"broker{broker_id}", live)


async def ended(process: Process) -> None:
    """Until the broker's life is over; its failure is the test's."""
    await until(lambda: process.is_dead or None)
    if process.exit_error is not None:
        raise process.exit_error


async def serve_for_good(broker: Broker) -> None:
    """Serve, and beat until killed."""
    await broker.serve()
    while True:
        await asyncio.sleep(1)
        await broker.beat()


def is_serving(voter: Voter, broker_id: int) -> bool:
    known = voter.machine.image().brokers.get(BrokerId(broker_id))
    return known is not None and not known.is_fenced


async def fenced_after_ms(world: World, voter: Voter, broker_id: int) -> float:
    """How long it takes from now."""
    start_s = world.loop.time()
    await until(lambda: not is_serving(voter, broker_id) or None)
    return (world.loop.time() - start_s) * 1000


def test_a_broker_is_unfenced_once_it_has_applied_its_registration() -> None:
    async def life(broker: Broker) -> None:
        await broker.register()
        assert (await broker.beat(applied_index=1, unfence=True)).is_fenced
        assert not (await broker.beat(unfence=True)).is_fenced
        assert not (await broker.beat()).is_fenced

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life))

    simulate(work)


def test_a_registration_sent_again_has_the_same_answer() -> None:
    async def life(broker: Broker) -> None:
        assert await broker.register() == await broker.register()

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life))

    simulate(work)


def test_a_living_broker_keeps_its_id_and_an_older_process_is_told_to_stop() -> None:
    async def life(broker: Broker) -> None:
        await broker.serve()
        older, broker.incarnation = broker.epoch, bytes(16)
        with pytest.raises(TidelogError) as caught:
            await broker.register()
        assert caught.value.code is ErrorCode.BROKER_ID_IN_USE
        await asyncio.sleep(10)
        assert await broker.register() > older
        broker.epoch = older
        answer = await broker.beat()
        assert read_error(answer.error).code is ErrorCode.STALE_BROKER_EPOCH

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life))

    simulate(work)


def test_a_broker_that_died_is_fenced_at_once_and_one_that_is_silent_after_its_session() -> None:
    async def work(world: World) -> None:
        voter = await Voters(world, 1).active()
        dying, silent = start(world, 7, serve_for_good), start(world, 8, serve_for_good)
        await until(lambda: (is_serving(voter, 7) and is_serving(voter, 8)) or None)
        await asyncio.sleep(20)
        assert is_serving(voter, 7)
        assert is_serving(voter, 8)
        dying.kill()
        assert 500 <= await fenced_after_ms(world, voter, 7) <= 1_500
        assert is_serving(voter, 8)
        silent.pause()
        assert 7_000 <= await fenced_after_ms(world, voter, 8) <= 10_000

    simulate(work)


def test_a_broker_whose_stream_breaks_while_it_lives_stays() -> None:
    async def life(broker: Broker) -> None:
        await broker.serve()
        for _ in range(5):
            assert broker.stream is not None
            broker.stream.cancel()
            broker.stream = None
            await asyncio.sleep(1.2)
            assert not (await broker.beat()).is_fenced

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life))

    simulate(work)


async def led_by_node_1(voters: Voters) -> Voter:
    """Brokers here know no other controller."""
    leader = await voters.active()
    while leader.node != 1:
        leader.kill()
        await asyncio.sleep(0.1)
        leader.start()
        leader = await voters.active()
    return leader


def test_a_controller_that_dies_as_a_broker_too_is_fenced_as_soon_as_there_is_another() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 3)
        leader = await led_by_node_1(voters)
        process = start(world, 1, serve_for_good)
        await until(lambda: all(is_serving(each, 1) for each in voters.all.values()) or None)
        await asyncio.sleep(1)
        process.kill()
        leader.kill()
        start_s = world.loop.time()
        next_leader = await voters.active()
        elected_s = world.loop.time()
        assert elected_s - start_s >= 0.5
        assert await fenced_after_ms(world, next_leader, 1) <= 300

    simulate(work)


def test_a_controller_that_falls_silent_as_a_broker_too_is_fenced_a_session_later() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 3)
        leader = await led_by_node_1(voters)
        process = start(world, 1, serve_for_good)
        await until(lambda: all(is_serving(each, 1) for each in voters.all.values()) or None)
        await asyncio.sleep(1)
        assert leader.process is not None
        leader.process.pause()
        process.pause()
        start_s = world.loop.time()
        others = [each for each in voters.all.values() if each is not leader]
        await until(lambda: any(not is_serving(each, 1) for each in others) or None)
        assert 9 <= world.loop.time() - start_s <= 10.2

    simulate(work)


def test_a_controller_before_this_one_that_lives_stays() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 3)
        leader = await led_by_node_1(voters)
        start(world, 1, serve_for_good)
        await until(lambda: all(is_serving(each, 1) for each in voters.all.values()) or None)
        leader.kill()
        next_leader = await voters.active()
        await asyncio.sleep(5)
        assert is_serving(next_leader, 1)

    simulate(work)


def test_a_broker_that_died_together_with_the_controller_is_fenced_by_the_next_one() -> None:
    async def work(world: World) -> None:
        voters = Voters(world, 3)
        leader = await led_by_node_1(voters)
        process = start(world, 7, serve_for_good)
        await until(lambda: is_serving(leader, 7) or None)
        process.kill()
        leader.kill()
        start_s = world.loop.time()
        next_leader = await voters.active()
        await fenced_after_ms(world, next_leader, 7)
        assert world.loop.time() - start_s <= 6

    simulate(work)


def test_a_broker_that_leads_nothing_which_others_could_lead_may_stop_at_once() -> None:
    async def life(broker: Broker) -> None:
        await broker.serve()
        request = admin_pb2.CreateTopicsRequest()
        request.topics.add(name="t", partition_count=2, replication_factor=1)
        await broker.forward("/tidelog.v1.AdminService/CreateTopics", request.SerializeToString())
        answer = await broker.beat(shut_down=True)
        assert answer.may_shut_down
        assert answer.remaining_leaders == 0

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life))

    simulate(work)


def test_a_broker_of_another_cluster_is_not_heard() -> None:
    async def life(broker: Broker) -> None:
        for call in (broker.register, broker.beat):
            with pytest.raises(TidelogError) as caught:
                await call()
            assert caught.value.code is ErrorCode.WRONG_CLUSTER

    async def work(world: World) -> None:
        await Voters(world, 1).active()
        await ended(start(world, 7, life, cluster_id="other"))

    simulate(work)


def test_a_voter_that_does_not_lead_names_the_leader() -> None:
    refusals: list[tuple[ErrorCode, str]] = []

    async def life(broker: Broker) -> None:
        for node in (1, 2, 3):
            try:
                await broker.register(controller=f"node{node}:9")
            except TidelogError as error:
                refusals.append((error.code, error.hint[:9]))
        assert refusals == [(ErrorCode.NOT_CONTROLLER, "Ask node ")] * 2

    async def work(world: World) -> None:
        voters = Voters(world, 3)
        await voters.active()
        await asyncio.sleep(1)
        await ended(start(world, 7, life))
        leader = await voters.active()
        assert BrokerId(7) in leader.machine.image().brokers

    simulate(work)


def test_a_controller_that_was_stopped_itself_fences_nobody_for_that() -> None:
    async def insist(broker: Broker) -> None:
        await broker.serve()
        while True:
            await asyncio.sleep(1)
            try:
                await broker.beat()
            except TidelogError:
                broker.stream = None

    async def work(world: World) -> None:
        voter = await Voters(world, 1).active()
        start(world, 7, insist)
        await until(lambda: is_serving(voter, 7) or None)
        await asyncio.sleep(5)
        assert voter.process is not None
        voter.process.pause()
        await asyncio.sleep(15)
        voter.process.resume()
        for _ in range(400):
            await asyncio.sleep(0.01)
            assert is_serving(voter, 7)
        dying = start(world, 8, serve_for_good)
        await until(lambda: is_serving(voter, 8) or None)
        dying.pause()
        assert 7_000 <= await fenced_after_ms(world, voter, 8) <= 10_000

    simulate(work)


def test_a_leader_that_could_not_write_fences_the_dead_and_none_that_it_refused_to_hear() -> None:
    async def insist(broker: Broker) -> None:
        await broker.serve()
        while True:
            try:
                answer = await broker.beat()
            except (TidelogError, AssertionError):
                broker.stream = None
            else:
                if answer.HasField("error"):
                    broker.stream = None
            await asyncio.sleep(1)

    async def work(world: World) -> None:
        voter = await Voters(world, 1).active()
        controller = voter.controller
        assert controller is not None
        start(world, 7, insist)
        dying = start(world, 8, insist)
        await until(lambda: (is_serving(voter, 7) and is_serving(voter, 8)) or None)
        term = controller.active_term
        voter.storage.refusal = ErrorCode.STORAGE_FULL
        writes = start(world, 9, insist)
        await until(lambda: controller.active_term is None or None)
        writes.kill()
        await asyncio.sleep(15.5)  # The next beat comes half a second later.
        dying.kill()
        voter.storage.refusal = None
        await until(lambda: controller.active_term is not None or None)
        assert controller.active_term == term
        for _ in range(400):
            await asyncio.sleep(0.01)
            assert is_serving(voter, 7), "it lives"
        assert not is_serving(voter, 8), "its address refuses"

    simulate(work)
