"""Coordinators of transactions on whole nodes: found, asked, moved."""

import asyncio

import pytest

from tests.broker.support.transaction_world import ABORT, COMMIT, Transactions, find, sent
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.limits import PREPARED_PER_PRINCIPAL_MAX
from tidelog.v1 import admin_pb2, config_admin_pb2, metadata_admin_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerEpoch


def after(identity: Identity, epochs: int = 1) -> Identity:
    """So many ends later."""
    return Identity(identity.producer_id, ProducerEpoch(identity.producer_epoch + epochs))


@pytest.mark.slow
def test_the_topic_is_made_at_first_use_and_only_the_coordinator_answers() -> None:
    async def work(cluster: Cluster) -> None:
        names = [f"t{number}" for number in range(8)]
        places = await find(cluster, 1, *names)
        assert not any(each.HasField("error") for each in places), places
        request = admin_pb2.DescribeTopicsRequest(topic_names=["__transactions"])
        data = await cluster.call(1, "AdminService/DescribeTopics", request.SerializeToString())
        (topic,) = admin_pb2.DescribeTopicsResponse.FromString(data).topics
        assert topic.is_internal
        assert (len(topic.partitions), topic.replication_factor) == (16, 3)
        producer = Transactions(cluster)
        first = await producer.init("t0")
        elsewhere = next(each for each in cluster.nodes if each != places[0].broker_id)
        request_of_end = transactions_pb2.EndTransactionRequest(
            transactional_id="t0", identity=sent(first), decision=COMMIT
        )
        with pytest.raises(TidelogError) as caught:
            await producer.call_at(elsewhere, "EndTransaction", request_of_end)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR
        assert caught.value.retriable

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_an_end_of_nothing_brings_a_new_epoch_also_when_its_answer_was_lost() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        first = await producer.init("t")
        second = await producer.end("t", first)
        assert second == after(first)
        assert await producer.end("t", first) == second, "its answer was lost"
        assert await producer.code_of_end("t", first, ABORT) is ErrorCode.INVALID_TRANSACTION_STATE
        third = await producer.end("t", second, ABORT)
        assert await producer.code_of_end("t", first) is ErrorCode.FENCED_PRODUCER_EPOCH
        node = cluster.nodes[1]
        node.kill()
        node.start()
        assert await producer.end("t", second, ABORT) == third, "what was answered is in the log"
        taken = await producer.init("t")
        assert taken == after(third)
        assert await producer.code_of_end("t", third) is ErrorCode.FENCED_PRODUCER_EPOCH

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_a_request_without_an_identity_is_not_taken_for_the_first_producer_s() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        await producer.init("t")
        for method, request in (
            ("EndTransaction", transactions_pb2.EndTransactionRequest(decision=COMMIT)),
            ("PrepareTransaction", transactions_pb2.PrepareTransactionRequest()),
            ("DecidePrepared", transactions_pb2.DecidePreparedRequest(decision=COMMIT)),
        ):
            request.transactional_id = "t"
            with pytest.raises(TidelogError) as caught:
                await producer.call_at(1, method, request)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
            assert "identity" in caught.value.tried

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_two_ids_never_get_one_producer_id_whoever_coordinates_them() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        given = [await producer.init(f"t{number}") for number in range(12)]
        assert len({each.producer_id for each in given}) == len(given)
        assert {each.producer_epoch for each in given} == {0}

    three(brokers_expected=3).run(work)


async def set_transaction_version(cluster: Cluster, level: int) -> None:
    """As an operator does."""
    request = metadata_admin_pb2.FinaliseFeaturesRequest(allow_downgrade=True)
    request.levels.add(name="transaction.version", level=level)
    method = "MetadataAdminService/FinaliseFeatures"
    await cluster.call(1, method, request.SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1])
def test_transactions_are_off_while_their_feature_is(level: int) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        first = await producer.init("t")
        await set_transaction_version(cluster, level)
        with pytest.raises(TidelogError) as caught:
            await find(cluster, 1, "t")
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
        assert "transaction.version=2" in caught.value.hint
        request = transactions_pb2.EndTransactionRequest(
            transactional_id="t", identity=sent(first), decision=COMMIT
        )
        with pytest.raises(TidelogError) as caught:
            await producer.call_at(1, "EndTransaction", request)
        assert caught.value.code is ErrorCode.NOT_IMPLEMENTED
        await set_transaction_version(cluster, 2)
        assert await producer.end("t", first) == after(first)

    Cluster(controllers=1, roles="controller,broker").run(work)


async def set_cluster(cluster: Cluster, name: str, value: str) -> None:
    """As an operator does."""
    target = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER)
    request = config_admin_pb2.AlterConfigsRequest()
    request.alterations.add(target=target).changes.add(name=name, value=value)
    data = await cluster.call(1, "ConfigService/AlterConfigs", request.SerializeToString())
    (result,) = config_admin_pb2.AlterConfigsResponse.FromString(data).results
    assert not result.HasField("error"), result


@pytest.mark.slow
def test_the_longest_timeout_is_a_setting_of_the_cluster() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        first = await producer.init("t", timeout_ms=900_000)
        with pytest.raises(TidelogError) as caught:
            await producer.init("t", timeout_ms=900_001)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        await set_cluster(cluster, "transaction.max.timeout.ms", "5000")
        with pytest.raises(TidelogError) as caught:
            await producer.init("t", timeout_ms=5_001)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert await producer.init("t") == after(first)

    Cluster(controllers=1, roles="controller,broker").run(work)


@pytest.mark.slow
def test_prepared_transactions_are_limited_over_all_coordinators() -> None:
    """Trap 32: each coordinator knows its own; every few seconds it hears of the others."""

    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        names = [f"t{number}" for number in range(PREPARED_PER_PRINCIPAL_MAX + 1)]
        given = {name: await producer.init(name) for name in names}
        places = {await producer.coordinator(name) for name in names}
        assert places == {1, 2, 3}, "they are spread"
        for name in names[:-1]:
            await producer.prepare(name, given[name])
        last = names[-1]
        await asyncio.sleep(6)
        with pytest.raises(TidelogError) as caught:
            await producer.prepare(last, given[last])
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert "PREPARED_PER_PRINCIPAL_MAX" in caught.value.happened
        await producer.decide(names[0], given[names[0]], ABORT)
        await producer.decide(names[0], given[names[0]], ABORT)
        await asyncio.sleep(6)
        await producer.prepare(last, given[last])

    three(brokers_expected=3).run(work)
