"""A core with a log and leaders beside it: appends, markers and failovers happen when a test says.

After every call of the core its invariants hold, and a fresh core that replays the log is the same.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from tests.broker.transactions.support.leaders import Leaders, refusal
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.state.answers import Identity, Response
from tidelog.broker.transactions.state.invariants import check, check_step, view
from tidelog.broker.transactions.state.messages import (
    Answer,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    Effect,
    MarkersAnswered,
    Message,
    ProducerIdsGranted,
    ReloadNeeded,
    RequestProducerIds,
    SendMarkers,
    StoredRecord,
    TransactionSettings,
    TransactionSettingsChanged,
    TransactionsLoaded,
    TransactionTick,
    TransactionTopics,
)
from tidelog.broker.transactions.state.records import (
    TransactionKey,
    TransactionValue,
    encode_record,
)
from tidelog.broker.transactions.state.states import Succession, TransactionState
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    LeaderEpoch,
    PartitionId,
    PartitionKey,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

R = TypeVar("R", bound=Response)

LOST = TidelogError(ErrorCode.NOT_COORDINATOR, tried="append", happened="another broker leads")
FIRST_ID = 1_000
"""Producer ids that are granted begin here."""


def topic_id(name: str) -> TopicId:
    """Of a topic of this name, as long as it is not made again."""
    return TopicId(name.encode().ljust(16, b"\0")[:16])


def key(name: str, partition: int) -> PartitionKey:
    """A partition."""
    return PartitionKey(topic_id(name), PartitionId(partition))


def identity(producer_id: int, epoch: int) -> Identity:
    """Shorter to write."""
    return Identity(ProducerId(producer_id), ProducerEpoch(epoch))


def born(name: str, of: Identity, wall_ms: int, timeout_ms: int = 60_000) -> StoredRecord:
    """A record of an id that has used up many epochs."""
    return encode_record(
        TransactionKey(name),
        TransactionValue(
            state=TransactionState.EMPTY,
            current=of,
            last=None,
            succession=Succession.NONE,
            next_producer_id=None,
            timeout_ms=timeout_ms,
            started_ms=-1,
            updated_ms=wall_ms,
            topics=(),
            principal="",
            decided=None,
        ),
    )


class House:
    """Drives one core at a time."""

    def __init__(
        self,
        settings: TransactionSettings | None = None,
        log: tuple[StoredRecord, ...] = (),
        first_id: int = FIRST_ID,
        **topics: int,
    ) -> None:
        self.topics = topics or {"a": 3, "b": 2}
        self.settings = settings or TransactionSettings()
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000
        self.may_expire = True
        self.log: list[StoredRecord] = list(log)
        """All appends of the present core, and what was committed before it."""
        self.ends: list[int] = []
        """Of the appends in flight: how long the log is with each."""
        self.committed_end = len(log)
        self.first_token = 1
        self.answers: dict[int, Response | TidelogError] = {}
        self.request_id = 0
        self.is_auto = True
        """Appends are committed at once."""
        self.are_leaders_up = True
        """Markers are taken and answered at once."""
        self.is_granting = True
        self.next_producer_id = first_id
        self.is_asked_for_ids = False
        self.leaders = Leaders()
        self.sends: dict[int, SendMarkers] = {}
        """Markers that leaders have not answered yet."""
        self.sent: list[SendMarkers] = []
        """All of them, since the test looked last."""
        self.is_rebuilt_checked = True
        self.append_count = 0
        self.coordinator_epoch = 1
        self.is_deposed = False
        self.core = self.load(self.log)
        self.start()

    def load(self, records: list[StoredRecord]) -> TransactionCoordinatorCore:
        """A fresh core that knows the records."""
        core = TransactionCoordinatorCore()
        for record in records:
            core.apply(record.key, record.value)
        core.step(TransactionSettingsChanged(settings=self.settings))
        return core

    def start(self) -> None:
        """Tell the core that all is loaded, and the topics."""
        self.is_deposed = False
        self.step(
            TransactionsLoaded(
                coordinator_epoch=LeaderEpoch(self.coordinator_epoch),
                now_ms=self.now_ms,
                wall_ms=self.wall_ms,
            )
        )
        self.step(self._topics())

    def _topics(self) -> TransactionTopics:
        return TransactionTopics(
            partition_counts={topic_id(name): count for name, count in self.topics.items()},
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
        )

    def set_topic(self, name: str, partition_count: int) -> None:
        """Make it, or let it grow."""
        self.topics[name] = partition_count
        self.step(self._topics())

    def delete_topic(self, name: str) -> None:
        """It is gone from the metadata, and from its leaders."""
        del self.topics[name]
        self.leaders.forget(topic_id(name))
        self.step(self._topics())

    def send(self, message: msgspec.Struct) -> int:
        """A request, with its id and time put in; the answer is in `answers` once it is there."""
        self.request_id += 1
        self.step(
            msgspec.structs.replace(
                message, request_id=self.request_id, now_ms=self.now_ms, wall_ms=self.wall_ms
            )  # type: ignore[arg-type]
        )
        return self.request_id

    def ask(self, message: msgspec.Struct, kind: type[R]) -> R:
        """The answer, which must be there."""
        answer = self.answers.pop(self.send(message))
        assert isinstance(answer, kind), f"{answer} instead of {kind.__name__}"
        return answer

    def refused(self, message: msgspec.Struct) -> TidelogError:
        """The refusal, which must be there."""
        answer = self.answers.pop(self.send(message))
        assert isinstance(answer, TidelogError), f"{answer} instead of a refusal"
        return answer

    def refusal(self, message: msgspec.Struct) -> ErrorCode:
        """The code of the refusal, which must be there."""
        return self.refused(message).code

    def value(self, name: str) -> TransactionValue:
        """What is known of the id."""
        return self.core.transactions.by_id[name].value

    def step(self, message: Message) -> None:
        """One message into the core."""
        self._call(lambda: self.core.step(message))

    def pass_time(self, ms: int) -> None:
        """Time goes on, with a tick whenever one is due."""
        end_ms = self.now_ms + ms
        while self.core.next_deadline_ms() <= end_ms:
            self._move_to(max(self.now_ms, self.core.next_deadline_ms()))
            self.tick()
            assert self.core.next_deadline_ms() > self.now_ms, "a tick leaves nothing due"
        self._move_to(end_ms)

    def tick(self) -> None:
        """Look at the time."""
        told = TransactionTick(now_ms=self.now_ms, wall_ms=self.wall_ms, may_expire=self.may_expire)
        self._call(lambda: self.core.tick(told))

    def _move_to(self, now_ms: int) -> None:
        self.wall_ms += now_ms - self.now_ms
        self.now_ms = now_ms

    def _call(self, call: Callable[[], list[Effect]]) -> None:
        before = view(self.core.transactions)
        core = self.core
        effects = call()
        check_step(before, view(self.core.transactions))
        for effect in effects:
            self._note(effect)
        if not core.describe().is_failed and core.describe().is_loaded:
            self._check()
        self._react(effects)

    def _note(self, effect: Effect) -> None:
        match effect:
            case AppendRecords():
                assert effect.token == self.first_token + len(self.ends)
                assert effect.records, "an append holds something"
                self.log.extend(effect.records)
                self.ends.append(len(self.log))
                self.append_count += 1
            case Answer():
                assert effect.request_id not in self.answers, "a request is answered once"
                self.answers[effect.request_id] = effect.result
            case SendMarkers():
                self._check_durable(effect)
                self.sends[effect.send_id] = effect
                self.sent.append(effect)
            case RequestProducerIds():
                self.is_asked_for_ids = True
            case ReloadNeeded():
                self.is_deposed = True

    def _check_durable(self, marker: SendMarkers) -> None:
        """No marker leaves before its decision is committed."""
        kept = self.load(self.log[: self.committed_end]).transactions.by_id
        value = kept[marker.transactional_id].value
        assert value.is_ending, f"{marker} leaves, and {value.state.name} is committed"
        assert (value.current, value.decision) == (marker.identity, marker.decision)

    def _react(self, effects: list[Effect]) -> None:
        core = self.core
        if self.is_auto and self.ends:
            self.commit(len(self.ends))
        if self.is_asked_for_ids and self.is_granting:
            self.grant(100)
        if self.are_leaders_up:
            for effect in effects:
                if isinstance(effect, SendMarkers) and core is self.core:
                    self.answer_markers(effect.send_id, effect.keys)

    def grant(self, count: int) -> None:
        """More producer ids."""
        self.is_asked_for_ids = False
        first = self.next_producer_id
        self.next_producer_id += count
        self.step(
            ProducerIdsGranted(
                first=ProducerId(first), count=count, now_ms=self.now_ms, wall_ms=self.wall_ms
            )
        )

    def answer_markers(
        self,
        send_id: int,
        keys: tuple[PartitionKey, ...],
        error: TidelogError | None = None,
        *,
        is_taken: bool = True,
    ) -> None:
        """Leaders take the marker; the coordinator hears that, or the error."""
        marker = self.sends[send_id]
        results: list[tuple[PartitionKey, TidelogError | None]] = []
        for each in keys:
            said = self.leaders.take(marker, each) if is_taken else error
            results.append((each, error or said))
        left = tuple(each for each in marker.keys if each not in keys)
        if left:
            self.sends[send_id] = msgspec.structs.replace(marker, keys=left)
        else:
            del self.sends[send_id]
        self.step(
            MarkersAnswered(
                send_id=send_id,
                results=tuple(results),
                now_ms=self.now_ms,
                wall_ms=self.wall_ms,
            )
        )

    def answer_all(self, code: ErrorCode | None = None, *, is_taken: bool = True) -> None:
        """The same for everything that is on its way."""
        error = refusal(code) if code else None
        for send_id in list(self.sends):
            self.answer_markers(send_id, self.sends[send_id].keys, error, is_taken=is_taken)

    def commit(self, count: int) -> None:
        """The first appends in flight are committed."""
        if count:
            token = self.first_token + count - 1
            self.committed_end = self.ends[count - 1]
            del self.ends[:count]
            self.first_token += count
            self._call(lambda: self.core.completed(AppendCommitted(token=token)))

    def fail_over(self, surviving: int = 0) -> None:
        """The core is lost; of the appends in flight the first few are in the log all the same."""
        end = self.ends[surviving - 1] if self.ends and surviving else self.committed_end
        if not self.is_deposed:
            effects = self.core.completed(AppendFailed(error=LOST))
            assert isinstance(effects[-1], ReloadNeeded), "the core asks to be replaced"
            for effect in effects:
                self._note(effect)
        del self.log[end:]
        self.committed_end = end
        self.ends = []
        self.first_token = 1
        self.sends = {}
        self.is_asked_for_ids = False
        self.coordinator_epoch += 1
        self.core = self.load(self.log)
        self.start()

    def _check(self) -> None:
        """Everything that is true after every step."""
        check(self.core.transactions)
        by_id = self.core.transactions.by_id
        if not self.ends:
            for name, each in by_id.items():
                waits = not each.value.is_ending or each.markers is not None
                assert waits, f"`{name}` is decided, and nobody sends its markers"
        if self.is_rebuilt_checked:
            again = self.load(self.log).transactions
            assert {name: each.value for name, each in again.by_id.items()} == {
                name: each.value for name, each in by_id.items()
            }
            assert again.prepared == self.core.transactions.prepared
