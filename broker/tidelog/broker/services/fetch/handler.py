"""Answers reads: whole batches below the high watermark, at once or when there are some.

Owns the long poll, and what is judged of a position before anything is read: who may serve it
(`fetch.places`), whether its past is this log's, whether it lies in the log. It must never serve at
or above this replica's high watermark, nor to a reader of committed records at or above its last
stable offset (`fetch.isolation`). Stop 10 of a record's walk.

A position above the watermark and not above the log's end waits: the watermark of a new leader may
be behind the one that its predecessor had told, until its followers have said where they stand. One
that is out of range is answered so only after `leadership` has made sure that this broker leads.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.fetch.isolation import (
    Readable,
    available_bytes,
    read_batches,
    readable_end,
)
from tidelog.broker.services.fetch.places import ReadPlaces, check_epoch, parting_of
from tidelog.broker.services.shared.leadership import Confirmation, Leadership
from tidelog.broker.shared.errors import fresh
from tidelog.broker.shared.limits import BrokerLimits
from tidelog.broker.shared.pauses import Pauses
from tidelog.ports import RequestContext
from tidelog.wire.batch import AbortedStretch, checksum, fetch_sum
from tidelog.wire.calls.fetch import Divergence, FetchPosition
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    PartitionId,
    PartitionKey,
    TopicId,
)
from tidelog.wire.refusals import invalid

NO_REPLICA: Final = -1
SMALL_ANSWER_BYTES: Final = 4 * 1024
"""So much is answered without room for it."""
_OTHERS_LEAD: Final = (ErrorCode.NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchRequest(msgspec.Struct, frozen=True):
    """A long poll."""

    positions: Sequence[FetchPosition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    client_rack: str = ""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class PartitionBatches(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered of one partition."""

    topic_id: TopicId
    partition: PartitionId
    error: TidelogError | None = None
    batches: bytes = b""
    fetch_sum: int = 0
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader_id: int | None = None
    """With an error that another broker may not have: who leads in `leader_epoch`."""
    divergence: Divergence | None = None
    preferred_replica: int = NO_REPLICA
    aborted: tuple[AbortedStretch, ...] = ()
    """All that have a batch in `batches`, for a reader of committed records."""


class FetchHandler:
    """Reads for the unary call; `judge` and `read` serve the stream as well."""

    def __init__(
        self,
        replicas: Replicas,
        limits: BrokerLimits,
        leadership: Leadership,
        places: ReadPlaces | None = None,
    ) -> None:
        self.replicas = replicas
        self.limits = limits
        self.leadership = leadership
        self._places = places

    async def fetch(self, context: RequestContext, request: FetchRequest) -> list[PartitionBatches]:
        """Partitions with batches or an error; empty after `max_wait_ms` without news."""
        self.check_positions(len(request.positions))
        self._check_once(request.positions)
        if not self._is_ready(request):
            await self._wait_ready(request)
        wanted = self._answer_bytes(request)
        available = await self._available_bytes(request, wanted)
        if available > SMALL_ANSWER_BYTES:
            wanted = min(wanted, await context.answer_room.take(min(available, wanted)))
        return await self._read_all(request, wanted)

    def check_positions(self, count: int) -> None:
        """Refuse more positions than one request or stream may have."""
        if count > self.limits.fetch_positions_max:
            raise invalid(
                "fetch",
                f"{count} positions, the limit fetch.positions_max is "
                f"{self.limits.fetch_positions_max}",
            )

    def _check_once(self, positions: Sequence[FetchPosition]) -> None:
        """Refuse a partition that is named twice, as writes do: which answer is whose?"""
        seen: dict[tuple[bytes, int], None] = {}
        for each in positions:
            place = each.topic_id, each.partition
            if place in seen:
                name = self.replicas.name_of(each.topic_id, each.partition)
                raise invalid(
                    "fetch",
                    f"the request names partition {name} twice",
                    "Name each partition once.",
                )
            seen[place] = None

    def find(self, position: FetchPosition) -> Replica:
        """The replica, if this broker may serve the position's partition; else a typed error."""
        return self._serving(position, "")

    def judge(
        self, position: FetchPosition, rack: str, *, may_redirect: bool
    ) -> Replica | PartitionBatches:
        """The replica to read; or what is answered instead: an error, a parting, a nearer one."""
        try:
            replica = self._serving(position, rack)
            log, offset = replica.log, position.fetch_offset
            if offset < log.log_start_offset:
                raise (_out_of_range if replica.is_led else _begins_later)(position, replica)
            parting = parting_of(log, offset, position.last_fetched_epoch)
            if not replica.is_led and (parting or offset > log.log_end_offset):
                raise _behind(position, replica)
            if position.last_fetched_epoch > log.leader_epoch:
                raise _unheard_of(position, replica)
            if parting is not None:
                return msgspec.structs.replace(self._bare(position, replica), divergence=parting)
            if offset > log.log_end_offset:
                raise _out_of_range(position, replica)
        except TidelogError as error:
            return self.failed(position, error)
        nearer = self.nearer(position, rack) if may_redirect else NO_REPLICA
        if nearer == NO_REPLICA:
            return replica
        return msgspec.structs.replace(self._bare(position, replica), preferred_replica=nearer)

    async def settle(
        self,
        position: FetchPosition,
        rack: str,
        judged: Replica | PartitionBatches,
        confirmation: Confirmation,
    ) -> Replica | PartitionBatches:
        """What was judged, or, of a position out of range, what is judged of it by a leader."""
        error = judged.error if isinstance(judged, PartitionBatches) else None
        if error is None or error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return judged
        try:
            await confirmation.wait(error.tried)
        except TidelogError as uncertain:
            return self.failed(position, uncertain)
        return self.judge(position, rack, may_redirect=False)

    def nearer(self, position: FetchPosition, rack: str) -> int:
        """A replica that the client should read instead; `NO_REPLICA`: this one."""
        if self._places is None or position.stays_here:
            return NO_REPLICA
        found = self._places.nearer(position.topic_id, position.partition, rack)
        return NO_REPLICA if found is None else found

    def failed(self, position: FetchPosition, error: TidelogError) -> PartitionBatches:
        """Why a position cannot be read, and who leads if that is why."""
        leader = None
        if self._places is not None and error.code in _OTHERS_LEAD:
            leader = self._places.leader(position.topic_id, position.partition)
        key = PartitionKey(position.topic_id, position.partition)
        error = self.replicas.told(key, error)
        leader_id, leader_epoch = (None, NO_LEADER_EPOCH) if leader is None else leader
        replica = self.replicas.get(position.topic_id, position.partition)
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and replica is not None and replica.is_led:
            # Where else to read is for programs as well, which cannot read it from the words.
            return msgspec.structs.replace(self._bare(position, replica), error=fresh(error))
        return PartitionBatches(
            topic_id=position.topic_id,
            partition=position.partition,
            error=fresh(error),
            leader_id=leader_id,
            leader_epoch=LeaderEpoch(leader_epoch),
        )

    def _serving(self, position: FetchPosition, rack: str) -> Replica:
        """The replica held here: led, or followed in sync for a client that says where it is."""
        tried = f"fetch from {self.replicas.name_of(position.topic_id, position.partition)}"
        topic_id, partition = position.topic_id, position.partition
        if rack and self._places is not None:
            replica = self.replicas.get(topic_id, partition)
            is_followed = replica is not None and not replica.is_led
            if is_followed and self._places.is_in_sync(topic_id, partition):
                assert replica is not None, "a replica that is followed is held"
                if replica.log.failure is not None:
                    raise fresh(replica.log.failure)
                check_epoch(replica.log, position.leader_epoch, tried=tried)
                return replica
        return self.replicas.find(topic_id, partition, position.leader_epoch, tried=tried)

    def _bare(self, position: FetchPosition, replica: Replica) -> PartitionBatches:
        """An answer without batches."""
        log = replica.log
        return PartitionBatches(
            topic_id=position.topic_id,
            partition=position.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            leader_epoch=log.leader_epoch,
        )

    async def read(
        self, replica: Replica, offset: int, max_bytes: int, isolation: IsolationLevel
    ) -> Readable:
        """Whole batches of one partition."""
        reader = replica.directory.reader
        return await read_batches(reader, replica.log, offset, max_bytes, isolation)

    def _answer_bytes(self, request: FetchRequest) -> int:
        """How large the whole answer may be."""
        return min(request.max_bytes or self.limits.fetch_bytes, self.limits.fetch_bytes_max)

    def _is_ready(self, request: FetchRequest) -> bool:
        """Whether an answer is due: an error, or enough bytes; what fills it is enough."""
        wanted = max(1, min(request.min_bytes, self._answer_bytes(request)))
        total = 0
        for position in request.positions:
            judged = self.judge(position, request.client_rack, may_redirect=False)
            if isinstance(judged, PartitionBatches):
                return True
            total += available_bytes(
                judged.log, position.fetch_offset, wanted - total, request.isolation
            )
            if total >= wanted:
                return True
        return False

    async def _available_bytes(self, request: FetchRequest, enough_bytes: int) -> int:
        """About how much there is to read; stops counting at enough."""
        total, pauses = 0, Pauses()
        for position in request.positions:
            await pauses.part_done()
            if total >= enough_bytes:
                break
            judged = self.judge(position, request.client_rack, may_redirect=False)
            if isinstance(judged, Replica):
                left = enough_bytes - total
                most = min(left, position.max_bytes or self.limits.partition_fetch_bytes)
                total += min(
                    most,
                    available_bytes(judged.log, position.fetch_offset, most, request.isolation),
                )
        return total

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

    async def _read_all(self, request: FetchRequest, bytes_max: int) -> list[PartitionBatches]:
        whole = left = bytes_max
        answers = []
        rack, confirmation = request.client_rack, Confirmation(self.leadership)
        pauses = Pauses()
        for position in request.positions:
            await pauses.part_done()
            judged = self.judge(position, rack, may_redirect=False)
            replica = await self.settle(position, rack, judged, confirmation)
            if isinstance(replica, PartitionBatches):
                answers.append(replica)
                continue
            end = readable_end(replica.log, request.isolation)
            if left <= 0 or position.fetch_offset >= end:
                continue
            max_bytes = min(left, position.max_bytes or self.limits.partition_fetch_bytes)
            try:
                found = await self.read(
                    replica, position.fetch_offset, max_bytes, request.isolation
                )
            except TidelogError as error:
                failed = self.failed(position, error)
                settled = await self.settle(position, rack, failed, confirmation)
                if isinstance(settled, PartitionBatches):
                    answers.append(settled)
                continue
            if not found.data:
                continue
            if len(found.data) > left and left < whole:
                # Only the first batches of an answer may be larger than the whole answer: a
                # client's limit on messages holds for several partitions together. What comes
                # behind is looked at for errors only: reading each in vain would cost the most.
                left = 0
                continue
            left -= found.size_bytes
            nearer = self.nearer(position, rack)
            answers.append(answer_of(position, replica, found, preferred_replica=nearer))
        return answers


def answer_of(
    position: FetchPosition,
    replica: Replica,
    found: Readable,
    *,
    preferred_replica: int = NO_REPLICA,
) -> PartitionBatches:
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
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        leader_epoch=log.leader_epoch,
        preferred_replica=preferred_replica,
        aborted=found.aborted,
    )


def _out_of_range(position: FetchPosition, replica: Replica) -> TidelogError:
    log = replica.log
    end = "" if log.log_end_offset == log.high_watermark else f", its end is {log.log_end_offset}"
    return TidelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        tried=f"fetch from {replica.topic_name}-{position.partition} "
        f"at offset {position.fetch_offset}",
        happened=f"the log reaches from {log.log_start_offset} "
        f"to the high watermark {log.high_watermark}{end}",
    )


def _begins_later(position: FetchPosition, replica: Replica) -> TidelogError:
    """A follower's log may begin later than its leader's: only the leader can tell."""
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"fetch from {replica.topic_name}-{position.partition} "
        f"at offset {position.fetch_offset}",
        happened=f"this follower's log begins at {replica.log.log_start_offset}",
    )


def _behind(position: FetchPosition, replica: Replica) -> TidelogError:
    """A follower that lags looks as if its log were another: only the leader can tell."""
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"fetch from {replica.topic_name}-{position.partition} "
        f"at offset {position.fetch_offset}",
        happened=f"this follower's log ends at {replica.log.log_end_offset}, "
        "or holds something else there",
    )


def _unheard_of(position: FetchPosition, replica: Replica) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        tried=f"fetch from {replica.topic_name}-{position.partition} "
        f"at offset {position.fetch_offset}",
        happened=f"the reader has had records of leader epoch {position.last_fetched_epoch}, "
        f"the partition is at {replica.log.leader_epoch} here",
    )
