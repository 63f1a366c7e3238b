"""One partition of an internal topic, read and written by the coordinator that leads it.

Owns the way in and out: all committed records and ends of transactions in their order, and appends
with acks=all, one batch each. Both go the ordinary way of a partition, reader and owner. It must
never hand out a record that is not committed, nor append in another leader epoch than the one it
was made for: who was deposed and elected again has to read the log again first.

    loading: the log's end at the begin of the epoch ─▶ read up to it, as it becomes committed
    append: epoch of the image as expected? ─▶ sealed ─▶ owner ─▶ committed in that epoch, or failed
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.wire.batch import (
    BatchHeader,
    RecordTuple,
    decode_batch,
    encode_batch,
    iterate_headers,
    read_header,
)
from tidelog.wire.batch.marker import Marker, read_marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    LeaderEpoch,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
)

READ_BYTES: Final = 512 * 1024
"""Of one step of the loading."""
RECORDS_A_TURN: Final = 256
"""Records that are taken in before the loop may turn."""

KeyValue = tuple[bytes, bytes | None]
"""A record of a compacted topic; without value: the key is gone."""
Take = Callable[[bytes, bytes | None], None]
TakeMarker = Callable[[BatchHeader, Marker], None]
"""Told of the end of a producer's transaction, in its place among the records."""
Producer = tuple[ProducerId, ProducerEpoch]


class CoordinatorLog:
    """As long as this broker leads the partition in one leader epoch."""

    def __init__(self, replicas: Replicas, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        self._replicas = replicas
        self._key = key
        self._leader_epoch = leader_epoch
        self._moved = asyncio.Event()

    async def load(self, take: Take, take_marker: TakeMarker | None = None) -> int:
        """Hand over every record, from the first on; how many there were.

        Those of transactions too, in whatever state they are: where records say what they are part
        of, `take_marker` says what becomes of it.

        Returns once the log is read to where it ended when this broker began to lead in this epoch,
        and all of that is committed. The loop turns in between.
        """
        self._replicas.watch(self._key, self._on_moved)
        try:
            return await self._load(take, take_marker)
        finally:
            self._replicas.unwatch(self._key, self._on_moved)

    def append(
        self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None
    ) -> "asyncio.Future[Appended]":
        """One batch; done once it is committed. Who looks at the answer compares the epoch.

        With `producer` it is part of that producer's transaction, which was verified. It has no
        sequence: what is sent again is stored again, and says the same.
        """
        replica = self._replica("append to")
        sealed: list[RecordTuple] = [(wall_ms, key, value, ()) for key, value in records]
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = encode_batch(
            sealed,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer is not None,
        )
        return replica.directory.owner.submit(
            replica.log,
            batch,
            read_header(batch),
            is_flush_awaited=True,
            append_time_ms=wall_ms,
        )

    async def verify(self, transactional_id: str, producer: Producer, timeout_ms: int) -> None:
        """Return once the partition is part of the producer's transaction: a batch of it that is
        appended now is refused only if the transaction ends before its turn."""
        replica = self._replica("add to a transaction")
        producer_id, producer_epoch = producer
        await replica.directory.owner.verify_transaction(
            replica.log,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
        )

    def check(self, appended: Appended) -> None:
        """NOT_LEADER if the batch was committed in another epoch: others may have written before
        it what this coordinator does not know."""
        if appended.leader_epoch != self._leader_epoch:
            raise TidelogError(
                ErrorCode.NOT_LEADER,
                tried=f"append to {self._key} in leader epoch {self._leader_epoch}",
                happened=f"it was committed in leader epoch {appended.leader_epoch}",
            )

    async def _load(self, take: Take, take_marker: TakeMarker | None) -> int:
        replica = self._replica("load")
        # The owner takes the role over in its next turn.
        await replica.directory.owner.turn()
        replica = self._replica("load")
        # What it was about to store as a follower counts as well.
        end = max(replica.log.log_end_offset, replica.log.led_from)
        offset, count = replica.log.log_start_offset, 0
        while True:
            self._moved.clear()
            bound = replica.log.high_watermark
            found = await replica.directory.reader.read(replica.log, offset, READ_BYTES)
            replica = self._replica("load")
            if found.data:
                count += await _take_all(found.data, offset, take, take_marker)
                offset = found.next_offset
            elif bound >= end:
                return count
            else:
                await self._moved.wait()

    def _replica(self, verb: str) -> Replica:
        return self._replicas.find(
            self._key.topic_id,
            self._key.partition,
            self._leader_epoch,
            tried=f"{verb} {self._key}",
        )

    def _on_moved(self, key: PartitionKey) -> None:
        del key
        self._moved.set()


async def _take_all(
    data: bytes, first_offset: int, take: Take, take_marker: TakeMarker | None
) -> int:
    count = 0
    for position, header in iterate_headers(data, is_compacted=True):
        if header.is_control:
            # Of a marker that went with what it ended, a compaction may leave the header.
            is_there = header.record_count and header.base_offset >= first_offset
            if take_marker is not None and is_there:
                take_marker(header, read_marker(data, header, position))
            continue
        for offset, _, _, key, value, _ in decode_batch(data, position, is_compacted=True):
            if offset < first_offset:
                continue
            assert key is not None, "a compacted topic takes no record without a key"
            take(key, value)
            count += 1
            if count % RECORDS_A_TURN == 0:
                await asyncio.sleep(0)
    return count
