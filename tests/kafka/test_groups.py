"""What a group adds to the names of kafka-python, as far as it needs no cluster.

What a cluster does with it, the scripts tell: group_auto_commit, group_commit, group_members.
"""

import asyncio
from typing import Any

import pytest

from tests.client.support.contract_server import ContractServer
from tidelog.client.types.groups import GroupState as State
from tidelog.client.types.groups import GroupType as Type
from tidelog.kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    KafkaConsumer,
    TopicPartition,
    errors,
)
from tidelog.kafka.admin import GroupState, GroupType, MemberToRemove
from tidelog.kafka.admin.groups import STATES, TYPES
from tidelog.kafka.consumer.commit_future import CommitFuture
from tidelog.kafka.consumer.subscription_state import checked_listener
from tidelog.kafka.coordinator.assignors.abstract import strategy_of
from tidelog.kafka.coordinator.assignors.range import RangePartitionAssignor
from tidelog.kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tidelog.kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

NAME = TopicPartition("t", 0)


def test_a_commit_s_future_tells_those_who_asked_before_and_after() -> None:
    seen: list[Any] = []
    future = CommitFuture()
    future.add_callback(seen.append).add_errback(lambda error: seen.append("failed"))
    assert not future.is_done
    assert seen == []
    future.settle("offsets", None)
    future.add_both(seen.append)
    assert seen == ["offsets", "offsets"]
    assert future.succeeded()
    assert not future.failed()


def test_a_commit_that_failed_has_an_error_and_calls_errbacks_only() -> None:
    seen: list[Any] = []
    future = CommitFuture()
    future.add_callback(seen.append).add_errback(lambda word, error: seen.append(word), "failed")
    future.settle("offsets", errors.CoordinatorNotAvailableError("gone"))
    assert seen == ["failed"]
    assert future.failed()
    assert future.retriable()
    assert isinstance(future.exception, errors.KafkaError)


def test_a_listener_may_have_coroutines() -> None:
    seen: list[Any] = []

    class Listener(AsyncConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await asyncio.sleep(0)
            seen.append(("revoked", revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            await asyncio.sleep(0)
            seen.append(("assigned", assigned))

    told = checked_listener(Listener())
    told.on_partitions_assigned({NAME})
    told.on_partitions_lost({NAME})
    assert seen == [("assigned", {NAME}), ("revoked", {NAME})]


def test_a_plain_listener_is_told_of_a_loss_as_of_a_revocation() -> None:
    seen: list[Any] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            seen.append(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            seen.append(assigned)

    listener = Listener()
    assert checked_listener(listener) is listener
    listener.on_partitions_lost({NAME})
    assert seen == [{NAME}]
    with pytest.raises(TypeError, match="listener must be"):
        checked_listener(object())


def test_assignors_of_kafka_python_stand_for_the_coordinator_s() -> None:
    assert strategy_of([RangePartitionAssignor, RoundRobinPartitionAssignor]) == "range"
    assert strategy_of((RoundRobinPartitionAssignor(),)) == "uniform"
    assert strategy_of([StickyPartitionAssignor]) == "uniform"
    assert strategy_of("range") == "range"
    assert strategy_of([]) is None
    with pytest.raises(errors.KafkaConfigurationError, match="the coordinator assigns"):
        strategy_of([object])
    for name in ("range", "roundrobin"):
        assert strategy_of([name]) in ("range", "uniform")


def test_every_state_and_type_has_kafka_s_word() -> None:
    assert set(STATES) == set(State)
    assert set(TYPES) == set(Type)
    assert GroupState.build_from("preparing-rebalance") is GroupState.PREPARING_REBALANCE
    assert GroupState.build_from("stable") is GroupState.STABLE
    with pytest.raises(ValueError, match="Unrecognized GroupType"):
        GroupType.build_from("no such type")


def test_a_member_to_remove_is_known_by_its_names() -> None:
    assert MemberToRemove("a", reason="r") == MemberToRemove("a")
    assert len({MemberToRemove("a"), MemberToRemove("a"), MemberToRemove(None, "a")}) == 2


@pytest.mark.slow
def test_without_a_group_there_is_nothing_to_commit() -> None:
    with ContractServer() as server, KafkaConsumer(bootstrap_servers=server.address) as consumer:
        for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(NAME)):
            with pytest.raises(errors.IllegalStateError, match="Requires group_id"):
                call()
        assert consumer.group_metadata() == (None, -1, "", None, "<unjoined>")
