"""A directory's core that is told of batches and markers of transactions; coordinators by hand."""

import msgspec

from tests.broker.support.core_model import CoreModel, key_of
from tests.broker.support.replica_core import ReplicaCore
from tidelog.broker.directory.core.messages import (
    AppendBatch,
    Appended,
    AppendTransactional,
    Done,
    Effect,
    Message,
    Refuse,
    Tick,
    Verified,
    Verify,
    VerifyTransaction,
)
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import BatchHeader, encode_batch, iterate_headers, read_header
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.errors import ErrorCode, TidelogError

SYNC = TopicSettings(in_sync_replicas_min=2)
REFUSED = TidelogError(
    ErrorCode.FENCED_PRODUCER_EPOCH, tried="add a partition", happened="another one took over"
)


class Transactional(CoreModel):
    """What of the model tells of transactions."""

    questions: list[Verify]

    def tell(self, *messages: Message) -> list[Effect]:
        """One step; takes note of what coordinators are asked."""
        effects = super().tell(*messages)
        if not hasattr(self, "questions"):
            self.questions = []
        self.questions += [each for each in effects if isinstance(each, Verify)]
        return effects

    def write_batch(
        self,
        epoch: int,
        sequence: int = 0,
        *,
        producer_id: int = 7,
        records: int = 1,
        is_transactional: bool = True,
    ) -> int:
        """A batch arrives; its token."""
        token = self.new_token()
        batch = encode_batch(
            [(9, None, b"%d" % sequence, ())] * records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        append = self._append(token, batch)
        if is_transactional:
            self.tell(AppendTransactional(append=append, transactional_id="t", timeout_ms=100))
        else:
            self.tell(append)
        return token

    def verify(self, epoch: int, *, producer_id: int = 7) -> int:
        """A coordinator of groups asks ahead; its token."""
        token = self.new_token()
        self.tell(
            VerifyTransaction(
                token=token,
                key=key_of(0),
                transactional_id="t",
                producer_id=producer_id,
                producer_epoch=epoch,
                timeout_ms=100,
            )
        )
        return token

    def append_directly(self, epoch: int, *, producer_id: int = 7) -> int:
        """A batch without a sequence is queued, as a coordinator of groups does; its token."""
        token = self.new_token()
        batch = encode_batch(
            [(9, b"k", b"%d" % token, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
        )
        self.tell(self._append(token, batch))
        return token

    def mark_end(
        self,
        epoch: int,
        *,
        producer_id: int = 7,
        coordinator_epoch: int = 3,
        is_commit: bool = False,
        hangs_from: int = -1,
    ) -> int:
        """A marker arrives; its token."""
        token = self.new_token()
        marker = Marker(MarkerType.COMMIT if is_commit else MarkerType.ABORT, coordinator_epoch)
        batch = encode_marker(
            marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=token
        )
        self.tell(self._append(token, batch, hangs_from=hangs_from))
        return token

    def answer(self, error: TidelogError | None = None, *, place: int = 0) -> Verify:
        """The coordinator answers the question that was asked first."""
        question = self.questions.pop(place)
        self.tell(
            Verified(
                key=question.key,
                producer_id=question.producer_id,
                ticket=question.ticket,
                error=error,
            )
        )
        return question

    def pass_time(self, ms: int) -> None:
        """The owner's clock ticks."""
        self.tell(Tick(now_ms=self.core.state.now_ms + ms))

    def begin(self, epoch: int, *, producer_id: int = 7) -> None:
        """A transaction has its first batch in the log."""
        token = self.write_batch(epoch, producer_id=producer_id)
        self.answer(place=-1)
        self.drain()
        self.offset_of(token)

    def offset_of(self, token: int) -> int:
        """Where the batch was stored."""
        answer = self.answers[token]
        assert isinstance(answer, Appended), f"{answer}"
        return answer.base_offset

    def refusal_of(self, token: int) -> ErrorCode:
        """Why it was not."""
        answer = self.answers[token]
        assert isinstance(answer, Refuse), f"{answer}"
        return answer.error.code

    def is_verified(self, token: int) -> bool:
        """Whether one that asked ahead was told yes."""
        return isinstance(self.answers.get(token), Done)

    def headers(self) -> list[BatchHeader]:
        """Those of the log, in their order."""
        found = []
        for segment in self.log().segments:
            content = self.files.get(segment.key, b"")[: segment.size_bytes]
            found += [header for _, header in iterate_headers(content)]
        return found

    def _check_done(self, effect: Done) -> None:
        if effect.token in self.asked:
            super()._check_done(effect)

    def _append(self, token: int, batch: bytes, *, hangs_from: int = -1) -> AppendBatch:
        append = AppendBatch(
            token=token,
            key=key_of(0),
            batch=batch,
            header=read_header(batch),
            is_flush_awaited=True,
            append_time_ms=5,
            hangs_from=hangs_from,
        )
        # A marker that is there already is answered with the offset of something else.
        is_looked_at = not append.header.is_control
        self.sent[token] = msgspec.structs.replace(append, is_flush_awaited=is_looked_at)
        return append


class TransactionalCore(Transactional):
    """The only replica of a partition."""

    def __init__(self, *, segment_bytes: int = 1 << 30) -> None:
        super().__init__(partitions=1, segment_bytes=segment_bytes)


class TransactionalReplica(ReplicaCore, Transactional):
    """One of several replicas."""


def leading() -> TransactionalReplica:
    """A replica that leads in epoch 1, with broker 2 in sync."""
    core = TransactionalReplica(SYNC)
    core.lead(1, 2)
    return core
