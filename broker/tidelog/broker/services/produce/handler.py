"""Takes sealed batches: checks each at the border, hands it to the directory's owner, waits.

Owns the checks of stop 5 of a record's walk: whole, undamaged, meant for this partition, at this
leader epoch, within the limits (`checks`). It must never change a batch or a log. A batch of a
transaction goes the same way; the directory's core has its coordinator asked where nobody has yet.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.services.produce.admission import ProducerAdmission
from tidelog.broker.services.produce.batch_contents import check_contents
from tidelog.broker.services.produce.checks import checked_header, validate_request
from tidelog.broker.services.produce.verdicts import DOUBTED, Verdicts
from tidelog.broker.services.produce.words import for_sender, with_consequence
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.shared.errors import internal
from tidelog.broker.shared.limits import DURATION_MS_MAX, BrokerLimits
from tidelog.broker.shared.meter import Meter, count
from tidelog.broker.shared.node_time import WallTime
from tidelog.broker.shared.pauses import PARTS_A_TURN
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.metadata.image.image import NO_LEADER
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import RequestContext
from tidelog.wire.batch import BatchHeader
from tidelog.wire.calls.produce import PartitionBatch
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

_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH)


class Acks(enum.Enum):
    """What an acknowledgement waits for."""

    ALL = "all"
    LEADER = "leader"
    NONE = "none"


Place = tuple[TopicId, PartitionId]
"""A partition that a batch is for."""


class ProduceRequest(msgspec.Struct, frozen=True):
    """At most one batch a partition."""

    batches: Sequence[PartitionBatch]
    acks: Acks
    timeout_ms: int
    transactional_id: str = ""


class PartitionAcknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one batch."""

    topic_id: TopicId
    partition: PartitionId
    error: TidelogError | None = None
    base_offset: Offset = NO_OFFSET
    append_time_ms: int = -1
    log_start_offset: Offset = Offset(0)
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader_id: int | None = None
    """Of a batch that another broker should have been sent: which one; None: not known."""


class Submitted(msgspec.Struct, frozen=True):
    """A request of which every batch is queued or refused. Holds none of their bytes: it may wait
    for its answers longer than the owner's budget counts them."""

    places: Sequence[Place]
    acks: Acks
    timeout_ms: int
    outcomes: "Sequence[asyncio.Future[Appended] | TidelogError]"
    name_of: Callable[[TopicId, int], str]
    """A partition in the words of people, for errors."""
    leader_epochs: Sequence[int] = ()
    """Of each place, the one in which its batch was judged."""
    have_identity: Sequence[bool] = ()
    """Of each place, whether its batch is stored once however often it is sent."""


OnAnswers = Callable[[list[PartitionAcknowledgement]], None]


class PendingAnswers:
    """A submitted request that waits without a task of its own, which would cost as much as the
    rest of a small batch."""

    __slots__ = ("_is_over", "_missing", "_on_answers", "_submitted", "_timer")

    def __init__(self, submitted: Submitted, on_answers: OnAnswers) -> None:
        self._submitted = submitted
        self._on_answers = on_answers
        self._timer: asyncio.TimerHandle | None = None
        self._missing = 0
        self._is_over = False

    def begin(self, timeout_ms: int) -> None:
        """Call back when every batch meets `acks` or has failed, or the time is over."""
        submitted = self._submitted
        if submitted.acks is Acks.NONE:
            self.cancel()
            self._on_answers([_answer(place, None) for place in submitted.places])
            return
        for outcome in submitted.outcomes:
            if not isinstance(outcome, TidelogError):
                self._missing += 1
                outcome.add_done_callback(self._on_outcome)
        loop = asyncio.get_running_loop()
        if not self._missing:
            if len(submitted.outcomes) > PARTS_A_TURN:
                # Each has been judged just now: wording the answers is another turn's work.
                self._timer = loop.call_later(0, self._finish, timeout_ms)
            else:
                self._finish(timeout_ms)
            return
        self._timer = loop.call_later(timeout_ms / 1000, self._finish, timeout_ms)

    def cancel(self) -> None:
        """Nobody waits any more; what was accepted is stored all the same."""
        if not self._is_over:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            _forget(self._submitted.outcomes)

    def _on_outcome(self, outcome: "asyncio.Future[Appended]") -> None:
        # Taken note of at once: whoever dies before the others are here never comes to look.
        if not outcome.cancelled():
            outcome.exception()
        self._missing -= 1
        if not self._missing:
            self._finish(0)

    def _finish(self, timeout_ms: int) -> None:
        if not self._is_over:
            answers = _settle(self._submitted, timeout_ms)
            self.cancel()
            self._on_answers(answers)


class ProduceHandler:
    """`submit` keeps the order in which requests came; `wait` may be run for many at once."""

    def __init__(
        self,
        replicas: Replicas,
        time: WallTime,
        limits: BrokerLimits,
        metadata: ImageSource | None = None,
        meter: Meter | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        """Without `leadership` this broker leads whatever it says it leads."""
        self._replicas = replicas
        self._verdicts = None if leadership is None else Verdicts(replicas, leadership)
        self._time = time
        self._limits = limits
        self._metadata = metadata
        self._meter = meter or Meter(())
        self._producers = ProducerAdmission()

    async def produce(
        self, context: RequestContext, request: ProduceRequest
    ) -> list[PartitionAcknowledgement]:
        """Append each batch and wait until it meets `acks`, fails, or the time is over."""
        return await self.wait(self.submit(context, request))

    def submit(self, context: RequestContext, request: ProduceRequest) -> Submitted:
        """Check and queue every batch, without waiting."""
        is_transactional = bool(request.transactional_id)
        if is_transactional and self._metadata is not None:
            TRANSACTIONS.check_on(self._metadata.image(), tried="produce")
        validate_request(
            request.batches, request.transactional_id, is_for_all=request.acks is Acks.ALL
        )
        append_time_ms = self._time.wall_ms()
        outcomes: list[asyncio.Future[Appended] | TidelogError] = []
        leader_epochs: list[int] = []
        have_identity: list[bool] = []
        for batch in request.batches:
            leader_epoch, has_identity = NO_LEADER_EPOCH, False
            try:
                tried = f"produce to {self._replicas.name_of(batch.topic_id, batch.partition)}"
                replica = self._replicas.find(
                    batch.topic_id, batch.partition, batch.leader_epoch, tried=tried
                )
                leader_epoch = replica.leader_epoch
                if replica.is_internal:
                    raise internal(replica.topic_name, tried=tried)
                header = checked_header(
                    batch, replica.settings, is_transactional=is_transactional, tried=tried
                )
                has_identity = header.producer_id >= 0
                outcomes.append(
                    self._submit_batch(
                        context, request, batch.batch, header, replica, append_time_ms, tried
                    )
                )
            except TidelogError as error:
                outcomes.append(error)
            leader_epochs.append(leader_epoch)
            have_identity.append(has_identity)
        places = [(batch.topic_id, batch.partition) for batch in request.batches]
        return Submitted(
            places,
            request.acks,
            request.timeout_ms,
            outcomes,
            self._replicas.name_of,
            leader_epochs,
            have_identity,
        )

    async def wait(self, submitted: Submitted) -> list[PartitionAcknowledgement]:
        """The answers, in the order of the request."""
        done: asyncio.Future[list[PartitionAcknowledgement]]
        done = asyncio.get_running_loop().create_future()

        def on_answers(answers: list[PartitionAcknowledgement]) -> None:
            # A handler that was cancelled in this moment has not come to its `finally` yet.
            if not done.done():
                done.set_result(answers)

        pending = self.begin_wait(submitted, on_answers)
        try:
            answers = await done
        finally:
            pending.cancel()
        return await self.confirm(submitted, answers) if self.is_doubted(answers) else answers

    def is_doubted(self, answers: Sequence[PartitionAcknowledgement]) -> bool:
        """Whether `confirm` has to be awaited before they are told."""
        return self._verdicts is not None and any(
            each.error is not None and each.error.code in DOUBTED for each in answers
        )

    async def confirm(
        self, submitted: Submitted, answers: Sequence[PartitionAcknowledgement]
    ) -> list[PartitionAcknowledgement]:
        """The same answers; what only the present leader may say only if this broker is that."""
        assert self._verdicts is not None, "nothing is doubted without it"
        epochs = zip(submitted.places, submitted.leader_epochs, strict=True)
        judged = [(topic_id, partition, epoch) for (topic_id, partition), epoch in epochs]
        errors = await self._verdicts.confirm(judged, [each.error for each in answers])
        return [
            answer
            if answer.error is error
            else self._with_leader(msgspec.structs.replace(answer, error=error))
            for answer, error in zip(answers, errors, strict=True)
        ]

    def begin_wait(self, submitted: Submitted, on_answers: OnAnswers) -> "PendingAnswers":
        """As `wait`, for those who have many requests at once: calls `on_answers` once, whose
        caller looks whether they are doubted."""
        pending = PendingAnswers(submitted, lambda found: on_answers(self._told(found)))
        pending.begin(self._timeout_ms(submitted.timeout_ms))
        return pending

    def _timeout_ms(self, asked_ms: int) -> int:
        return min(asked_ms or self._limits.produce_timeout_ms, DURATION_MS_MAX)

    def _told(self, answers: list[PartitionAcknowledgement]) -> list[PartitionAcknowledgement]:
        """With the leader's name where that spares the client a metadata call; counted."""
        for answer in answers:
            if answer.error is not None:
                count(self._meter.produce_refusals, answer.error.code.name)
        return [
            self._with_leader(answer)
            if answer.error is not None and answer.error.code in _LED_ELSEWHERE
            else answer
            for answer in answers
        ]

    def _with_leader(self, answer: PartitionAcknowledgement) -> PartitionAcknowledgement:
        topic = (
            None if self._metadata is None else self._metadata.image().topics.get(answer.topic_id)
        )
        if topic is None or answer.partition >= len(topic.partitions):
            return answer
        partition = topic.partitions[answer.partition]
        if partition.leader_id == NO_LEADER:
            return answer
        return msgspec.structs.replace(
            answer, leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
        )

    def _submit_batch(
        self,
        context: RequestContext,
        request: ProduceRequest,
        batch: bytes,
        header: BatchHeader,
        replica: Replica,
        append_time_ms: int,
        tried: str,
    ) -> "asyncio.Future[Appended]":
        check_contents(batch, header, replica.settings, append_time_ms, tried=tried)
        is_counted = self._admit_producer(context, replica, header, append_time_ms, tried)
        owner = replica.directory.owner
        if request.transactional_id:
            submitted = owner.submit_transactional(
                replica.log,
                batch,
                header,
                transactional_id=request.transactional_id,
                timeout_ms=self._timeout_ms(request.timeout_ms),
                is_flush_awaited=True,
                append_time_ms=append_time_ms,
            )
            if is_counted:
                submitted.add_done_callback(
                    partial(self._give_back_refused, context, replica.log.key)
                )
        else:
            submitted = owner.submit(
                replica.log,
                batch,
                header,
                is_flush_awaited=request.acks is Acks.ALL,
                append_time_ms=append_time_ms,
            )
        meter = self._meter
        meter.produced_batches += 1
        meter.produced_records += header.record_count
        meter.produced_bytes += header.size_bytes
        return submitted

    def _admit_producer(
        self,
        context: RequestContext,
        replica: Replica,
        header: BatchHeader,
        now_ms: int,
        tried: str,
    ) -> bool:
        """Whether it was counted: a producer that the log knows was so with its first batch."""
        if header.producer_id < 0 or self._metadata is None:
            return False
        log = replica.log
        return log.producers.find(header.producer_id) is None and self._producers.admit(
            context,
            log.key,
            header,
            next_producer_id=self._metadata.image().next_producer_id,
            now_ms=now_ms,
            tried=tried,
        )

    def _give_back_refused(
        self, context: RequestContext, key: PartitionKey, outcome: "asyncio.Future[Appended]"
    ) -> None:
        """One that is given up may still be stored: it stays counted."""
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, TidelogError) and error.code is not ErrorCode.INDETERMINATE:
            self._producers.give_back(context, key)


def _settle(submitted: Submitted, timeout_ms: int) -> list[PartitionAcknowledgement]:
    """What is known; of a batch that is under way still, that the time is over."""
    answers = []
    for number, (place, outcome) in enumerate(
        zip(submitted.places, submitted.outcomes, strict=True)
    ):
        if isinstance(outcome, TidelogError):
            answers.append(_answer(place, _worded(outcome, submitted, number)))
        elif outcome.done() and not outcome.cancelled():
            failed = outcome.exception()
            assert failed is None or isinstance(failed, TidelogError), "an owner refuses typed"
            if failed is None:
                answers.append(_answer(place, outcome.result()))
            else:
                answers.append(_answer(place, _worded(failed, submitted, number)))
        else:
            late = TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"produce to {submitted.name_of(*place)}",
                happened=f"not acknowledged within {timeout_ms} ms; it may still be stored",
            )
            answers.append(_answer(place, _worded(late, submitted, number)))
    return answers


def _worded(error: TidelogError, submitted: Submitted, number: int) -> TidelogError:
    topic_id, partition = submitted.places[number]
    key = PartitionKey(topic_id, PartitionId(partition))
    named = for_sender(error, key, submitted.name_of(topic_id, partition))
    is_numbered = bool(submitted.have_identity) and submitted.have_identity[number]
    return with_consequence(named, has_identity=is_numbered)


def _answer(place: Place, outcome: Appended | TidelogError | None) -> PartitionAcknowledgement:
    topic_id, partition = place
    if outcome is None:
        return PartitionAcknowledgement(topic_id=topic_id, partition=partition)
    if isinstance(outcome, TidelogError):
        return PartitionAcknowledgement(topic_id=topic_id, partition=partition, error=outcome)
    return PartitionAcknowledgement(
        topic_id=topic_id,
        partition=partition,
        base_offset=Offset(outcome.base_offset),
        append_time_ms=outcome.append_time_ms,
        log_start_offset=Offset(outcome.log_start_offset),
        leader_epoch=LeaderEpoch(outcome.leader_epoch),
    )


def _forget(outcomes: "Sequence[asyncio.Future[Appended] | TidelogError]") -> None:
    """Nobody waits any more: what the owner has answered or still answers is not looked at."""
    for outcome in outcomes:
        if isinstance(outcome, TidelogError):
            continue
        if not outcome.done():
            outcome.cancel()
        elif not outcome.cancelled():
            outcome.exception()  # an exception that nobody takes note of would be reported
