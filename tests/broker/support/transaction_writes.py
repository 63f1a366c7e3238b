"""A producer of transactions on whole nodes: finds leaders, writes, looks at what is stored."""

import asyncio
from collections.abc import Sequence

from tests.broker.support.node_in_world import partition_batch
from tests.broker.support.transaction_world import Transactions
from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.transactions.state.answers import Identity
from tidelog.v1 import produce_pb2
from tidelog.wire.batch import BatchHeader, encode_batch, iterate_headers
from tidelog.wire.errors import ErrorCode, TidelogError

TRIES = 400
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNAVAILABLE,
        ErrorCode.INDETERMINATE,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class TransactionWriter:
    """Under one transactional id."""

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = topic
        self.calls = Transactions(cluster)
        self.told_again: list[ErrorCode] = []
        """What it was told where it sent the same batch again."""

    def leader(self, partition: int) -> tuple[int, Replica] | None:
        """Who leads the partition, and its replica there."""
        for number, each in self.cluster.nodes.items():
            is_dead = each.process is None or each.process.is_dead
            view = None if is_dead or each.node is None else each.node.view()
            if view is None or view.image is None or view.replicas is None:
                continue
            topic = view.image.topic_named(self.topic)
            replica = None if topic is None else view.replicas.get(topic.topic_id, partition)
            if replica is not None and replica.is_led:
                return number, replica
        return None

    async def write(self, identity: Identity, partition: int, sequence: int = 0) -> ErrorCode | int:
        """The offset, once it is stored; or why it never will be."""
        batch = encode_batch(
            [(1, b"k", b"%d" % sequence, ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for _ in range(TRIES):
            found = self.leader(partition)
            if found is not None:
                number, replica = found
                request = produce_pb2.ProduceRequest(
                    batches=[partition_batch(replica.log.key.topic_id, partition, batch)],
                    transactional_id=self.name,
                    timeout_ms=5_000,
                )
                answer = await self._send(number, request)
                if not isinstance(answer, ErrorCode) or answer not in AGAIN:
                    return answer
                self.told_again.append(answer)
            await asyncio.sleep(0.05)
        raise AssertionError(f"nothing is ever stored in {self.topic}-{partition}")

    async def _send(self, number: int, request: produce_pb2.ProduceRequest) -> ErrorCode | int:
        """Once, at that broker."""
        try:
            data = await self.cluster.call(
                number, "ProduceService/Produce", request.SerializeToString(), 10.0
            )
        except TidelogError as error:
            return error.code
        (answer,) = produce_pb2.ProduceResponse.FromString(data).acknowledgements
        return ErrorCode(answer.error.code) if answer.HasField("error") else answer.base_offset

    async def wait_ended(self, partitions: Sequence[int]) -> None:
        """Until no transaction holds readers of these partitions back."""

        def is_ended() -> bool:
            found = [self.leader(each) for each in partitions]
            return all(
                each is not None
                and each[1].log.last_stable_offset == each[1].log.log_end_offset
                and not len(each[1].log.transactions)
                for each in found
            )

        await self.cluster.wait(is_ended)

    async def headers(self, partition: int) -> list[BatchHeader]:
        """The batches of the partition, at its leader."""
        found = self.leader(partition)
        assert found is not None
        replica, headers = found[1], list[BatchHeader]()
        while True:
            offset = headers[-1].next_offset if headers else 0
            read = await replica.directory.reader.read(replica.log, offset, 1 << 20)
            if not read.data:
                return headers
            headers += [header for _, header in iterate_headers(read.data)]
