"""Members of a group, on both drivers, against a coordinator in memory."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer, Log
from tests.client.support.drivers import Clients
from tests.client.support.group_members import (
    PARTITIONS,
    CoroutinesTold,
    Member,
    T,
    Told,
    clients,
    member,
    produce,
    read,
    refused,
    server,
    until,
)
from tests.support.waiting import NEVER_MS, ended, wait_until
from tidelog.client import Producer, TopicPartition
from tidelog.client.errors import CommitFailedError, ErrorCode
from tidelog.client.reading import group_base

__all__ = ["clients", "member", "server"]

pytestmark = pytest.mark.slow


def test_members_share_partitions_and_a_leavers_move(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    first, second = member("t"), member("t")
    assert len(read(first, 5 * PARTITIONS)) == 5 * PARTITIONS
    until(lambda: len(second.assignment()) == 2, first, second)
    assert first.assignment() | second.assignment() == set(T)
    assert second.poll(50) == {}, "what was read was committed before it moved"
    first.close()
    until(lambda: second.assignment() == set(T), second)
    assert second.poll(50) == {}
    assert server.groups.committed("g") == dict.fromkeys(range(PARTITIONS), 5)


def test_two_groups_each_get_everything(member: Member, server: ContractServer) -> None:
    produce(server, 3)
    assert len(read(member("t"), 3 * PARTITIONS)) == 3 * PARTITIONS
    assert len(read(member("t", group="other"), 3 * PARTITIONS)) == 3 * PARTITIONS


def test_the_listener_is_told_what_comes_and_goes(
    clients: Clients, member: Member, server: ContractServer
) -> None:
    told = CoroutinesTold() if clients.driver == "asyncio" else Told()
    first, second = member(), member()
    first.subscribe(["t"], listener=told)
    until(lambda: told.lines, first)
    second.subscribe("t")
    until(lambda: len(second.assignment()) == 2, first, second)
    first.close()
    gone, kept = [
        " ".join(str(n.partition) for n in sorted(names))
        for names in (second.assignment() & set(T), set(T) - second.assignment())
    ]
    assert told.lines == ["assigned 0 1 2 3", f"revoked {gone}", f"revoked {kept}"]


def test_a_listener_can_commit_and_seek(
    clients: Clients, member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    consumer = member(enable_auto_commit=False)

    class Seeks(Told):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            inner = consumer if clients.driver == "threads" else consumer._client
            for name in assigned:
                inner.seek(name, 4)

    consumer.subscribe("t", listener=Seeks())
    assert read(consumer, PARTITIONS) == [4] * PARTITIONS


def test_a_poll_inside_a_listener_is_refused_and_the_error_comes_out(
    clients: Clients, member: Member, server: ContractServer
) -> None:
    consumer = member()

    class Polls(Told):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
            inner = consumer if clients.driver == "threads" else consumer._client
            return inner.poll(0) if clients.driver == "threads" else inner.getmany()

    consumer.subscribe("t", listener=Polls())
    error = refused(lambda: until(lambda: False, consumer))
    assert error.code is ErrorCode.CONCURRENT_USE
    assert "listener" in error.happened
    assert consumer.assignment() == set(T), "the assignment was taken up"


def test_who_does_not_poll_leaves_and_is_told_which_setting_governs_it(
    member: Member, server: ContractServer, caplog: pytest.LogCaptureFixture
) -> None:
    produce(server, 5)
    consumer, told = member(max_poll_interval_ms=300, enable_auto_commit=False), Told()
    consumer.subscribe("t", listener=told)
    read(consumer, 5 * PARTITIONS)
    with caplog.at_level(logging.WARNING, "tidelog.client"):
        until(lambda: server.groups.heartbeats[-1].member_epoch == -1)
    assert "max_poll_interval_ms=300" in caplog.text
    error = refused(consumer.commit)
    assert isinstance(error, CommitFailedError)
    assert set(error.partitions) == set(T)
    assert "max_poll_interval_ms" in str(error)
    assert not error.retriable
    assert not error.fatal
    assert len(read(consumer, 5 * PARTITIONS)) == 5 * PARTITIONS, "it has joined again"
    assert told.lines == ["assigned 0 1 2 3", "lost 0 1 2 3", "assigned 0 1 2 3"]


def test_heartbeats_go_on_while_the_users_code_works(
    member: Member, server: ContractServer
) -> None:
    consumer = member("t")
    until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    count = len(server.groups.heartbeats)
    until(lambda: len(server.groups.heartbeats) > count + 5)
    assert server.groups.heartbeats[-1].member_epoch > 0


def test_a_removed_member_loses_everything_and_joins_again(
    member: Member, server: ContractServer
) -> None:
    produce(server, 5)
    consumer, told = member(), Told()
    consumer.subscribe("t", listener=told)
    read(consumer, 5 * PARTITIONS)
    consumer.commit()
    server.groups.of("g").members.clear()
    until(lambda: len(told.lines) == 3, consumer)
    assert told.lines == ["assigned 0 1 2 3", "lost 0 1 2 3", "assigned 0 1 2 3"]
    assert consumer.poll(50) == {}, "it goes on where it had committed"


def test_a_coordinator_that_is_away_is_waited_for(member: Member, server: ContractServer) -> None:
    produce(server, 5)
    server.groups.is_away = True
    consumer = member("t", enable_auto_commit=False)
    assert consumer.poll(300) == {}
    server.groups.is_away = False
    read(consumer, 5 * PARTITIONS)
    server.groups.is_away = True
    error = refused(lambda: consumer.commit(timeout_ms=200))
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    server.groups.is_away = False
    consumer.commit()
    assert server.groups.committed("g") == dict.fromkeys(range(PARTITIONS), 5)


def test_a_member_too_many_is_told_that_it_is_idle(
    member: Member, server: ContractServer, caplog: pytest.LogCaptureFixture
) -> None:
    members = [member("t") for _ in range(PARTITIONS)]
    until(lambda: all(each.assignment() for each in members), *members)
    with caplog.at_level(logging.INFO, "tidelog.client"):
        idle = member("t")
        until(lambda: idle.is_idle, idle, *members)
    assert "this member is idle" in caplog.text
    assert idle.assignment() == set()
    members[0].close()
    until(lambda: len(idle.assignment()) == 1, idle, *members[1:])
    assert not idle.is_idle


def test_a_static_member_leaves_for_a_while_only(member: Member, server: ContractServer) -> None:
    consumer = member("t", group_instance_id="one")
    until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
    assert consumer.group_metadata().group_instance_id == "one"
    consumer.close()
    assert server.groups.heartbeats[-1].member_epoch == -2
    assert server.groups.heartbeats[-1].group_instance_id == "one"


def test_what_a_member_says_when_it_joins(member: Member, server: ContractServer) -> None:
    consumer = member(
        client_rack="r1",
        session_timeout_ms=12_000,
        max_poll_interval_ms=60_000,
        partition_assignment_strategy="range",
    )
    consumer.subscribe(pattern="t.*")
    until(lambda: server.groups.heartbeats, consumer)
    joined = server.groups.heartbeats[0]
    assert (joined.rack, joined.session_timeout_ms, joined.rebalance_timeout_ms) == (
        "r1",
        12_000,
        60_000,
    )
    assert joined.subscription.topic_pattern == "t.*"
    assert joined.subscription.assignor == 2
    assert joined.heartbeat_sequence == 1
    assert len(joined.member_id) == 36


def test_unsubscribing_commits_and_leaves(member: Member, server: ContractServer) -> None:
    produce(server, 5)
    consumer, told = member(), Told()
    consumer.subscribe("t", listener=told)
    read(consumer, 5 * PARTITIONS)
    consumer.unsubscribe()
    until(lambda: not server.groups.of("g").members)
    assert told.lines == ["assigned 0 1 2 3", "revoked 0 1 2 3"]
    assert consumer.assignment() == set()
    assert server.groups.committed("g") == dict.fromkeys(range(PARTITIONS), 5)
    consumer.subscribe("t")
    until(lambda: consumer.assignment() == set(T), consumer)


def test_a_bug_in_the_member_is_told_by_the_next_poll(
    clients: Clients, member: Member, server: ContractServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_base, "FAREWELL_S", NEVER_MS / 1000)
    produce(server, 5)
    consumer = member("t")
    read(consumer, 5 * PARTITIONS)
    inner = consumer if clients.driver == "threads" else consumer._client
    if clients.driver == "threads":
        inner._member.inbox.put(object())
    else:
        inner._member.put(object())
    error = refused(lambda: until(lambda: False, consumer))
    assert error.code is ErrorCode.UNKNOWN
    assert "bug" in error.hint
    ended(lambda: consumer.close(True, NEVER_MS))


def test_who_cannot_reach_the_coordinator_delivers_nothing_behind_its_session(
    clients: Clients, member: Member, server: ContractServer
) -> None:
    server.groups.session_ms = 500
    produce(server, 5)
    consumer = member("t")
    read(consumer, 5 * PARTITIONS)
    consumer.commit()
    inner = consumer if clients.driver == "threads" else consumer._client
    server.groups.is_away = True
    until(lambda: not inner._may_deliver(), consumer)
    produce(server, 5)
    assert consumer.poll(300) == {}, "by now its partitions may be somebody else's"
    server.groups.is_away = False
    assert len(read(consumer, 5 * PARTITIONS)) == 5 * PARTITIONS


def test_a_partition_that_the_coordinator_knew_first_is_waited_for(
    member: Member, server: ContractServer
) -> None:
    produce(server, 1)
    consumer = member("t")
    assert len(read(consumer, PARTITIONS)) == PARTITIONS
    server.groups.on_created("t", server.topics["t"], PARTITIONS + 1)
    until(lambda: len(consumer.assignment()) == PARTITIONS + 1, consumer)
    assert consumer.poll(300) == {}
    server.logs[server.topics["t"], PARTITIONS] = Log()
    server.version += 1
    with Producer(bootstrap_servers=server.address) as producer:
        producer.send("t", b"7", partition=PARTITIONS)
    assert read(consumer, 1) == [7]


def test_what_is_taken_away_waits_for_its_commit_and_what_stays_goes_on(
    clients: Clients, member: Member, server: ContractServer
) -> None:
    produce(server, 20)
    members = [member("t", max_poll_records=1, auto_commit_interval_ms=60_000)]
    first = members[0]
    inner = first if clients.driver == "threads" else first._client
    found: list[TopicPartition] = []

    def turn() -> None:
        for each in members:
            for name, records in each.poll(10).items():
                found.extend([name] * len(records))

    def poll_until(holds: Callable[[], object]) -> None:
        wait_until(holds, turn=turn)

    poll_until(lambda: first.assignment() == set(T))
    first.pause(*T[:2])
    count = len(found) + 3
    poll_until(lambda: len(found) == count)
    # The model takes the last ones away: one of them is half read.
    server.groups.commit_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    members.append(member("t"))
    poll_until(lambda: inner._group._revoking is not None)
    leaving = {each.topic_partition for each in inner._group._revoking[0].partitions}
    first.resume(*T[:2])
    count = len(found)
    poll_until(lambda: len(found) == count + 10)
    assert not set(found[count:]) & leaving, "those that stay went on, and only those"
    assert first.assignment() == set(T), "it has them until they are committed"
    server.groups.commit_error = None
    poll_until(lambda: len(found) == 20 * PARTITIONS)
    assert first.assignment() == set(T) - leaving
    assert all(found.count(name) == 20 for name in T), "each record once"
