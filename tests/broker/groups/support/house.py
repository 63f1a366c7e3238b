"""A core with a log beside it: appends are committed when the test says so, failovers happen.

After every step the core's invariants hold, and a fresh core that replays the log is the same.
"""

from typing import TypeVar

import msgspec

from tidelog.broker.groups.core.groups import GroupCoordinatorCore
from tidelog.broker.groups.state.answers import Response
from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.invariants import GroupView, Told, check, check_step, view
from tidelog.broker.groups.state.messages import (
    NOBODY,
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    AppendRefused,
    Asked,
    Caller,
    Effect,
    EndStaged,
    GroupSettings,
    GroupTopic,
    LoadEnded,
    Message,
    ReloadNeeded,
    SettingsChanged,
    StoredRecord,
    Tick,
    TopicsChanged,
    TransactionVerified,
    VerifyTransaction,
)
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

R = TypeVar("R", bound=Response)

LOST = TidelogError(ErrorCode.NOT_COORDINATOR, tried="append", happened="another broker leads")


def topic_id(name: str) -> TopicId:
    """Of a topic of this name, as long as it is not made again."""
    return TopicId(name.encode().ljust(16, b"\0")[:16])


def key(name: str, partition: int) -> PartitionKey:
    """A partition."""
    return PartitionKey(topic_id(name), PartitionId(partition))


def topic(name: str, partition_count: int) -> GroupTopic:
    """A topic in the metadata."""
    return GroupTopic(topic_id(name), name, partition_count)


def persistent(groups: dict[str, Group]) -> dict[str, object]:
    """What of the state a replay must give again."""
    return {
        name: (
            group.is_stored and group.value(),
            {
                member_id: (
                    each.words,
                    each.epoch,
                    each.previous_epoch,
                    each.stored_sequence,
                    each.is_away,
                    each.assigned,
                    each.revoking,
                )
                for member_id, each in group.members.items()
            },
            group.by_instance,
            {member_id: dict(each) for member_id, each in group.targets.items()},
            group.owners,
            group.offsets,
            {
                producer_id: (each.identity, each.transactional_id, each.since_ms, each.parts)
                for producer_id, each in group.staged.items()
            },
        )
        for name, group in groups.items()
    }


class Marker(msgspec.Struct, frozen=True):
    """The end of a transaction, in the log."""

    end: Identity
    decision: Decision


class Stored(StoredRecord, frozen=True):
    """A record in the log, and of which transaction it is part."""

    producer: Identity | None = None


Entry = Stored | Marker


class House:
    """Drives one core at a time."""

    def __init__(self, *topics: GroupTopic, settings: GroupSettings | None = None) -> None:
        self.topics = {each.name: each for each in topics}
        self.settings = settings or GroupSettings()
        self.now_ms = 1_000
        self.wall_ms = 1_700_000_000_000
        self.may_expire = True
        self.log: list[Entry] = []
        """All appends of the present core, markers, and what was committed before it."""
        self.markers: list[tuple[int, Marker]] = []
        """Which are in the log and not told to a core yet: how many appends go before each."""
        self.verifying: list[VerifyTransaction] = []
        self.is_verified = True
        """Transactions are verified at once."""
        self.last_epoch: dict[int, int] = {}
        """Of each producer's last marker: the partition's leader takes nothing below it."""
        self.ends: list[int] = []
        """Of the appends in flight: how long the log is with each."""
        self.committed_end = 0
        self.first_token = 1
        self.refused: list[AppendRefused] = []
        self.answers: dict[int, Response | TidelogError] = {}
        self.request_id = 0
        self.is_auto = True
        """Appends are committed at once."""
        self.is_rebuilt_checked = True
        self.append_count = 0
        self.core = self.load([])
        self.start()

    def load(self, entries: list[Entry]) -> GroupCoordinatorCore:
        """A fresh core that knows the records and the topics."""
        core = GroupCoordinatorCore()
        for entry in entries:
            if isinstance(entry, Marker):
                core.apply_marker(entry.end, entry.decision)
            else:
                core.apply(entry.key, entry.value)
        core.step(SettingsChanged(defaults=self.settings))
        core.step(LoadEnded(now_ms=self.now_ms, wall_ms=self.wall_ms))
        return core

    def start(self) -> None:
        """Tell the core the topics."""
        self.step(self._topics())

    def _topics(self) -> TopicsChanged:
        topics = tuple(self.topics[name] for name in sorted(self.topics))
        return TopicsChanged(topics=topics, now_ms=self.now_ms, wall_ms=self.wall_ms)

    def set_topic(self, name: str, partition_count: int) -> None:
        """Make it, or let it grow."""
        self.topics[name] = topic(name, partition_count)
        self.step(self._topics())

    def delete_topic(self, name: str) -> None:
        """It is gone from the metadata."""
        del self.topics[name]
        self.step(self._topics())

    def send(self, request: AnyRequest, caller: Caller = NOBODY) -> int:
        """Its id; the answer is in `answers` once it is there."""
        self.request_id += 1
        request_id = self.request_id
        self.step(
            Asked(
                request=request,
                request_id=request_id,
                now_ms=self.now_ms,
                wall_ms=self.wall_ms,
                caller=caller,
            )
        )
        return request_id

    def ask(self, request: AnyRequest, kind: type[R], caller: Caller = NOBODY) -> R:
        """The answer, which must be there."""
        answer = self.answers.pop(self.send(request, caller))
        assert isinstance(answer, kind), f"{answer} instead of {kind.__name__}"
        return answer

    def refusal(self, request: AnyRequest, caller: Caller = NOBODY) -> ErrorCode:
        """The code of the refusal, which must be there."""
        answer = self.answers.pop(self.send(request, caller))
        assert isinstance(answer, TidelogError), f"{answer} instead of a refusal"
        return answer.code

    def step(self, message: Message) -> None:
        """One message into the core."""
        before = view(self.core.groups)
        self.perform(self.core.step(message))
        self.check(before, message)

    def pass_time(self, ms: int) -> None:
        """Time goes on, with a tick whenever one is due."""
        end_ms = self.now_ms + ms
        while self.core.next_deadline_ms() <= end_ms:
            due_ms = max(self.now_ms, self.core.next_deadline_ms())
            self._move_to(due_ms)
            before = view(self.core.groups)
            tick = Tick(now_ms=self.now_ms, wall_ms=self.wall_ms, may_expire=self.may_expire)
            self.perform(self.core.tick(tick))
            self.check(before, tick)
            assert self.core.next_deadline_ms() > self.now_ms, "a tick leaves nothing due"
        self._move_to(end_ms)

    def _move_to(self, now_ms: int) -> None:
        self.wall_ms += now_ms - self.now_ms
        self.now_ms = now_ms

    def perform(self, effects: list[Effect]) -> None:
        """What the glue would do."""
        for effect in effects:
            match effect:
                case AppendRecords():
                    assert effect.token == self.first_token + len(self.ends)
                    assert effect.records, "an append holds something"
                    if self._is_over(effect.producer):
                        self.ends.append(len(self.log))
                        over = TidelogError(
                            ErrorCode.TRANSACTION_ABORTED, tried="append", happened="it is over"
                        )
                        self.refused.append(AppendRefused(token=effect.token, error=over))
                        continue
                    self.log.extend(
                        Stored(each.key, each.value, effect.producer) for each in effect.records
                    )
                    self.ends.append(len(self.log))
                    self.append_count += 1
                case VerifyTransaction():
                    self.verifying.append(effect)
                case Answer():
                    assert effect.request_id not in self.answers, "a request is answered once"
                    self.answers[effect.request_id] = effect.result
                case ReloadNeeded():
                    pass
        while self.refused:
            self.perform(self.core.completed(self.refused.pop(0)))
        if self.is_verified and self.verifying:
            self.verify()
        if self.is_auto:
            self.commit(len(self.ends))

    def _is_over(self, producer: Identity | None) -> bool:
        if producer is None:
            return False
        return producer.producer_epoch < self.last_epoch.get(producer.producer_id, 0)

    def verify(self, error: TidelogError | None = None) -> None:
        """The coordinator of the first transaction that waits has answered."""
        waiting = self.verifying.pop(0)
        before = view(self.core.groups)
        told = TransactionVerified(
            request_id=waiting.request_id, error=error, now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.perform(self.core.step(told))
        self.check(before, told)

    def end(self, end: Identity, decision: Decision) -> None:
        """The leader of the partition appends a marker; a core hears of it once it is committed."""
        marker = Marker(end, decision)
        self.last_epoch[end.producer_id] = end.producer_epoch
        self.log.append(marker)
        if self.ends:
            self.markers.append((len(self.ends), marker))
        else:
            self.committed_end = len(self.log)
            self.tell_end(marker)

    def tell_end(self, marker: Marker) -> int:
        """Its coordinator asks, perhaps again; the id of the request."""
        return self.send(EndStaged(end=marker.end, decision=marker.decision))

    def commit(self, count: int) -> None:
        """The first appends in flight are committed."""
        if count:
            token = self.first_token + count - 1
            self.committed_end = self.ends[count - 1]
            del self.ends[:count]
            self.first_token += count
            told = [marker for place, marker in self.markers if place <= count]
            self.markers = [(at - count, each) for at, each in self.markers if at > count]
            while self.committed_end < len(self.log) and isinstance(
                self.log[self.committed_end], Marker
            ):
                self.committed_end += 1
            self.perform(self.core.completed(AppendCommitted(token=token)))
            for marker in told:
                self.tell_end(marker)

    def fail_over(self, surviving: int = 0) -> None:
        """The core is lost; of the appends in flight the first few are in the log all the same."""
        end = self.ends[surviving - 1] if self.ends and surviving else self.committed_end
        refused = self.core.completed(AppendFailed(error=LOST))
        assert isinstance(refused[-1], ReloadNeeded), "the core asks to be replaced"
        while end < len(self.log) and isinstance(self.log[end], Marker):
            # One that is committed stays; of one that is not, both are possible.
            end += 1
        del self.log[end:]
        self.committed_end = end
        self.markers = []
        self.verifying = []
        self.last_epoch = {}
        for entry in self.log:
            if isinstance(entry, Marker):
                self.last_epoch[entry.end.producer_id] = entry.end.producer_epoch
        self.ends = []
        self.first_token = 1
        self.perform(refused)
        self.core = self.load(self.log)
        assert persistent(self.core.groups) == persistent(self.rebuilt().groups)
        self.start()

    def records(self) -> list[StoredRecord]:
        """The log without its markers."""
        return [each for each in self.log if isinstance(each, Stored)]

    def compact(self, end: int, *, drops_tombstones: bool) -> None:
        """What a cleaner makes of the log below the position: nothing above the first transaction
        that is open or not committed, aborted records whatever their key, the last value of each
        key, markers as long as records of theirs are left."""
        open_from = [
            place
            for place, each in enumerate(self.log)
            if isinstance(each, Stored)
            and each.producer is not None
            and self._end_of(place, each.producer) is None
        ]
        end = min([end, self.committed_end, *open_from])
        kept: list[Entry] = []
        seen: set[bytes] = set()
        for place in range(end - 1, -1, -1):
            entry = self.log[place]
            if isinstance(entry, Marker):
                kept.append(entry)
                continue
            marker = None if entry.producer is None else self._end_of(place, entry.producer)
            if marker is not None and marker.decision is Decision.ABORT:
                continue
            is_dropped = entry.key in seen or (entry.value is None and drops_tombstones)
            seen.add(entry.key)
            if not is_dropped:
                kept.append(entry)
        kept.reverse()
        kept = [
            each
            for each in kept
            if isinstance(each, Stored)
            or any(
                isinstance(other, Stored)
                and other.producer is not None
                and other.producer.producer_id == each.end.producer_id
                for other in kept
            )
        ]
        self.log[:end] = kept
        self.committed_end -= end - len(kept)
        self.ends = [each - (end - len(kept)) for each in self.ends]

    def _end_of(self, place: int, producer: Identity) -> Marker | None:
        """Below what is committed."""
        for each in self.log[place : self.committed_end]:
            if not isinstance(each, Marker) or each.end.producer_id != producer.producer_id:
                continue
            if each.end.producer_epoch > producer.producer_epoch:
                return each
        return None

    def rebuilt(self) -> GroupCoordinatorCore:
        """A core that has only the log."""
        return self.load(self.log)

    def check(self, before: dict[str, GroupView], told: Told) -> None:
        """Everything that is true after every step."""
        check(self.core.groups)
        check_step(before, view(self.core.groups), told)
        if self.is_rebuilt_checked:
            assert persistent(self.rebuilt().groups) == persistent(self.core.groups)
