"""A producer with sequences of its own over the contract: sends again until it is answered.

One lane for each partition: a run of batches with ascending sequences over one stream, sent again
from the oldest unanswered one after a break, a refusal or a change of leaders. It must never give
up a batch as refused that an earlier attempt may have stored, and begins a new epoch, or asks for a
new producer id, where it does not know what became of one. Ids are asked for and never made up: a
broker refuses those that the cluster has not handed out.
"""

from collections import deque
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import Acks, Outcome, Send
from tidelog.chaos.workloads.cluster_client import (
    ClusterClient,
    Incarnation,
    Leader,
    is_nothing_stored,
)
from tidelog.chaos.workloads.log_client import (
    PRODUCE_STREAM,
    base_offset_of,
    error_of,
)
from tidelog.v1 import produce_pb2, producer_id_pb2
from tidelog.wire.batch import RecordTuple, encode_batch, route_sum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_PRODUCER_ID

_ALLOCATE: Final = "/tidelog.v1.ProducerIdService/AllocateProducerId"
_CRC: Final = slice(17, 21)
_KEY_BYTES: Final = (4, 16, 60, 300, 1_500)
_IN_FLIGHT_MAX: Final = 5
_PAUSE_MS: Final = (20, 200)
_REQUEST_MS: Final = 4_000
WIRE_ACKS: Final = {
    Acks.ALL: produce_pb2.ACKS_ALL,
    Acks.LEADER: produce_pb2.ACKS_LEADER,
    Acks.NONE: produce_pb2.ACKS_NONE,
}
_GAPS: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.DUPLICATE_SEQUENCE,
    ErrorCode.FENCED_PRODUCER_EPOCH,
)
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC)


class Pending:
    """One batch until its outcome is known."""

    __slots__ = ("attempts", "batch", "is_uncertain", "send", "sequence")

    def __init__(self, send: Send, batch: bytes, sequence: int) -> None:
        self.send = send
        self.batch = batch
        self.sequence = sequence
        self.attempts = 0
        self.is_uncertain = False
        """An attempt may have stored it, or may still."""


class Lane:
    """One partition as this producer writes it."""

    def __init__(self, topic: Incarnation, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.producer_id = int(NO_PRODUCER_ID)
        """Asked for before the next run, if it has none."""
        self.epoch = 0
        self.generation = 0
        self.next_sequence = 0
        self.is_busy = False
        self.is_gone = False

    @property
    def key(self) -> str:
        """In the history."""
        return self.topic.key(self.partition)


class SequencedProducer:
    """Of one client; several lanes may be at work at once."""

    def __init__(self, client: ClusterClient, acks: Acks, *, delivery_ms: int) -> None:
        self.client = client
        self.acks = acks
        self.gaps: list[tuple[str, str]] = []
        """Partition and what was said: the next batch was refused for its sequence."""
        self.resends = 0
        self._delivery_ns = delivery_ms * 1_000_000
        self._lanes: dict[str, Lane] = {}

    def lane(self, topic: Incarnation, partition: int) -> Lane:
        """The lane of a partition."""
        key = topic.key(partition)
        if key not in self._lanes:
            self._lanes[key] = Lane(topic, partition)
        return self._lanes[key]

    async def send_run(self, lane: Lane, count: int) -> None:
        """Send so many batches, and wait for the outcome of each; nothing without a producer id."""
        assert not lane.is_busy, f"{lane.key} is written by one run at a time"
        lane.is_busy = True
        try:
            if await self._identify(lane):
                await self._send_batches(lane, count)
        finally:
            lane.is_busy = False

    async def _identify(self, lane: Lane) -> bool:
        """Whether the lane has a producer id; of one that it has to get, from any broker."""
        if lane.producer_id != NO_PRODUCER_ID:
            return True
        request = producer_id_pb2.AllocateProducerIdRequest()
        try:
            given = await self.client.ask_any(
                _ALLOCATE, request, producer_id_pb2.AllocateProducerIdResponse
            )
        except TidelogError as error:
            self.client.on_error(error)
            return False
        lane.producer_id, lane.epoch = given.producer_id, given.producer_epoch
        return True

    async def _send_batches(self, lane: Lane, count: int) -> None:
        pending = deque(self._seal(lane) for _ in range(count))
        until_ns = self.client.now_ns + self._delivery_ns
        try:
            while pending and self.client.now_ns < until_ns and not lane.is_gone:
                await self._try_once(lane, pending, until_ns)
                if pending:
                    await self.client.ports.clock.sleep(
                        _PAUSE_MS[0] + self.client.below(_PAUSE_MS[1])
                    )
        finally:
            self._give_up(lane, pending)

    # -- batches -------------------------------------------------------------------------------

    def _seal(self, lane: Lane) -> Pending:
        client = self.client
        values, records = make_records(client)
        sequence = lane.next_sequence
        lane.next_sequence += len(values)
        batch = encode_batch(
            records,
            producer_id=lane.producer_id,
            producer_epoch=lane.epoch,
            base_sequence=sequence,
        )
        now_ns = client.now_ns
        send = Send(
            client=client.name,
            partition=lane.key,
            values=values,
            began_ns=now_ns,
            ended_ns=now_ns,
            outcome=Outcome.INDETERMINATE,
            stream=f"{client.name}/{lane.key}/{lane.generation}",
            stream_position=sequence,
            acks=self.acks,
        )
        client.history.begin(send)
        return Pending(send, batch, sequence)

    def _end(self, pending: Pending, outcome: Outcome, base_offset: int = -1) -> None:
        self.client.history.end(
            msgspec.structs.replace(
                pending.send,
                ended_ns=self.client.now_ns,
                outcome=outcome,
                base_offset=base_offset,
            )
        )

    def _give_up(self, lane: Lane, pending: deque[Pending]) -> None:
        """What is left has no known outcome, unless no attempt can have stored it."""
        if not pending:
            return
        while pending:
            each = pending.popleft()
            self._end(each, Outcome.INDETERMINATE if each.is_uncertain else Outcome.FAILED)
        self._renew(lane)

    def _renew(self, lane: Lane) -> None:
        """Another epoch, or another identity: what is under way of the old one is another run."""
        lane.generation += 1
        lane.next_sequence = 0
        if self.client.below(2):
            lane.epoch += 1
        else:
            lane.producer_id = int(NO_PRODUCER_ID)

    # -- attempts ------------------------------------------------------------------------------

    async def _try_once(self, lane: Lane, pending: deque[Pending], until_ns: int) -> None:
        leader = await self.client.find_leader(lane.topic, lane.partition)
        if leader is None:
            lane.is_gone = not self.client.is_present(lane.topic) and not any(
                each.is_uncertain for each in pending
            )
            return
        network = self.client.ports.network
        try:
            stream = network.stream(leader.address, PRODUCE_STREAM)
        except TidelogError as error:
            self.client.on_error(error)
            return
        waiting: dict[int, Pending] = {}
        try:
            unsent = deque(pending)
            in_flight_max = 1 + self.client.below(_IN_FLIGHT_MAX)
            while (unsent or waiting) and self.client.now_ns < until_ns:
                if unsent and len(waiting) < in_flight_max:
                    each = unsent.popleft()
                    number = each.sequence + 1
                    waiting[number] = each
                    self.resends += bool(each.attempts)
                    each.attempts += 1
                    request = self._request(lane, each, leader, number)
                    was_uncertain, each.is_uncertain = each.is_uncertain, True
                    try:
                        await stream.send(request.SerializeToString())
                    except TidelogError as error:
                        each.is_uncertain = was_uncertain or not is_nothing_stored(error)
                        raise
                    continue
                reply = await stream.receive()
                if reply is None:
                    return
                if not self._take_answer(lane, pending, waiting, reply):
                    return
        except TidelogError as error:
            self.client.on_error(error)
            self.client.forget_leader(lane.topic, lane.partition)
        finally:
            stream.cancel()

    def _request(
        self, lane: Lane, each: Pending, leader: Leader, number: int
    ) -> produce_pb2.ProduceStreamRequest:
        crc = int.from_bytes(each.batch[_CRC], "big")
        part = produce_pb2.PartitionBatch(
            topic_id=lane.topic.topic_id,
            partition=lane.partition,
            leader_epoch=leader.epoch if self.client.below(2) else -1,
            batch=each.batch,
            route_sum=route_sum(lane.topic.topic_id, lane.partition, crc),
        )
        request = produce_pb2.ProduceRequest(
            batches=[part], acks=WIRE_ACKS[self.acks], timeout_ms=_REQUEST_MS
        )
        return produce_pb2.ProduceStreamRequest(correlation_id=number, request=request)

    def _take_answer(
        self, lane: Lane, pending: deque[Pending], waiting: dict[int, Pending], reply: bytes
    ) -> bool:
        """Whether the run goes on over this stream."""
        answer = produce_pb2.ProduceStreamResponse.FromString(reply)
        each = waiting.pop(answer.correlation_id)
        is_head = bool(pending) and pending[0] is each
        try:
            if answer.error.code:
                raise error_of(answer.error)
            base_offset = base_offset_of(answer.response)
        except TidelogError as error:
            self.client.on_error(error)
            self._take_refusal(lane, pending, each, error, is_head=is_head)
            return False
        pending.remove(each)
        self._end(each, Outcome.ACKNOWLEDGED, base_offset)
        return True

    def _take_refusal(
        self,
        lane: Lane,
        pending: deque[Pending],
        each: Pending,
        error: TidelogError,
        *,
        is_head: bool,
    ) -> None:
        if is_nothing_stored(error) and each.attempts == 1:
            each.is_uncertain = False
        if error.code in _GONE:
            lane.is_gone = True
        elif error.code in _GAPS and is_head:
            self._judge_gap(lane, each, error)
            self._give_up(lane, pending)
        else:
            self.client.forget_leader(lane.topic, lane.partition)

    def _judge_gap(self, lane: Lane, each: Pending, error: TidelogError) -> None:
        """All before it was promised: the partition has to know what comes next."""
        if self.acks is Acks.ALL:
            text = (
                f"forgotten_producer in {lane.key}: sequence {each.sequence} of producer "
                f"{lane.producer_id} epoch {lane.epoch} is the next one, and was answered {error}"
            )
            self.gaps.append((lane.key, text))


def make_records(client: ClusterClient) -> tuple[tuple[str, ...], list[RecordTuple]]:
    """Values that nobody ever sent, and records of several sizes that carry them."""
    values: list[str] = []
    records: list[RecordTuple] = []
    wall_ms = client.ports.clock.wall_ms()
    for _ in range(1 + client.below(4)):
        client.sealed += 1
        values.append(f"{client.name}.{client.sealed}")
        padding = b"x" * client.below(_KEY_BYTES[client.below(len(_KEY_BYTES))])
        records.append((wall_ms, padding, values[-1].encode(), ()))
    return tuple(values), records
