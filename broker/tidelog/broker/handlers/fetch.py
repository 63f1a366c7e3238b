"""Answers reads: whole batches below the high watermark, at once or when there are some.

Owns the long poll. It must never serve at or above the high watermark. Stop 10 of a record's walk.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tidelog.broker.errors import fresh, invalid
from tidelog.broker.limits import BrokerLimits
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.read import Batches
from tidelog.broker.replicas import Replica, Replicas
from tidelog.ports import RequestContext
from tidelog.wire.batch import checksum, fetch_sum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, TopicId


class FetchPosition(msgspec.Struct, frozen=True):
    """From where one partition is read."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int


class FetchRequest(msgspec.Struct, frozen=True):
    """A long poll."""

    positions: Sequence[FetchPosition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class PartitionBatches(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered of one partition."""

    topic_id: TopicId
    partition: int
    error: TidelogError | None = None
    batches: bytes = b""
    fetch_sum: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1


class FetchHandler:
    """Reads for the unary call; `find` and `read` serve the stream as well."""

    def __init__(self, replicas: Replicas, limits: BrokerLimits) -> None:
        self.replicas = replicas
        self.limits = limits

    async def fetch(self, context: RequestContext, request: FetchRequest) -> list[PartitionBatches]:
        """Partitions with batches or an error; empty after `max_wait_ms` without news."""
        del context
        self.check_positions(len(request.positions))
        if not self._is_ready(request):
            await self._wait_ready(request)
        return await self._read_all(request)

    def check_positions(self, count: int) -> None:
        """Refuse more positions than one request or stream may have."""
        if count > self.limits.fetch_positions_max:
            raise invalid(
                "fetch",
                f"{count} positions, the limit fetch.positions_max is "
                f"{self.limits.fetch_positions_max}",
            )

    def find(self, position: FetchPosition) -> Replica:
        """The replica, if the position can be read there; else a typed error."""
        tried = f"fetch from {position.topic_id.hex()}-{position.partition}"
        replica = self.replicas.find(
            position.topic_id, position.partition, position.leader_epoch, tried=tried
        )
        log = replica.log
        if not log.log_start_offset <= position.fetch_offset <= log.high_watermark:
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                tried=f"fetch from {replica.topic_name}-{position.partition} "
                f"at offset {position.fetch_offset}",
                happened=f"the log reaches from {log.log_start_offset} "
                f"to the high watermark {log.high_watermark}",
            )
        return replica

    async def read(self, replica: Replica, offset: int, max_bytes: int) -> Batches:
        """Whole batches of one partition."""
        return await replica.directory.reader.read(replica.log, offset, max_bytes)

    def _is_ready(self, request: FetchRequest) -> bool:
        """Whether an answer is due: an error, or enough bytes."""
        wanted = max(1, request.min_bytes)
        total = 0
        for position in request.positions:
            try:
                log = self.find(position).log
            except TidelogError:
                return True
            total += log.available_bytes(position.fetch_offset, wanted - total)
            if total >= wanted:
                return True
        return False

    async def _wait_ready(self, request: FetchRequest) -> None:
        """Park until a partition of the request has news that suffice, or the time is over."""
        news = asyncio.Event()

        def on_news(key: PartitionKey) -> None:
            del key
            news.set()

        keys = [
            PartitionKey(each.topic_id, PartitionId(each.partition)) for each in request.positions
        ]
        wait_ms = min(request.max_wait_ms, self.limits.fetch_wait_ms_max)
        for key in keys:
            self.replicas.watch(key, on_news)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not self._is_ready(request):
                    news.clear()
                    await news.wait()
        except TimeoutError:
            return
        finally:
            for key in keys:
                self.replicas.unwatch(key, on_news)

    async def _read_all(self, request: FetchRequest) -> list[PartitionBatches]:
        wanted = request.max_bytes or self.limits.fetch_bytes
        whole = left = min(wanted, self.limits.fetch_bytes_max)
        answers = []
        for position in request.positions:
            try:
                replica = self.find(position)
                if left <= 0 or position.fetch_offset >= replica.log.high_watermark:
                    continue
                max_bytes = min(left, position.max_bytes or self.limits.partition_fetch_bytes)
                found = await self.read(replica, position.fetch_offset, max_bytes)
            except TidelogError as error:
                answers.append(failed_answer(position, error))
                continue
            if not found.data:
                continue
            if len(found.data) > left and left < whole:
                # Only the first batches of an answer may be larger than the whole answer: a
                # client's limit on messages holds for several partitions together. What comes
                # behind is looked at for errors only: reading each in vain would cost the most.
                left = 0
                continue
            left -= len(found.data)
            answers.append(answer_of(position, replica, found))
        return answers


def answer_of(position: FetchPosition, replica: Replica, found: Batches) -> PartitionBatches:
    """The batches with the sum that binds them to their place."""
    log = replica.log
    total = fetch_sum(
        position.topic_id, position.partition, found.base_offset, checksum(found.data)
    )
    return PartitionBatches(
        topic_id=position.topic_id,
        partition=position.partition,
        batches=found.data,
        fetch_sum=total,
        high_watermark=log.high_watermark,
        last_stable_offset=log.high_watermark,
        log_start_offset=log.log_start_offset,
        leader_epoch=log.leader_epoch,
    )


def failed_answer(position: FetchPosition, error: TidelogError) -> PartitionBatches:
    """Why a position cannot be read."""
    return PartitionBatches(
        topic_id=position.topic_id, partition=position.partition, error=fresh(error)
    )
