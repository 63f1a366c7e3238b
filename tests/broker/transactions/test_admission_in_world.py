"""Transactions end to end on whole nodes: batches let in, markers written, leaders that move."""

import pytest

from tests.broker.support.transaction_world import ABORT, COMMIT
from tests.broker.support.transaction_writes import TransactionWriter
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.transactions.state.answers import Identity
from tidelog.v1 import transaction_admin_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

PARTITIONS = 4


async def writer_of(cluster: Cluster, name: str = "t") -> TransactionWriter:
    await cluster.create(1, "orders", PARTITIONS)
    return TransactionWriter(cluster, name, "orders")


@pytest.mark.slow
@pytest.mark.parametrize("decision", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_transaction_in_several_partitions_is_written_and_ended(
    decision: transactions_pb2.TransactionDecision.ValueType,
) -> None:
    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        for round_ in range(3):
            for partition in range(PARTITIONS):
                for sequence in range(2):
                    stored = await writer.write(identity, partition, sequence)
                    assert stored == 3 * round_ + sequence
            identity = await writer.calls.end("t", identity, decision)
        await writer.wait_ended(range(PARTITIONS))
        for partition in range(PARTITIONS):
            marks = [header.is_control for header in await writer.headers(partition)]
            assert marks == [False, False, True] * 3

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_a_leader_that_dies_in_the_transaction_takes_nothing_with_it() -> None:
    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        for partition in range(PARTITIONS):
            assert await writer.write(identity, partition) == 0
        found = writer.leader(0)
        assert found is not None
        cluster.nodes[found[0]].kill()
        for partition in range(PARTITIONS):
            assert await writer.write(identity, partition, 1) == 1
        await writer.calls.end("t", identity)
        cluster.nodes[found[0]].start()
        await writer.wait_ended(range(PARTITIONS))
        for partition in range(PARTITIONS):
            marks = [header.is_control for header in await writer.headers(partition)]
            assert marks == [False, False, True]

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_what_comes_after_the_end_is_refused_and_a_takeover_goes_on() -> None:
    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        assert await writer.write(identity, 0) == 0
        taken_over = await writer.calls.init("t")
        await writer.wait_ended([0])
        for partition in range(2):
            # In one the marker stands; for the other the coordinator is asked.
            refused = await writer.write(identity, partition, 1 - partition)
            assert refused in (ErrorCode.TRANSACTION_ABORTED, ErrorCode.FENCED_PRODUCER_EPOCH)
        assert await writer.write(taken_over, 0) == 2
        await writer.calls.end("t", taken_over)
        await writer.wait_ended([0])

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_a_transaction_that_its_coordinator_knows_is_none_that_hangs() -> None:
    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        assert await writer.write(identity, 0) == 0
        assert await code_of_abort(writer, identity, 0) is ErrorCode.INVALID_TRANSACTION_STATE
        await writer.calls.end("t", identity)
        await writer.wait_ended([0])
        assert await code_of_abort(writer, identity, 0) is None, "nothing is open: nothing is done"

    three(brokers_expected=3).run(work)


async def code_of_abort(
    writer: TransactionWriter, identity: Identity, start: int
) -> ErrorCode | None:
    found = writer.leader(0)
    assert found is not None
    request = transaction_admin_pb2.AbortHangingTransactionRequest(
        producer_id=identity.producer_id, transaction_start_offset=start
    )
    request.partition.topic_id = found[1].log.key.topic_id
    request.partition.partition = 0
    try:
        await writer.cluster.call(
            1, "TransactionAdminService/AbortHangingTransaction", request.SerializeToString()
        )
    except TidelogError as error:
        return error.code
    return None
