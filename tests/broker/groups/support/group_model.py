"""Members, readers, operators and failures around one core, as hypothesis draws them.

What must never be: two members that read one partition; an acknowledged commit that is gone; a
committed offset that falls behind the back of the owner; a partition that stops although it did not
move. What must come once everything is calm: every partition is read, and the group is stable.
"""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.groups.support.house import House, key, topic
from tidelog.broker.groups.state.answers import GroupState
from tidelog.broker.groups.state.messages import AnyRequest, GroupSettings, RemoveMembers
from tidelog.chaos.workloads.plain_member import PlainMember
from tidelog.wire.calls.groups import (
    Assignor,
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    Heartbeat,
    HeartbeatAnswer,
    OffsetToCommit,
    StoredOffset,
    Subscription,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

SESSION_MS = 1_000
REBALANCE_MS = 600
SUBSCRIPTIONS = (
    Subscription(topics=("a",)),
    Subscription(topics=("a", "b")),
    Subscription(topics=("b",), assignor=Assignor.RANGE),
    Subscription(topic_pattern="a|b|c"),
)


class Seat(msgspec.Struct):
    """A member and what is on its way."""

    member: PlainMember
    sent: Heartbeat | None = None
    request_id: int = 0
    sent_ms: int = 0
    late: list[AnyRequest] = msgspec.field(default_factory=list)
    """Requests that were given up and may still be processed."""
    is_evicted: bool = False
    """An operator removed it: it reads on until it hears of that."""


class GroupModel(RuleBasedStateMachine):
    """One group `g`, topics a, b and sometimes c."""

    @initialize()
    def begin(self) -> None:
        settings = GroupSettings(
            session_timeout_ms=SESSION_MS, session_timeout_ms_min=1, heartbeat_interval_ms=300
        )
        self.house = House(topic("a", 3), topic("b", 2), settings=settings)
        self.seats: list[Seat] = []
        self.names = 0
        self.next_offset = 0
        self.commits: dict[int, tuple[str, int, PartitionKey, int]] = {}
        self.last_commit: dict[PartitionKey, tuple[str, int, int]] = {}
        self.acknowledged: dict[PartitionKey, int] = {}
        self.fetches: dict[int, dict[PartitionKey, int]] = {}

    def _seat(self, which: int) -> Seat:
        return self.seats[which % len(self.seats)]

    def _join(
        self, subscription: Subscription, instance_id: str, *, takes_over: bool = False
    ) -> None:
        self.names += 1
        member = PlainMember(
            "g",
            f"m{self.names:03}",
            subscription,
            instance_id=instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            takes_over=takes_over,
        )
        self.seats.append(Seat(member=member))

    @precondition(lambda self: len(self.seats) < 5)
    @rule(what=st.sampled_from(SUBSCRIPTIONS), instance=st.sampled_from(["", "", "i1", "i2"]))
    def join(self, what: Subscription, instance: str) -> None:
        is_taken = any(seat.member.instance_id == instance for seat in self.seats)
        self._join(what, "" if is_taken else instance)
        self._beat(self.seats[-1], "answered")

    @precondition(lambda self: self.seats)
    @rule(
        which=st.integers(0, 9),
        fate=st.sampled_from(["answered", "answered", "answered", "answer lost", "late"]),
    )
    def beat(self, which: int, fate: str) -> None:
        self._beat(self._seat(which), fate)

    def _beat(self, seat: Seat, fate: str) -> None:
        """One heartbeat in flight at most: one that still waits is given up first."""
        if seat.sent is not None:
            self._give_up_waiting(seat)
        heartbeat = seat.member.heartbeat(self.house.now_ms)
        if fate == "late":
            seat.late.append(heartbeat)
            seat.member.on_no_answer()
            return
        seat.sent, seat.sent_ms = heartbeat, self.house.now_ms
        seat.request_id = self.house.send(heartbeat)
        if fate == "answer lost":
            self._give_up_waiting(seat)
        self._read_answers()

    def _give_up_waiting(self, seat: Seat) -> None:
        self.house.answers.pop(seat.request_id, None)
        seat.sent = None
        seat.member.on_no_answer()

    @precondition(lambda self: any(each.late for each in self.seats))
    @rule(which=st.integers(0, 9), place=st.integers(0, 9))
    def process_late(self, which: int, place: int) -> None:
        """A request that its sender has given up reaches the coordinator after all."""
        late = [each for each in self.seats if each.late]
        seat = late[which % len(late)]
        request = seat.late.pop(place % len(seat.late))
        request_id = self.house.send(request)
        if isinstance(request, CommitOffsets):
            self._note_commit(request_id, seat, request)
        self._read_answers()
        self.house.answers.pop(request_id, None)

    @precondition(lambda self: any(each.member.must_give_up for each in self.seats))
    @rule(which=st.integers(0, 9))
    def give_up(self, which: int) -> None:
        leaving = [each for each in self.seats if each.member.must_give_up]
        leaving[which % len(leaving)].member.give_up()

    @precondition(lambda self: any(each.member.reading for each in self.seats))
    @rule(which=st.integers(0, 9), fate=st.sampled_from(["now", "now", "late"]))
    def commit(self, which: int, fate: str) -> None:
        readers = [each for each in self.seats if each.member.reading]
        seat = readers[which % len(readers)]
        self.next_offset += 1
        request = CommitOffsets(
            group="g",
            member_id=seat.member.member_id,
            member_epoch=seat.member.epoch,
            offsets=tuple(
                OffsetToCommit(
                    key=each,
                    committed_offset=Offset(self.next_offset),
                    leader_epoch=LeaderEpoch(epoch),
                )
                for each, epoch in sorted(seat.member.reading.items())
            ),
        )
        if fate == "late":
            seat.late.append(request)
            return
        self._note_commit(self.house.send(request), seat, request)
        self._read_answers()

    def _note_commit(self, request_id: int, seat: Seat, request: CommitOffsets) -> None:
        """What the coordinator has taken may not be older than what another owner committed."""
        group = self.house.core.groups.get("g")
        for each in request.offsets:
            stored = group.offsets.get(each.key) if group else None
            if stored is None or stored.committed_offset != each.committed_offset:
                continue
            member_id, epoch, offset = self.last_commit.get(each.key, ("", -1, -1))
            # The leader epoch carries the partition_assignment_epoch under which it was sent.
            mine = (seat.member.member_id, int(each.leader_epoch))
            owner = group.members[seat.member.member_id] if group else None
            assert owner is not None, "a commit of nobody was taken"
            assert owner.owned_epoch(each.key) == mine[1], f"{each.key}: a commit of another time"
            if each.committed_offset < offset:
                assert (member_id, epoch) == mine, f"{each.key} fell behind its owner's back"
            self.last_commit[each.key] = (*mine, each.committed_offset)
            self.commits[request_id] = (*mine, each.key, each.committed_offset)

    @precondition(lambda self: self.seats)
    @rule(
        which=st.integers(0, 9),
        how=st.sampled_from(["leave", "away", "crash", "replace", "again", "subscribe"]),
    )
    def change(self, which: int, how: str) -> None:
        seat = self._seat(which)
        if seat.sent is not None:
            self._give_up_waiting(seat)
        match how:
            case "leave":
                self.house.send(seat.member.departure())
                self.seats.remove(seat)
            case "away" if seat.member.instance_id:
                self.house.send(seat.member.departure(is_for_a_while=True))
                self.seats.remove(seat)
                self._join(seat.member.subscription, seat.member.instance_id)
            case "crash":
                self.seats.remove(seat)
                self._join(seat.member.subscription, seat.member.instance_id)
            case "replace" if seat.member.instance_id:
                self.seats.remove(seat)
                member = seat.member
                self._join(member.subscription, member.instance_id, takes_over=True)
                self._beat(self.seats[-1], "answered")
            case "again":
                seat.member.stop_reading()
            case _:
                seat.member.subscribe(SUBSCRIPTIONS[which % len(SUBSCRIPTIONS)])
        self._read_answers()

    @precondition(lambda self: self.seats)
    @rule(which=st.integers(0, 9))
    def evict(self, which: int) -> None:
        seat = self._seat(which)
        seat.is_evicted = True
        removal = RemoveMembers(group="g", member_ids=(seat.member.member_id,))
        self.house.send(removal)

    @rule()
    def fetch(self) -> None:
        request = FetchOffsets(group="g")
        self.fetches[self.house.request_id + 1] = dict(self.acknowledged)
        self.house.send(request)
        self._read_answers()

    @rule(ms=st.sampled_from([1, 50, 120, 400, 700]))
    def pass_time(self, ms: int) -> None:
        self._pass_time(ms)

    def _pass_time(self, ms: int) -> None:
        """Members stop by themselves in time: their deadlines come before the coordinator's."""
        for _ in range(ms // 10 + 1):
            for seat in self.seats:
                seat.member.on_time(self.house.now_ms + 10)
            self.house.pass_time(min(10, ms))

    @rule(count=st.integers(2, 5), name=st.sampled_from(["a", "b", "c"]))
    def grow(self, name: str, count: int) -> None:
        present = self.house.topics.get(name)
        if present is None or present.partition_count < count:
            self.house.set_topic(name, count)

    @precondition(lambda self: "c" in self.house.topics)
    @rule()
    def delete(self) -> None:
        self.house.delete_topic("c")
        gone = key("c", 0).topic_id
        for held in (self.acknowledged, self.last_commit):
            for each in [each for each in held if each.topic_id == gone]:
                del held[each]
        self.fetches.clear()

    @rule(is_slow=st.booleans())
    def slow_log(self, is_slow: bool) -> None:
        self.house.is_auto = not is_slow

    @rule(count=st.integers(1, 3))
    def commit_appends(self, count: int) -> None:
        self.house.commit(min(count, len(self.house.ends)))
        self._read_answers()

    @rule(surviving=st.integers(0, 4))
    def fail_over(self, surviving: int) -> None:
        self.house.fail_over(min(surviving, len(self.house.ends)))
        for at in list(self.last_commit):
            group = self.house.core.groups.get("g")
            stored = group.offsets.get(at) if group else None
            member_id, _, offset = self.last_commit[at]
            if stored is None:
                del self.last_commit[at]
            elif stored.committed_offset != offset:
                self.last_commit[at] = (
                    member_id,
                    int(stored.leader_epoch),
                    stored.committed_offset,
                )
        self._read_answers()

    def _read_answers(self) -> None:
        for seat in self.seats:
            if seat.sent is not None and seat.request_id in self.house.answers:
                answer = self.house.answers.pop(seat.request_id)
                sent, seat.sent = seat.sent, None
                if isinstance(answer, TidelogError):
                    seat.member.on_refusal(answer.code)
                    seat.is_evicted = seat.is_evicted and answer.retriable
                else:
                    assert isinstance(answer, HeartbeatAnswer)
                    seat.member.on_answer(sent, answer, seat.sent_ms)
                    # An answer may take longer than the session that it tells of.
                    seat.member.on_time(self.house.now_ms)
        for request_id in [each for each in self.commits if each in self.house.answers]:
            answer = self.house.answers.pop(request_id)
            _, _, at, offset = self.commits.pop(request_id)
            if isinstance(answer, CommitAnswer):
                self.acknowledged[at] = offset
        for request_id in [each for each in self.fetches if each in self.house.answers]:
            self._judge_fetch(self.fetches.pop(request_id), self.house.answers.pop(request_id))

    def _judge_fetch(self, known: dict[PartitionKey, int], answer: object) -> None:
        if isinstance(answer, FetchOffsetsAnswer):
            found = {
                at: stored.committed_offset
                for at, stored in answer.offsets
                if isinstance(stored, StoredOffset)
            }
            for at in known:
                assert at in found, f"the acknowledged commit of {at} is gone"

    @invariant()
    def no_partition_is_read_twice(self) -> None:
        readers: dict[PartitionKey, str] = {}
        for seat in self.seats:
            if not seat.is_evicted:
                for each in seat.member.reading:
                    assert each not in readers, (
                        f"{each} is read by {readers[each]} and {seat.member.member_id}"
                    )
                    readers[each] = seat.member.member_id

    @invariant()
    def no_acknowledged_commit_is_gone(self) -> None:
        group = self.house.core.groups.get("g")
        for at in self.acknowledged:
            assert group is not None, "a group with commits is gone"
            assert at in group.offsets, f"the acknowledged commit of {at} is gone"

    def teardown(self) -> None:
        """Calm: everybody is served, and every partition is read."""
        if not hasattr(self, "house"):
            return
        self.house.is_auto = True
        self.house.commit(len(self.house.ends))
        self._read_answers()
        if not self.seats:
            self._join(SUBSCRIPTIONS[1], "")
        for _ in range(40):
            for seat in list(self.seats):
                seat.member.give_up()
                self._beat(seat, "answered")
            self._pass_time(150)
        group = self.house.core.groups["g"]
        wanted = {
            key(name, number)
            for seat in self.seats
            for name in self._names(seat.member.subscription)
            for number in range(self.house.topics[name].partition_count)
        }
        read = {each for seat in self.seats for each in seat.member.reading}
        assert read == wanted, (
            f"{sorted(map(str, wanted ^ read))} are read by nobody, or should not"
        )
        assert group.state is GroupState.STABLE, f"the group is {group.state.name}"

    def _names(self, subscription: Subscription) -> list[str]:
        wanted = subscription.topics or ("a", "b", "c")
        return [name for name in wanted if name in self.house.topics]
