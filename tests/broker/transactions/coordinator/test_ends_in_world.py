"""Whole transactions on whole nodes: data, decision, markers; whoever dies in between."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.support.transaction_world import ABORT, COMMIT, Transactions
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.transactions.state.answers import Identity
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import ProducerEpoch

A0, A1 = ("a", 0), ("a", 1)
Strike = Callable[[], Awaitable[None]]


def after(identity: Identity, epochs: int = 1) -> Identity:
    """So many ends later."""
    return Identity(identity.producer_id, ProducerEpoch(identity.producer_epoch + epochs))


def one() -> Cluster:
    """A node that is everything."""
    return Cluster(controllers=1, roles="controller,broker")


@pytest.mark.slow
def test_a_transaction_ends_in_all_its_partitions_and_the_next_one_begins() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 3)
        first = await producer.init("t")
        for at in (A0, A1):
            assert await producer.produce("t", first, at, topic_id=topic) is None
            assert await producer.stable(topic, at) == (0, 1), "nobody has decided"
        second = await producer.end("t", first)
        assert second == after(first)
        # The next one begins before markers are asked about; it waits for them by itself.
        assert await producer.produce("t", second, A0, topic_id=topic) is None
        third = await producer.end("t", second, ABORT)
        for at in (A0, A1):
            await producer.wait_stable(topic, at)
        assert await producer.log(topic, A1) == [f"data {first}", f"commit {second}"]
        assert await producer.log(topic, A0) == [
            f"data {first}",
            f"commit {second}",
            f"data {second}",
            f"abort {third}",
        ]
        assert await producer.log(topic, ("a", 2)) == []

    one().run(work)


@pytest.mark.slow
def test_an_end_that_was_delayed_decides_nothing_and_a_late_batch_is_refused() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 1)
        first = await producer.init("t")
        assert await producer.produce("t", first, A0, topic_id=topic) is None
        second = await producer.end("t", first, ABORT)
        assert await producer.produce("t", second, A0, topic_id=topic) is None
        # Both were sent in the first transaction and arrive in the second.
        assert await producer.code_of_end("t", first, ABORT) is not None
        late = await producer.produce("t", first, A0, topic_id=topic, sequence=1)
        assert late in (ErrorCode.FENCED_PRODUCER_EPOCH, ErrorCode.TRANSACTION_ABORTED)
        third = await producer.end("t", second)
        await producer.wait_stable(topic, A0)
        assert await producer.log(topic, A0) == [
            f"data {first}",
            f"abort {second}",
            f"data {second}",
            f"commit {third}",
        ]

    one().run(work)


@pytest.mark.slow
def test_a_producer_that_falls_silent_is_aborted_and_goes_on_by_its_last_identity() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 1)
        first = await producer.init("t", timeout_ms=3_000)
        assert await producer.produce("t", first, A0, topic_id=topic) is None
        await asyncio.sleep(2)
        assert await producer.stable(topic, A0) == (0, 1)
        await producer.wait_stable(topic, A0)
        assert await producer.log(topic, A0) == [f"data {first}", f"abort {after(first)}"]
        assert await producer.code_of_end("t", first) is ErrorCode.TRANSACTION_ABORTED
        assert await producer.init("t", expected=first) == after(first)

    one().run(work)


async def whole_transaction(
    producer: Transactions, topic: bytes, strikes: dict[str, Strike]
) -> tuple[Identity, Identity]:
    """What a producer does, struck at the steps that are named."""

    async def step(name: str) -> None:
        if name in strikes:
            await strikes[name]()

    first = await producer.init("t")
    await step("begun")
    assert await producer.produce("t", first, A0, topic_id=topic) is None
    await step("in one partition")
    assert await producer.produce("t", first, A1, topic_id=topic) is None
    await step("in two partitions")
    second = await producer.end("t", first)
    await step("decided")
    for at in (A0, A1):
        await producer.wait_stable(topic, at)
    await step("ended")
    return first, second


STEPS = ("begun", "in one partition", "in two partitions", "decided", "ended")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_node_that_is_killed_between_any_two_steps_ends_what_was_begun(step: str) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 2)
        node = cluster.nodes[1]

        async def restart() -> None:
            node.kill()
            await node.restart()

        first, second = await whole_transaction(producer, topic, {step: restart})
        await restart()
        for at in (A0, A1):
            await producer.wait_stable(topic, at)
            assert await producer.log(topic, at) == [f"data {first}", f"commit {second}"]
        assert await producer.end("t", first, COMMIT) == second

    one().run(work)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_another_broker_coordinates_when_the_coordinator_dies_between_any_two_steps(
    step: str,
) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 2, replicas=3)
        moved: list[int] = []

        async def kill() -> None:
            moved.append(await producer.coordinator("t"))
            cluster.nodes[moved[0]].kill()

        first, second = await whole_transaction(producer, topic, {step: kill})
        for at in (A0, A1):
            await producer.wait_stable(topic, at)
            assert await producer.log(topic, at) == [f"data {first}", f"commit {second}"]
        assert await producer.end("t", first, COMMIT) == second
        assert await producer.coordinator("t") != moved[0]
        third = await producer.init("t")
        assert third == after(second)

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_a_decision_outlives_a_coordinator_that_dies_with_the_leader_of_its_data() -> None:
    """A marker that nobody took waits for the leader; the next coordinator sends it."""

    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        topic = await producer.topic("a", 6)
        number = await producer.coordinator("t")
        leaders = [await producer.leader("a", each) for each in range(6)]
        at = ("a", next(each for each, led_by in enumerate(leaders) if led_by != number))
        first = await producer.init("t")
        assert await producer.produce("t", first, at, topic_id=topic) is None
        leader = await producer.leader(*at)
        cluster.nodes[leader].kill()
        second = await producer.end("t", first)
        cluster.nodes[number].kill()
        for each in (leader, number):
            await cluster.nodes[each].restart()
        await producer.wait_stable(topic, at)
        assert await producer.log(topic, at) == [f"data {first}", f"commit {second}"]

    three(brokers_expected=3).run(work)
