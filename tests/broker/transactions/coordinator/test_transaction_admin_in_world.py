"""Operators ask any node of a simulated cluster about transactions; all coordinators answer."""

import pytest

from tests.broker.support.transaction_world import Transactions
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.v1 import transaction_admin_pb2 as pb
from tidelog.wire.errors import ErrorCode, TidelogError

SERVICE = "TransactionAdminService"
PARTITIONS = 16


async def listed(
    cluster: Cluster, number: int, max_transactions: int = 0
) -> pb.ListTransactionsResponse:
    request = pb.ListTransactionsRequest(max_transactions=max_transactions)
    data = await cluster.call(number, f"{SERVICE}/ListTransactions", request.SerializeToString())
    return pb.ListTransactionsResponse.FromString(data)


async def described(cluster: Cluster, number: int, *names: str) -> list[pb.TransactionDescription]:
    request = pb.DescribeTransactionsRequest(transactional_ids=names)
    data = await cluster.call(
        number, f"{SERVICE}/DescribeTransactions", request.SerializeToString()
    )
    return list(pb.DescribeTransactionsResponse.FromString(data).transactions)


@pytest.mark.slow
def test_every_node_lists_the_ids_of_all_coordinators() -> None:
    async def work(cluster: Cluster) -> None:
        assert (await listed(cluster, 2)).missing_coordinators == 0, "nobody has used one yet"
        producer = Transactions(cluster)
        names = [f"t{number}" for number in range(12)]
        given = {name: await producer.init(name, timeout_ms=20_000) for name in names}
        for number in cluster.nodes:
            found = await listed(cluster, number)
            assert found.missing_coordinators == 0
            assert list(found.answered_coordinators) == list(range(PARTITIONS))
            assert [each.transactional_id for each in found.transactions] == sorted(names)
            for each in found.transactions:
                assert each.identity.producer_id == given[each.transactional_id].producer_id
                assert (each.state, each.age_ms) == (pb.TRANSACTION_STATE_EMPTY, -1)
        first = await listed(cluster, 1, max_transactions=5)
        assert first.next_after_id == sorted(names)[4]
        places = {each.coordinator_id for each in await described(cluster, 3, *names)}
        assert places == set(cluster.nodes), "each node coordinates some of twelve"
        (known, unknown) = await described(cluster, 3, "t0", "nobody")
        assert (known.timeout_ms, known.start_time_ms) == (20_000, -1)
        assert unknown.error.code == int(ErrorCode.TRANSACTION_NOT_FOUND)

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_any_node_hands_an_abort_to_the_coordinator() -> None:
    async def work(cluster: Cluster) -> None:
        producer = Transactions(cluster)
        await producer.init("t0")
        for number in cluster.nodes:
            request = pb.AbortTransactionRequest(transactional_id="t0")
            data = await cluster.call(
                number, f"{SERVICE}/AbortTransaction", request.SerializeToString()
            )
            assert not pb.AbortTransactionResponse.FromString(data).was_aborted
            request = pb.AbortTransactionRequest(transactional_id="nobody")
            with pytest.raises(TidelogError) as caught:
                await cluster.call(
                    number, f"{SERVICE}/AbortTransaction", request.SerializeToString()
                )
            assert caught.value.code is ErrorCode.TRANSACTION_NOT_FOUND

    three(brokers_expected=3).run(work)
