"""A parked read: positions named once, batches sent as they become readable, paid for by credit.

Owns what the broker remembers of one fetch stream. It must never send batches without credit, nor
batches from before a seek under the session epoch after it. An idle stream costs no CPU.

Errors, partings and nearer replicas cost no credit: they are sent at once, also to a reader that
has granted none for long, and end the reading of the partition until it is named again. So a
parked partition whose role changes is answered as soon as the image says so. A broker that hears
nothing from a controller would never learn of it: then each parked partition with other replicas is
answered once, with an error after which a reader looks for the leader elsewhere.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.services.fetch.handler import (
    SMALL_ANSWER_BYTES,
    FetchHandler,
    PartitionBatches,
    answer_of,
)
from tidelog.broker.services.fetch.isolation import ABORTED_BYTES, available_bytes, readable_end
from tidelog.broker.services.shared.leadership import Confirmation
from tidelog.broker.shared.pauses import PARTS_A_TURN, Pauses
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

STREAM_ANSWER_BYTES: Final = 1024 * 1024
"""Default of the bytes in one answer."""


class FetchStreamRequest(msgspec.Struct, frozen=True):
    """A change of positions, a grant of credit, or both."""

    positions: Sequence[FetchPosition]
    removed: Sequence[tuple[TopicId, int]]
    credit_bytes: int
    session_epoch: int
    max_bytes: int
    client_rack: str = ""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


class FetchStreamResponse(msgspec.Struct, frozen=True):
    """Batches and errors, as of a session epoch."""

    partitions: Sequence[PartitionBatches]
    session_epoch: int


class FetchSession:
    """State of one stream. `take` is told of requests, `next_answer` is asked for what to send."""

    def __init__(self, handler: FetchHandler, wake: Callable[[], None]) -> None:
        self._handler = handler
        self._wake = wake
        self._positions: dict[PartitionKey, FetchPosition] = {}
        self._ready: dict[PartitionKey, None] = {}
        """With news, as far as is known; whose turn it is stands first."""
        self._urgent: dict[PartitionKey, None] = {}
        """Those of the ready ones that are answered without credit."""
        self._rack: str | None = None
        """None: no request has come yet. The first one says this, and what may be seen."""
        self._isolation = IsolationLevel.READ_UNCOMMITTED
        self._session_epoch = 0
        self._credit_bytes = 0
        self._answer_bytes = STREAM_ANSWER_BYTES
        self._changes = 0
        self._doubted: dict[PartitionKey, TidelogError] = {}
        """Parked ones that another broker may lead by now."""
        handler.replicas.watch_doubt(self._on_doubt)

    def take(self, request: FetchStreamRequest) -> None:
        """Apply a request; INVALID_ARGUMENT beyond the limit of positions ends the stream."""
        self._handler.check_positions(len(request.positions))
        if self._rack is None:
            self._rack, self._isolation = request.client_rack, request.isolation
        for topic_id, partition in request.removed:
            self._remove(PartitionKey(topic_id, PartitionId(partition)))
        for position in request.positions:
            key = PartitionKey(position.topic_id, PartitionId(position.partition))
            self._positions[key] = position
            self._ready[key] = None
            self._doubted.pop(key, None)
            self._handler.replicas.watch(key, self._on_news)
        self._handler.check_positions(len(self._positions))
        if request.positions or request.removed:
            self._changes += 1
        self._session_epoch = max(self._session_epoch, request.session_epoch)
        self._credit_bytes += request.credit_bytes
        limit = self._handler.limits.fetch_bytes_max
        self._answer_bytes = min(limit, request.max_bytes or self._answer_bytes)
        for position in request.positions:
            key = PartitionKey(position.topic_id, PartitionId(position.partition))
            if len(request.positions) <= PARTS_A_TURN:
                self._note_urgent(key)
            elif self._credit_bytes <= 0:
                # Very many are judged where they are answered, some in each turn of the loop.
                self._urgent[key] = None
        self._wake()

    def wanted_bytes(self) -> int:
        """About how large the next answer is going to be."""
        wanted = min(self._answer_bytes, max(0, self._credit_bytes))
        total = 0
        # The first are enough to tell: an answer holds no more partitions.
        for key in islice(self._ready, PARTS_A_TURN):
            position = self._positions.get(key)
            if total >= wanted:
                break
            if position is not None:
                judged = self._judge(position)
                if not isinstance(judged, PartitionBatches):
                    total += available_bytes(
                        judged.log, position.fetch_offset, wanted - total, self._isolation
                    )
        return min(total, wanted)

    async def next_answer(self, bytes_max: int) -> FetchStreamResponse | None:
        """What can be sent now; None if nothing can. A single batch may be larger than asked."""
        answers: list[PartitionBatches] = []
        bytes_max = max(bytes_max, SMALL_ANSWER_BYTES)
        left = min(self._answer_bytes, max(0, self._credit_bytes), bytes_max)
        changes, session_epoch = self._changes, self._session_epoch
        has_credit = self._credit_bytes > 0
        confirmation, pauses = Confirmation(self._handler.leadership), Pauses()
        for key in list(self._ready if has_credit else self._urgent):
            await pauses.part_done()
            if changes != self._changes:
                # A seek came in meanwhile: nothing was read for it, so nothing is given up.
                break
            if has_credit and left <= 0:
                break
            position = self._positions.get(key)
            self._ready.pop(key, None)
            self._urgent.pop(key, None)
            if position is None:
                continue
            answer, is_full = await self._read(
                key, position, left, confirmation, is_first=not answers
            )
            if changes != self._changes:
                # A seek came in while the disk was read: what was read may be from before it.
                self._put_first(key)
                self._note_urgent(key)
                break
            if answer is not None:
                answers.append(answer)
                left -= len(answer.batches) + ABORTED_BYTES * len(answer.aborted)
            if is_full or len(answers) == PARTS_A_TURN:
                break
        if not answers:
            return None
        return FetchStreamResponse(answers, session_epoch)

    @property
    def has_work(self) -> bool:
        """Whether asking for an answer may give one."""
        return bool(self._urgent) or (bool(self._ready) and self._credit_bytes > 0)

    def close(self) -> None:
        """Stop watching."""
        self._handler.replicas.unwatch_doubt(self._on_doubt)
        for key in list(self._positions):
            self._remove(key)

    def _on_news(self, key: PartitionKey) -> None:
        if key in self._positions:
            self._ready[key] = None
            self._note_urgent(key)
            if self.has_work:
                self._wake()

    def _on_doubt(self, error: TidelogError) -> None:
        for key in self._positions:
            replica = self._handler.replicas.get(key.topic_id, key.partition)
            if replica is not None and replica.log.has_other_replicas:
                self._doubted[key] = error
                self._ready[key] = self._urgent[key] = None
        if self.has_work:
            self._wake()

    def _note_urgent(self, key: PartitionKey) -> None:
        """Without credit only what is no batch is answered: look whether there is such a thing."""
        position = self._positions.get(key)
        if self._credit_bytes > 0 or position is None:
            return
        if isinstance(self._judge(position), PartitionBatches):
            self._urgent[key] = None

    def _judge(self, position: FetchPosition) -> Replica | PartitionBatches:
        return self._handler.judge(position, self._rack or "", may_redirect=True)

    def _remove(self, key: PartitionKey) -> None:
        self._positions.pop(key, None)
        self._ready.pop(key, None)
        self._urgent.pop(key, None)
        self._doubted.pop(key, None)
        self._handler.replicas.unwatch(key, self._on_news)

    def _put_first(self, key: PartitionKey) -> None:
        """It was not served in its turn, and so is the first of the next answer.

        Behind the others it could lose its turn each time to the same ones: of two partitions,
        one batch of which fills an answer, only one would be read until it has no more.
        """
        self._ready = {key: None} | self._ready

    async def _read(
        self,
        key: PartitionKey,
        position: FetchPosition,
        left: int,
        confirmation: Confirmation,
        *,
        is_first: bool,
    ) -> tuple[PartitionBatches | None, bool]:
        """One partition's batches, and its position moved behind them; None without news.

        Also tells whether there are news for which the answer has no room any more.
        """
        changes = self._changes
        doubt = self._doubted.get(key)
        if doubt is not None:
            self._remove(key)
            return self._handler.failed(position, doubt), False
        judged = self._judge(position)
        replica = await self._handler.settle(position, self._rack or "", judged, confirmation)
        if changes != self._changes:
            return None, False
        if isinstance(replica, PartitionBatches):
            self._remove(key)
            return replica, False
        if position.fetch_offset >= readable_end(replica.log, self._isolation):
            # Nothing, or the end of a transaction that this reader waits for moved the watermark.
            return None, False
        if left <= 0:
            self._ready.setdefault(key, None)
            return None, False
        wanted = position.max_bytes or self._handler.limits.partition_fetch_bytes
        try:
            found = await self._handler.read(
                replica, position.fetch_offset, min(left, wanted), self._isolation
            )
        except TidelogError as error:
            failed = self._handler.failed(position, error)
            settled = await self._handler.settle(position, self._rack or "", failed, confirmation)
            if changes != self._changes:
                return None, False
            if not isinstance(settled, PartitionBatches):
                self._ready.setdefault(key, None)
                return None, False
            self._remove(key)
            return settled, False
        if changes != self._changes or not found.data:
            return None, False
        if len(found.data) > left and not is_first:
            self._put_first(key)
            return None, True
        self._positions[key] = msgspec.structs.replace(
            position,
            fetch_offset=found.next_offset,
            last_fetched_epoch=replica.log.leader_epochs.epoch_at(found.next_offset - 1),
        )
        self._credit_bytes -= len(found.data)
        if found.next_offset < readable_end(replica.log, self._isolation):
            self._ready[key] = None
        return answer_of(position, replica, found), False
