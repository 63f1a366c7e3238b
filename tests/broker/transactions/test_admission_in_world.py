"""Transactions end to end on whole nodes: batches let in, markers written, leaders that move."""

import pytest

from tests.broker.support.transaction_world import ABORT, COMMIT
from tests.broker.support.transaction_writes import TransactionWriter
from tests.server.support.cluster_in_world import Cluster, three
from tidelog.broker.transactions.state.answers import Identity
from tidelog.v1 import records_pb2, transaction_admin_pb2, transactions_pb2
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
def test_a_producer_that_goes_on_at_once_is_not_told_to_come_again() -> None:
    """Its batch meets the end of the transaction before it on the way, and waits for that."""

    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        for partition in range(PARTITIONS):
            await writer.write(identity, partition)
        writer.told_again.clear()
        for number in range(20):
            identity = await writer.calls.end("t", identity)
            await writer.write(identity, number // 5)
        assert ErrorCode.CONCURRENT_TRANSACTIONS not in writer.told_again

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


# -- the easy path --------------------------------------------------------------------------------


async def send_record(
    cluster: Cluster, number: int, who: records_pb2.ProducerIdentity | None
) -> records_pb2.ProduceRecordsResponse:
    request = records_pb2.ProduceRecordsRequest(
        topic="orders", partition=0, timeout_ms=5_000, producer=who, transactional_id="t"
    )
    request.records.add(value=b"v")
    data = await cluster.call(number, "RecordsService/ProduceRecords", request.SerializeToString())
    return records_pb2.ProduceRecordsResponse.FromString(data)


@pytest.mark.slow
def test_plain_records_of_a_transaction_go_through_any_broker() -> None:
    async def work(cluster: Cluster) -> None:
        writer = await writer_of(cluster)
        identity = await writer.calls.init("t")
        who = records_pb2.ProducerIdentity(
            producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
        )
        for number in (1, 2, 3):
            who.sequence = number - 1
            answer = await send_record(cluster, number, who)
            (place,) = answer.places
            assert not place.HasField("error"), place
            assert place.offset == number - 1
            assert not answer.duplicates_possible
        await writer.calls.end("t", identity)
        await writer.wait_ended([0])
        headers = await writer.headers(0)
        assert [header.is_control for header in headers] == [False, False, False, True]
        assert all(header.is_transactional for header in headers)
        (place,) = (await send_record(cluster, 1, who)).places
        assert ErrorCode(place.error.code) is ErrorCode.TRANSACTION_ABORTED
        assert place.error.hint

    three(brokers_expected=3).run(work)


@pytest.mark.slow
def test_plain_records_of_a_transaction_need_an_identity() -> None:
    async def work(cluster: Cluster) -> None:
        await writer_of(cluster)
        with pytest.raises(TidelogError) as caught:
            await send_record(cluster, 1, None)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert "InitTransactionalProducer" in caught.value.hint
        who = records_pb2.ProducerIdentity(producer_id=1, producer_epoch=32_767, sequence=0)
        answer = await send_record(cluster, 1, who)
        assert ErrorCode(answer.places[0].error.code) is ErrorCode.INVALID_ARGUMENT

    Cluster(controllers=1, roles="controller,broker").run(work)
