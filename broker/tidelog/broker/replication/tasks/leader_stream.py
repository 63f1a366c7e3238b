"""The leader's end of replication streams: what followers ask, and what they are sent.

The thin part around `LeaderSession`: one task takes requests, one reads the logs and sends. A
stream that another one has superseded changes nothing any more (`follower_streams`). Stop 7 of a
record's walk.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.replication.leader.answer import AnswerDraft, Read
from tidelog.broker.replication.leader.session import Counts, Effect, LeaderSession, Unwatch, Watch
from tidelog.broker.replication.leader.tail import Piece, Tail
from tidelog.broker.replication.shared.messages import (
    DEFAULT_REPLICATION_LIMITS,
    FetchAnswer,
    FetchAsk,
    FollowerPosition,
    Lane,
    OnFollowerGone,
    OnFollowerPosition,
    ReplicationLimits,
)
from tidelog.broker.replication.tasks.follower_streams import FollowerStreams
from tidelog.broker.shared.errors import fresh
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock, TaskScope
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionKey
from tidelog.wire.refusals import invalid

TRIED: Final = "send copies to a follower"
_NS_PER_MS: Final = 1_000_000


class FollowerEnd(Protocol):
    """The stream, as the handler sees it."""

    async def receive(self) -> FetchAsk | None:
        """The next request; None: there will be none."""
        ...

    async def send(self, answer: FetchAnswer) -> None:
        """Queue an answer; waits while the follower is slow."""
        ...

    def cancel(self) -> None:
        """Break the stream."""
        ...


class ReplicaFetchHandler:
    """One a broker; `rpc.replica.ReplicaRpc` puts it on the cluster listener."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: ImageSource,
        clock: Clock,
        *,
        cluster_id: str,
        on_follower_position: OnFollowerPosition,
        on_follower_gone: OnFollowerGone | None = None,
        streams: FollowerStreams | None = None,
        limits: ReplicationLimits = DEFAULT_REPLICATION_LIMITS,
    ) -> None:
        self.replicas = replicas
        self.metadata = metadata
        self.clock = clock
        self.limits = limits
        self.on_follower_position = on_follower_position
        self._on_follower_gone = on_follower_gone
        self.tail = Tail(limits.tail_bytes_max)
        self._cluster_id = cluster_id
        self.streams = streams or FollowerStreams()
        """Those in force."""

    def tell_gone(
        self, keys: Iterable[PartitionKey], broker_id: BrokerId, broker_epoch: BrokerEpoch
    ) -> None:
        """A lane has let these go: what it said of them holds no more, but for what another has."""
        if self._on_follower_gone is not None:
            for key in self.streams.left(keys, broker_id):
                self._on_follower_gone(key, broker_id, broker_epoch)

    async def serve(self, end: FollowerEnd) -> None:
        """One stream, to its end."""
        ask = await end.receive()
        if ask is None:
            return
        self._check_cluster(ask.cluster_id)
        self.check_broker(ask.broker_id, ask.broker_epoch)
        if ask.lane is None or ask.session_sequence != 1:
            raise invalid("pull copies", "a stream begins with its lane and a full start")
        stream = LeaderStream(self, end, ask.broker_id, ask.broker_epoch, ask.lane)
        self.streams.begin(ask.broker_id, ask.lane, ask.session_id, stream)
        try:
            await stream.run(ask)
        finally:
            # Whoever is still there begins anew, and says it again.
            pulled = list(stream.session.partitions)
            stream.close()
            self.streams.end(ask.broker_id, ask.lane, stream)
            self.tell_gone(pulled, ask.broker_id, ask.broker_epoch)

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> Replica:
        """The replica, led here at this very epoch, by the metadata and by the log's owner.

        Before its owner has taken the role over, and while a tail is cut off that another leader
        did not have, the log still holds what it will not: no follower may be measured by it.
        """
        replica = self.replicas.find(key.topic_id, key.partition, leader_epoch, tried=TRIED)
        log = replica.log
        if log.leader_epoch != leader_epoch or log.is_being_cut:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=TRIED,
                happened=f"{key}: this broker is about to lead it at leader epoch {leader_epoch}",
            )
        return replica

    def is_in_sync(self, key: PartitionKey, broker_id: BrokerId) -> bool:
        """As far as the metadata here tell."""
        partition = self.metadata.image().partition(key.topic_id, key.partition)
        return partition is not None and broker_id in partition.in_sync_replicas

    def is_unclean(self, key: PartitionKey, broker_id: BrokerId) -> bool:
        """As far as the metadata here tell; the follower goes by the same."""
        partition = self.metadata.image().partition(key.topic_id, key.partition)
        is_recovered = partition is not None and partition.is_recovered_unclean
        return is_recovered and not self.is_in_sync(key, broker_id)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise TidelogError(
                ErrorCode.WRONG_CLUSTER,
                tried="pull copies",
                happened=f"the caller belongs to cluster {cluster_id[:100]}, "
                f"this node to {self._cluster_id}",
            )

    def check_broker(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """A process that another one has taken over from is not heard; one that registered a
        moment ago may be ahead of the metadata here."""
        broker = self.metadata.image().brokers.get(broker_id)
        if broker is not None and broker_epoch < broker.epoch:
            raise TidelogError(
                ErrorCode.STALE_BROKER_EPOCH,
                tried=f"pull copies as broker {broker_id}",
                happened=f"its epoch is {broker_epoch}, the broker is at {broker.epoch}",
            )


class LeaderStream:
    """One stream: its session, and the tasks around it."""

    def __init__(
        self,
        handler: ReplicaFetchHandler,
        end: FollowerEnd,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        lane: Lane,
    ) -> None:
        self._handler = handler
        self._end = end
        self._broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.session = LeaderSession(self, lane, handler.limits)
        self._news = asyncio.Event()
        self._numbers_wait = asyncio.Event()
        """Numbers have moved that nobody has been told."""
        self._is_superseded = False
        self._heard_ns = 0

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> PartitionLog:
        """See `LeaderView`."""
        return self._handler.find(key, leader_epoch).log

    def is_in_sync(self, key: PartitionKey) -> bool:
        """See `LeaderView`."""
        return self._handler.is_in_sync(key, self._broker_id)

    def is_unclean(self, key: PartitionKey) -> bool:
        """See `LeaderView`."""
        return self._handler.is_unclean(key, self._broker_id)

    def supersede(self) -> None:
        """A newer stream counts from now on."""
        self._is_superseded = True
        self.close()
        self._end.cancel()

    def close(self) -> None:
        """Let go of what the session holds."""
        self._perform(self.session.close())

    async def run(self, first: FetchAsk) -> None:
        """To the stream's end."""
        async with TaskScope() as scope:
            ask: FetchAsk | None = first
            scope.start(self._send_answers(), name="copies to a follower")
            scope.start(self._time_numbers(), name="numbers for a follower")
            scope.start(self._watch_silence(), name="silence of a follower")
            while ask is not None:
                self._take(ask)
                ask = await self._end.receive()
            scope.cancel()

    def _take(self, ask: FetchAsk) -> None:
        if self._is_superseded:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried=TRIED,
                happened="a newer stream of this follower and lane has begun",
            )
        self._handler.check_broker(self._broker_id, self.broker_epoch)
        self._heard_ns = self._handler.clock.monotonic_ns()
        session, limit = self.session, self._handler.limits.positions_max
        if len(session.partitions) + len(ask.positions) > 2 * limit:
            raise invalid("pull copies", f"more than {limit} partitions in one session")
        self._perform(session.on_request(ask))
        if ask.removed:
            self._handler.tell_gone(ask.removed, self._broker_id, self.broker_epoch)
        if session.has_work:
            self._news.set()

    def _perform(self, effects: Iterable[Effect]) -> None:
        replicas = self._handler.replicas
        for effect in effects:
            if isinstance(effect, Counts):
                self._count(effect.position)
            elif isinstance(effect, Watch):
                replicas.watch(effect.key, self._on_news)
                replicas.watch_end(effect.key, self._on_news)
            else:
                assert isinstance(effect, Unwatch), f"an effect that nobody performs: {effect}"
                replicas.unwatch(effect.key, self._on_news)
                replicas.unwatch_end(effect.key, self._on_news)

    def _count(self, position: FollowerPosition) -> None:
        """The owner moves the watermark by it, the policy of the in-sync set judges it."""
        if self._handler.streams.comes_late(self._broker_id, position):
            return
        replica = self._handler.find(position.key, position.leader_epoch)
        at = self.follower_at(position)
        replica.directory.owner.follower_at(at)
        self._handler.on_follower_position(at)

    def follower_at(self, told: FollowerPosition) -> FollowerAt:
        """What counts of a position, with whose it is."""
        return FollowerAt(
            key=told.key,
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            leader_epoch=told.leader_epoch,
            partition_epoch=told.partition_epoch,
            log_end_offset=told.log_end_offset,
            flushed_offset=told.flushed_offset,
        )

    def _on_news(self, key: PartitionKey) -> None:
        self.session.on_news(key)
        if self.session.has_work:
            self._news.set()
        elif self.session.are_numbers_waiting:
            self._numbers_wait.set()

    async def _time_numbers(self) -> None:
        """One task for all of them: as long as batches go out at least as often, they take numbers
        along, and there is nothing to do for it."""
        clock, session = self._handler.clock, self.session
        wait_ms = self._handler.limits.numbers_wait_ms
        while True:
            self._numbers_wait.clear()
            if not session.are_numbers_waiting:
                await self._numbers_wait.wait()
            told = session.answer_sequence
            await clock.sleep(wait_ms)
            if session.answer_sequence != told:
                continue
            session.on_numbers_due()
            if session.has_work:
                self._news.set()

    async def _send_answers(self) -> None:
        while True:
            if not self.session.has_work:
                if self.session.are_numbers_waiting:
                    self._numbers_wait.set()
                self._news.clear()
                await self._news.wait()
                continue
            answer = await self._next_answer()
            if answer is not None:
                await self._end.send(answer)

    async def _next_answer(self) -> FetchAnswer | None:
        draft = AnswerDraft(self.session)
        while (read := draft.next_read()) is not None:
            await self._read(draft, read)
        answer = draft.finish()
        self._perform(draft.effects)
        return answer

    async def _read(self, draft: AnswerDraft, read: Read) -> None:
        log, tail = read.log, self._handler.tail
        piece = tail.find(log, read.offset, read.max_bytes)
        if piece is not None:
            draft.take(read, piece)
            return
        try:
            replica = self._handler.find(log.key, read.held.leader_epoch)
            epoch, cut_count = log.leader_epoch, log.cut_count
            found = await replica.directory.reader.read(
                log, read.offset, read.max_bytes, upper_bound=read.upper_bound
            )
        except TidelogError as error:
            draft.fail(read, fresh(error))
            return
        if not found.data:
            draft.take(read, None)
        elif self.session.lane is Lane.LIVE and (epoch, cut_count) == _state_of(log):
            draft.take(read, tail.keep(log, read.offset, found.data, found.next_offset))
        else:
            draft.take(read, Piece(found.data, found.next_offset, checksum(found.data)))

    async def _watch_silence(self) -> None:
        """A follower that is gone without a word holds a session for a while only."""
        clock, silence_ms = self._handler.clock, 2 * self._handler.limits.silence_ms
        while True:
            await clock.sleep(silence_ms // 2)
            if clock.monotonic_ns() - self._heard_ns > silence_ms * _NS_PER_MS:
                raise TidelogError(
                    ErrorCode.UNAVAILABLE,
                    tried=TRIED,
                    happened=f"broker {self._broker_id} was silent for {silence_ms} ms",
                )


def _state_of(log: PartitionLog) -> tuple[LeaderEpoch, int]:
    """Changes when the log does anything but grow."""
    return (log.leader_epoch, log.cut_count)
