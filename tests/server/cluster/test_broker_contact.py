"""A broker that hears nothing from a controller says so to those who wait."""

import asyncio
from typing import cast

import pytest

from tests.server.cluster.test_fetch_in_world import Reader, three_racks
from tests.server.cluster.test_replicas_in_world import isolate
from tests.server.support.cluster_in_world import Cluster
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.replicas.watchers import ReplicaWatchers
from tidelog.metadata_quorum.stream.session_client import BrokerSession, contact_ms
from tidelog.ports import Clock
from tidelog.server.roles.broker_contact import Contact, ContactWatch
from tidelog.wire.errors import ErrorCode, TidelogError


class FakeSession:
    """As much of a session as is looked at."""

    def __init__(self) -> None:
        self.session_timeout_ms = 9_000
        self.silent_ms = 0
        self.is_fenced = False
        self.breaks = 1


async def confirmed() -> None:
    """The quorum has answered, and what it named is here."""


def shown(session: FakeSession) -> Contact:
    """Of a broker that has all metadata."""
    contact = Contact(cast("BrokerSession", session))
    asyncio.run(contact.show(confirmed))
    return contact


def test_it_is_said_once_in_each_session_s_time_of_silence() -> None:
    watchers, told = ReplicaWatchers(), list[TidelogError]()
    watchers.watch_doubt(told.append)
    session = cast("BrokerSession", FakeSession())
    watch = ContactWatch(session, watchers, cast("Clock", None), Contact(session), confirmed)
    counts = []
    for silent_ms in (0, 9_499, 9_500, 10_000, 18_500, 19_000, 400, 9_500):
        watch.look(silent_ms, 9_000)
        counts.append(len(told))
    assert counts == [0, 0, 1, 1, 2, 2, 2, 3]
    assert all(each.code is ErrorCode.UNAVAILABLE for each in told)


@pytest.mark.slow
def test_a_reader_that_waits_at_a_leader_without_a_controller_looks_elsewhere() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        reader = Reader(topic, old)
        await reader.name(5, leader_epoch=topic.now().leader_epoch)
        isolate(cluster, old)
        new = await topic.led_by_other_than(old)
        await topic.produce(1)
        answer = await reader.answer()
        assert answer.error.code == ErrorCode.UNAVAILABLE.value
        assert "no controller" in answer.error.happened
        follower = Reader(topic, new)
        await follower.name(5)
        assert (await follower.answer()).batches
        cluster.world.heal()
        await topic.in_sync(1, 2, 3)
        await topic.holds_all()

    three_racks().run(work)


@pytest.mark.slow
def test_a_cluster_without_a_controller_goes_on_serving() -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        leader = topic.now().leader_id
        for number in (1, 2, 3):
            cluster.nodes[number].kill()
        reader = Reader(topic, leader)
        await reader.name(5)
        assert (await reader.answer()).error.code == ErrorCode.UNAVAILABLE.value
        assert await topic.try_produce(leader) is None, "its followers are in sync"
        await reader.name(5)
        assert (await reader.answer()).batches

    Cluster(controllers=3, brokers=3).run(work)


@pytest.mark.parametrize(
    ("session_timeout_ms", "expected_ms"), [(9_000, 7_000), (3_000, 2_000), (1_000, 667)]
)
def test_contact_is_lost_before_a_controller_can_have_ended_the_session(
    session_timeout_ms: int, expected_ms: int
) -> None:
    assert contact_ms(session_timeout_ms) == expected_ms
    session = FakeSession()
    session.session_timeout_ms = session_timeout_ms
    contact = shown(session)
    session.silent_ms = expected_ms - 1
    assert contact.holds()
    session.silent_ms = expected_ms
    assert not contact.holds()


def test_a_broker_that_is_told_to_be_fenced_is_in_no_contact_that_counts() -> None:
    session = FakeSession()
    session.is_fenced = True
    contact = shown(session)
    assert not contact.holds()
    assert not contact.is_to_be_shown


def test_the_answer_after_a_silence_is_no_contact_before_the_quorum_says_who_leads() -> None:
    session = FakeSession()
    contact = shown(session)
    session.breaks = 2
    assert not contact.holds(), "a controller that stood still as well answers like any other"
    assert contact.is_to_be_shown

    async def unreachable() -> None:
        raise TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="no majority")

    with pytest.raises(TidelogError, match="no majority"):
        asyncio.run(contact.show(unreachable))
    assert not contact.holds()
    asyncio.run(contact.show(confirmed))
    assert contact.holds()


def test_a_silence_during_the_question_is_not_answered_by_it() -> None:
    session = FakeSession()
    contact = shown(session)
    session.breaks = 2

    async def confirm_late() -> None:
        session.breaks = 3

    asyncio.run(contact.show(confirm_late))
    assert not contact.holds()


@pytest.mark.slow
def test_a_reader_is_told_to_look_elsewhere_after_the_time_that_this_cluster_has_for_silence() -> (
    None
):
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster)
        await topic.produce(5)
        old = topic.now().leader_id
        reader = Reader(topic, old)
        await reader.name(5, leader_epoch=topic.now().leader_epoch)
        isolate(cluster, old)
        began_ns = cluster.world.loop.now_ns
        answer = await reader.answer()
        assert answer.error.code == ErrorCode.UNAVAILABLE.value
        assert (cluster.world.loop.now_ns - began_ns) // 1_000_000 < 4_500
        cluster.world.heal()

    cluster = three_racks()
    for node in cluster.nodes.values():
        node.settings = {**node.settings, "quorum.session_timeout_ms": "3000"}
    cluster.run(work)
