"""A producer with transactions: what its records and its transactions have to do with each other.

Owns the way from one core to the other, and which batches may be sent at all. Batches that were
sealed before a call are taken before it, so whoever commits has everything appended before in the
transaction. It must never let a batch be sent that belongs to no open transaction, nor one identity
number batches of two transactions.

    a batch is sealed ──► RecordsAdded        Flush       ──► Flushed, once nothing is unfinished
    a batch fails     ──► RecordsFailed       DropRecords ──► every unfinished batch fails
                                              UseIdentity ──► sequences begin at 0

A producer without a transactional id has the second core only to decide tokens of others.
"""

from collections.abc import Iterable

from tidelog.client.engine.produce.batch import Acknowledgement
from tidelog.client.engine.produce.messages import (
    BatchSealed,
    CompleteBatch,
    ProducerEffect,
    ProducerMessage,
)
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.client.engine.produce.producer_ids import ProducerIdentity
from tidelog.client.engine.transaction.core import TransactionCore
from tidelog.client.engine.transaction.messages import (
    Answered,
    DriverEffect,
    DropRecords,
    Flush,
    Flushed,
    RecordsAdded,
    RecordsFailed,
    TransactionEffect,
    TransactionMessage,
    UseIdentity,
)
from tidelog.client.engine.transaction.phases import Fenced, MustAbort, Open, Phase
from tidelog.client.errors import NextStep, TransactionError
from tidelog.wire.errors import TidelogError

Message = ProducerMessage | TransactionMessage
Effect = ProducerEffect | DriverEffect


class ProducingCore:
    """Messages in, effects out; one task or thread calls it."""

    def __init__(
        self, records: ProducerCore, transactions: TransactionCore, *, is_transactional: bool
    ) -> None:
        self.records = records
        self.transactions = transactions
        self._is_transactional = is_transactional
        self._is_flushing = False
        self._batches_in_flight_max = 0
        self._effects: list[Effect] = []

    @property
    def phase(self) -> Phase:
        """What the transactions are at."""
        return self.transactions.phase

    @property
    def is_open(self) -> bool:
        """Whether records may be appended."""
        return isinstance(self.phase, Open)

    @property
    def trouble(self) -> TidelogError | None:
        """Why nothing that is appended from now on can ever be committed; None: it can."""
        match self.phase:
            case MustAbort(error=error):
                return self._of_record(self.transactions.say.must_abort(error))
            case Fenced(error=error):
                return TransactionError.of(error, NextStep.STOP)
            case _:
                return None

    def steps(self, messages: Iterable[Message], now_ns: int) -> list[Effect]:
        """Several at once, so that batches sealed together travel together."""
        of_records: list[ProducerMessage] = []
        for message in messages:
            if isinstance(message, TransactionMessage):
                self._produce(of_records, now_ns)
                of_records = []
                self._transact(message, now_ns)
            elif not isinstance(message, BatchSealed) or self._let_in(message, now_ns):
                of_records.append(message)
        self._produce(of_records, now_ns)
        self._follow(self.transactions.tick(now_ns), now_ns)
        if self._is_flushing and not self.records.lanes:
            self._is_flushing = False
            self._transact(Flushed(), now_ns)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `steps` has something to do if no message comes; None: never."""
        found = (self.records.next_deadline_ns(), self.transactions.next_deadline_ns())
        return min((each for each in found if each is not None), default=None)

    def _let_in(self, message: BatchSealed, now_ns: int) -> bool:
        """Whether the batch belongs to the open transaction; another one is not sent."""
        if not self._is_transactional:
            return True
        if self.is_open:
            self._transact(RecordsAdded(), now_ns)
            return True
        error = self.trouble or self.transactions.say.unfit("send a record", self.phase)
        self._effects.append(CompleteBatch(batch=message.batch, outcome=error))
        return False

    def _produce(self, messages: list[ProducerMessage], now_ns: int) -> None:
        self._take_effects(self.records.steps(messages, now_ns), now_ns)

    def _take_effects(self, effects: list[ProducerEffect], now_ns: int) -> None:
        for effect in effects:
            if (
                not self._is_transactional
                or not isinstance(effect, CompleteBatch)
                or isinstance(effect.outcome, Acknowledgement)
            ):
                self._effects.append(effect)
                continue
            error = effect.outcome
            self._effects.append(CompleteBatch(batch=effect.batch, outcome=self._of_record(error)))
            self._transact(RecordsFailed(error), now_ns)

    def _transact(self, message: TransactionMessage, now_ns: int) -> None:
        if isinstance(message, Answered) and message.batches_in_flight_max:
            self._batches_in_flight_max = message.batches_in_flight_max
        self._follow(self.transactions.step(message, now_ns), now_ns)

    def _follow(self, effects: list[TransactionEffect], now_ns: int) -> None:
        for effect in effects:
            match effect:
                case UseIdentity():
                    identity = effect.identity
                    self.records.use_identity(
                        ProducerIdentity(
                            producer_id=identity.producer_id,
                            producer_epoch=identity.producer_epoch,
                            batches_in_flight_max=self._batches_in_flight_max,
                        )
                    )
                case Flush():
                    self._is_flushing = True
                case DropRecords():
                    self._is_flushing = False
                    self._take_effects(self.records.drop(self._of_record(effect.error)), now_ns)
                case _:
                    self._effects.append(effect)

    def _of_record(self, error: TidelogError) -> TransactionError:
        """What failed takes the transaction with it."""
        is_over = isinstance(self.phase, Fenced)
        return TransactionError.of(error, NextStep.STOP if is_over else NextStep.ABORT)
