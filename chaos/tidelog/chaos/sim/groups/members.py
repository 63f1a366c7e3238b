"""One member at work: it beats, reads what it owns, commits, gives up, dies, comes back.

Owns the driver of one `PlainMember`. It fetches the committed offset of each partition before it
reads it, and tells the watch what it reads and what it was answered.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.groups.state.messages import Answer, AnyRequest
from tidelog.chaos.checkers.groups import GroupsWatch, committer
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.groups.plan import Plan
from tidelog.chaos.sim.groups.times import Times
from tidelog.chaos.sim.groups.wires import RETRY_MS, Calls
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.workloads.plain_member import PlainMember
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    StoredOffset,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

LOOK_MS: Final = 40
RECORDS_PER_LOOK: Final = 8


class MemberAtWork:
    """One life."""

    def __init__(
        self,
        member: PlainMember,
        *,
        agenda: Times,
        random: SeededRandom,
        plan: Plan,
        wires: Calls,
        watch: GroupsWatch,
        on_begin: Callable[["MemberAtWork"], None],
    ) -> None:
        self.member: Final = member
        self._agenda: Final = agenda
        self._random: Final = random
        self._plan: Final = plan
        self._wires: Final = wires
        self._watch: Final = watch
        self._on_begin: Final = on_begin
        """Called before it begins to read something: lets the others stop whose time is over."""
        self.is_alive = True
        self.is_paused = False
        self._is_beating = False
        self._beat_due_ms = 0
        self._give_up_due_ms: int | None = None
        self._commit_due_ms = 0
        self._is_committing = False
        self.positions: dict[PartitionKey, int] = {}
        """Of partitions that it reads: the next offset; -1: the committed one is asked for."""
        self._shown: dict[PartitionKey, None] = {}

    @property
    def name(self) -> str:
        """Its member id."""
        return self.member.member_id

    @property
    def now_ms(self) -> int:
        """Of the world."""
        return self._agenda.now_ns // MS

    def start(self) -> None:
        """It looks around from now on."""
        self._look()

    def die(self) -> None:
        """Without a word."""
        self.is_alive = False
        self._watch.on_stopped(self.member.group, self.name, list(self._shown))
        self._shown.clear()

    def resume(self) -> None:
        """It goes on where it stood."""
        self.is_paused = False

    def leave(self, *, is_for_a_while: bool) -> None:
        """It stops, and says so once; whether that arrives it does not ask."""
        departure = self.member.departure(is_for_a_while=is_for_a_while)
        self._show()
        self._call(departure, lambda _answer: None)
        self.is_alive = False

    # -- what it does by itself ----------------------------------------------------------------

    def _look(self) -> None:
        if not self.is_alive:
            return
        self._agenda.after(LOOK_MS * MS, self._look)
        if self.is_paused:
            return
        self.member.on_time(self.now_ms)
        if self.member.must_give_up:
            self._come_to_give_up()
        else:
            self._give_up_due_ms = None
        self._show()
        self._read()
        if not self._is_committing and self.now_ms >= self._commit_due_ms:
            self._commit()
        if not self._is_beating and self.now_ms >= self._beat_due_ms:
            self._beat()

    def stop_in_time(self) -> None:
        """What a clock would have made it do by now, also while it stands still otherwise."""
        self.member.on_time(self.now_ms)
        self._show()

    def _come_to_give_up(self) -> None:
        """It finishes and commits, then gives up, then says so at once."""
        if self._give_up_due_ms is None:
            self._give_up_due_ms = self.now_ms + self._random.between(0, self._plan.give_up_ms)
        if self.now_ms >= self._give_up_due_ms and not self._is_committing:
            self._give_up_due_ms = None
            self.member.give_up()
            self._beat_due_ms = 0

    def _show(self) -> None:
        """Tell the watch what is read from now on, and what not any more."""
        reading = self.member.reading
        ended = [key for key in self._shown if key not in reading]
        for key in ended:
            del self._shown[key]
            self.positions.pop(key, None)
        self._watch.on_stopped(self.member.group, self.name, ended)
        begun = sorted(key for key in reading if key not in self._shown)
        if begun:
            self._shown.update(dict.fromkeys(begun))
            self._on_begin(self)
            self._watch.on_reading(self.member.group, self.name, begun)
            self.positions.update(dict.fromkeys(begun, -1))
            self._fetch(begun)

    def _read(self) -> None:
        for key, position in self.positions.items():
            if position >= 0:
                self.positions[key] = position + self._random.below(RECORDS_PER_LOOK + 1)

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, request: AnyRequest, on_answer: Callable[[Answer | None], None]) -> None:
        def when_alive(answer: Answer | None) -> None:
            if self.is_alive:
                on_answer(None if self.is_paused else answer)

        self._wires.call(self.name, self.member.group, request, when_alive)

    def _beat(self) -> None:
        self._is_beating = True
        sent_ms = self.now_ms
        heartbeat = self.member.heartbeat(sent_ms)
        self._call(heartbeat, lambda answer: self._on_beaten(heartbeat, sent_ms, answer))

    def _on_beaten(self, heartbeat: Heartbeat, sent_ms: int, answer: Answer | None) -> None:
        self._is_beating = False
        self._beat_due_ms = self.now_ms + self._random.between(*RETRY_MS)
        if answer is None:
            self.member.on_no_answer()
            return
        result = answer.result
        if isinstance(result, TidelogError):
            self.member.on_refusal(result.code)
            if not result.retriable:
                self._watch.excuse_no_more(self.name)
        elif isinstance(result, HeartbeatAnswer):
            self._beat_due_ms = sent_ms + result.heartbeat_interval_ms
            self._watch.on_assignment(
                self.member.group,
                self.name,
                {each.key: each.partition_assignment_epoch for each in result.assignment or ()},
            )
            before = dict(self.member.reading)
            self.member.on_answer(heartbeat, result, sent_ms)
            self.member.on_time(self.now_ms)
            for key, epoch in before.items():
                if self.member.reading.get(key, epoch) != epoch:
                    self._shown.pop(key, None)
        self._show()

    def _fetch(self, keys: list[PartitionKey]) -> None:
        epochs = {key: self.member.reading[key] for key in keys}
        sent_ns = self._agenda.now_ns
        request = FetchOffsets(
            group=self.member.group,
            keys=tuple(keys),
            member_id=self.name,
            member_epoch=self.member.epoch,
        )

        def on_answer(answer: Answer | None) -> None:
            wanted = [
                key
                for key in keys
                if self.member.reading.get(key) == epochs[key] and self.positions.get(key) == -1
            ]
            if answer is None or not isinstance(answer.result, FetchOffsetsAnswer):
                if wanted:
                    delay_ns = self._random.between(*RETRY_MS) * MS
                    self._agenda.after(delay_ns, self._fetch_again, wanted, epochs)
                return
            for key, stored in answer.result.offsets:
                offset = stored.committed_offset if isinstance(stored, StoredOffset) else -1
                self._watch.on_fetched(self.member.group, key, offset, sent_ns)
                if key in wanted:
                    self.positions[key] = max(0, offset)

        self._call(request, on_answer)

    def _fetch_again(self, keys: list[PartitionKey], epochs: dict[PartitionKey, int]) -> None:
        still = [
            key
            for key in keys
            if self.member.reading.get(key) == epochs[key] and self.positions.get(key) == -1
        ]
        if still and self.is_alive:
            self._fetch(still)

    def _commit(self) -> None:
        group = self.member.group
        sent = {
            key: (position, committer(self.name, self.member.reading[key]))
            for key, position in sorted(self.positions.items())
            if position > 0 and key in self.member.reading
        }
        self._commit_due_ms = self.now_ms + self._plan.commit_every_ms
        if not sent:
            return
        self._is_committing = True
        request = CommitOffsets(
            group=group,
            member_id=self.name,
            member_epoch=self.member.epoch,
            offsets=tuple(
                OffsetToCommit(
                    key=key,
                    committed_offset=Offset(position),
                    leader_epoch=LeaderEpoch(-1),
                    metadata=by,
                )
                for key, (position, by) in sent.items()
            ),
        )

        def on_answer(answer: Answer | None) -> None:
            self._is_committing = False
            if answer is not None and isinstance(answer.result, CommitAnswer):
                for each, error in zip(sent.items(), answer.result.errors, strict=True):
                    if error is None:
                        key, (position, by) = each
                        self._watch.on_commit_acknowledged(group, key, position, by)

        self._call(request, on_answer)
