"""Any order of answers, losses and silences: nobody reads what is somebody else's, what is taken
away is committed before it is reported, and a partition goes on where it was committed.
"""

from random import Random

import pytest

from tests.client.support.engine_world import failure
from tests.client.support.group_model import MS, FakeCoordinator
from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.invariants import check_group
from tidelog.client.engine.group.messages import (
    Assign,
    CommitAnswered,
    CommitDone,
    CommitWanted,
    CoordinatorFailed,
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupMessage,
    GroupPartition,
    HasLeft,
    HeartbeatAnswer,
    HeartbeatAnswered,
    LookupAnswered,
    LookupWanted,
    Lost,
    Note,
    OffsetsFound,
    OffsetToCommit,
    Reconciled,
    Revoke,
    SendCommit,
    SendHeartbeat,
    SendLookup,
    Subscribed,
    Tell,
)
from tidelog.client.engine.group.settings import GroupSettings
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.groups import Subscription
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import Offset, PartitionKey, TopicId

pytestmark = pytest.mark.slow

SESSION_MS, INTERVAL_MS, POLL_MS = 10_000, 1_000, 20_000
TOPIC = b"t" * 16
PARTITIONS = [
    GroupPartition(topic_partition=TopicPartition("t", number), topic_id=TopicId(TOPIC))
    for number in range(4)
]


class User:
    """The user's side of one consumer, as simple as it can be."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        settings = GroupSettings(
            group="g",
            member_id=name,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=POLL_MS,
            request_timeout_ms=3_000,
        )
        backoff = Backoff(initial_ms=50, max_ms=500, salt=len(name))
        self.core = GroupCore(settings, backoff)
        self.news: list[Revoke | Assign | Lost | CommitDone | OffsetsFound] = []
        self.positions: dict[PartitionKey, int | None] = {}
        self.revoking: tuple[int, Revoke] | None = None
        self.number = 0

    def step(self, message: GroupMessage) -> None:
        self._perform(self.core.step(message, self.world.now_ns))

    def tick(self) -> None:
        self._perform(self.core.tick(self.world.now_ns))

    def subscribe(self) -> None:
        self.step(Subscribed(subscription=Subscription(topics=("t",))))

    def poll(self) -> None:
        """Take up news, then read one record of each partition that may be read."""
        self.core.note_poll(self.world.now_ns)
        while self.news:
            self._take_up(self.news.pop(0))
        lease = self.core.membership.lease_until_ns
        if lease is None or self.world.now_ns >= lease:
            return
        if any(isinstance(each, Lost) for each in self.news):
            return
        leaving = {each.key for each in self.revoking[1].partitions} if self.revoking else set()
        for key, position in self.positions.items():
            if position is not None and key not in leaving:
                self.world.read(self, key, position)
                self.positions[key] = position + 1

    def commit(self) -> int:
        known = {key: at for key, at in self.positions.items() if at is not None}
        return self._commit(known)

    def _commit(self, offsets: dict[PartitionKey, int]) -> int:
        self.number += 1
        wanted = tuple(
            OffsetToCommit(
                topic_partition=TopicPartition("t", key.partition),
                topic_id=key.topic_id,
                committed_offset=Offset(at),
            )
            for key, at in offsets.items()
        )
        number = self.number
        self.step(
            CommitWanted(
                number=number, offsets=wanted, deadline_ns=self.world.now_ns + 3_600_000 * MS
            )
        )
        return number

    def _take_up(self, news: Revoke | Assign | Lost | CommitDone | OffsetsFound) -> None:
        match news:
            case Revoke():
                known = {each.key: self.positions[each.key] for each in news.partitions}
                offsets = {key: at for key, at in known.items() if at is not None}
                self.revoking = (self._commit(offsets), news)
            case CommitDone():
                if self.revoking is not None and self.revoking[0] == news.number:
                    revoked, self.revoking = self.revoking[1], None
                    failed = {name for name, _ in news.failures}
                    for each in revoked.partitions:
                        at = self.positions.pop(each.key)
                        if at is not None and each.topic_partition not in failed:
                            self.world.handed_over[self.name, each.key] = at
                    self.step(Reconciled(number=revoked.number))
            case Assign():
                self.positions.update((each.key, None) for each in news.partitions)
                self.number += 1
                self.step(Reconciled(number=news.number))
                self.step(
                    LookupWanted(
                        number=self.number,
                        partitions=news.partitions,
                        deadline_ns=None,
                        is_start=True,
                    )
                )
            case OffsetsFound():
                for found in news.offsets:
                    if found.key in self.positions and self.positions[found.key] is None:
                        self.positions[found.key] = max(0, found.committed_offset)
            case Lost():
                self.positions.clear()
                self.revoking = None
                self.news.clear()
                self.step(Reconciled(number=news.number))

    def _perform(self, effects: list[GroupEffect]) -> None:
        check_group(self.core)
        for effect in effects:
            match effect:
                case Tell(news=news):
                    if isinstance(news, Lost):
                        self.news.clear()
                    assert not isinstance(news, HasLeft), "nobody leaves here"
                    self.news.append(news)
                case Note():
                    pass
                case _:
                    self.world.send(self, effect)


class World:
    """Members, one coordinator, and a network that loses and delays what goes either way."""

    def __init__(self, seed: int, *, loss: float = 0.1) -> None:
        self.random = Random(seed)
        self.now_ns = 1_000_000_000
        self.loss = loss
        self.coordinator = FakeCoordinator(session_ms=SESSION_MS, interval_ms=INTERVAL_MS)
        self.coordinator.create(PARTITIONS)
        self.users: dict[str, User] = {}
        self.queue: list[tuple[int, int, User, object]] = []
        self.sent = 0
        self.reads: dict[PartitionKey, list[tuple[str, int]]] = {}
        self.handed_over: dict[tuple[str, PartitionKey], int] = {}

    def add(self, name: str) -> User:
        user = self.users[name] = User(self, name)
        user.subscribe()
        return user

    def read(self, user: User, key: PartitionKey, offset: int) -> None:
        self.coordinator.expire(self.now_ns)
        owner = self.coordinator.owner(key)
        assert owner == user.name, f"{user.name} reads {key.partition}, which is {owner}'s"
        self.reads.setdefault(key, []).append((user.name, offset))

    def send(self, user: User, effect: GroupEffect) -> None:
        """A call: the request arrives or not, the answer arrives or an error does."""
        self._at(self.random.randrange(1, 200), user, effect)

    def _at(self, after_ms: int, user: User, what: object) -> None:
        self.sent += 1
        self.queue.append((self.now_ns + after_ms * MS, self.sent, user, what))

    def run(self, until_ms: int) -> None:
        """Steps of ten milliseconds; users poll when they like."""
        end_ns = self.now_ns + until_ms * MS
        while self.now_ns < end_ns:
            self.now_ns += 10 * MS
            for entry in sorted(each for each in self.queue if each[0] <= self.now_ns):
                self.queue.remove(entry)
                self._arrive(entry[2], entry[3])
            for user in list(self.users.values()):
                user.tick()
                if self.random.random() < 0.1:
                    user.poll()
                if self.random.random() < 0.005:
                    user.commit()

    def _arrive(self, user: User, what: object) -> None:
        if user.name not in self.users:
            self._at(100, user, what)
            return
        if not isinstance(what, FindCoordinator | SendHeartbeat | SendCommit | SendLookup):
            user.step(what)  # type: ignore[arg-type]
            return
        is_lost = self.random.random() < self.loss
        answer = self._failed(what) if is_lost else self._answer(user, what)
        if not is_lost and self.random.random() < self.loss:
            answer = self._failed(what)
        self._at(self.random.randrange(1, 200), user, answer)

    def _answer(self, user: User, call: GroupEffect) -> GroupMessage:
        match call:
            case FindCoordinator():
                return CoordinatorFound(address="b1")
            case SendHeartbeat():
                told = self.coordinator.heartbeat(user.name, call.heartbeat, self.now_ns)
                self._check_released()
                return HeartbeatAnswered(number=call.number, answer=told)
            case SendCommit():
                error, results = self.coordinator.commit(
                    call.member_id, call.member_epoch, call.offsets, self.now_ns
                )
                return CommitAnswered(number=call.number, error=error, results=tuple(results))
            case SendLookup():
                offsets = self.coordinator.look_up(call.partitions)
                return LookupAnswered(number=call.number, offsets=offsets)
        raise AssertionError(f"nobody answers {call}")

    def _failed(self, call: GroupEffect) -> GroupMessage:
        code = self.random.choice(
            [ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.NOT_COORDINATOR]
        )
        error = failure(code)
        match call:
            case FindCoordinator():
                return CoordinatorFailed(error=error)
            case SendHeartbeat():
                return HeartbeatAnswered(number=call.number, answer=HeartbeatAnswer(error=error))
            case SendCommit():
                return CommitAnswered(number=call.number, error=error)
            case SendLookup():
                return LookupAnswered(number=call.number, error=error)
        raise AssertionError(f"nobody answers {call}")

    def _check_released(self) -> None:
        """What was reported as given up was committed before, as far as it was read."""
        for name, key in self.coordinator.released:
            at = self.handed_over.pop((name, key), None)
            if at is not None:
                stored = self.coordinator.committed.get(key)
                assert stored is not None, (
                    f"{name} gave {key.partition} up at {at}, nothing is committed"
                )
                assert stored.committed_offset >= at, (
                    f"{name} gave {key.partition} up behind {stored}"
                )
        self.coordinator.released.clear()

    def check_settled(self) -> None:
        """After a quiet while everything is read by somebody."""
        for each in PARTITIONS:
            assert self.coordinator.owner(each.key) is not None, (
                f"{each.key.partition} has no owner"
            )
        reading = [key for user in self.users.values() for key in user.positions]
        assert sorted(reading) == sorted(each.key for each in PARTITIONS), "all, each once"


@pytest.mark.parametrize("seed", range(6))
def test_members_that_come_and_go_never_share_a_partition(seed: int) -> None:
    world = World(seed)
    for number in range(3):
        world.add(f"m{number}")
        world.run(4_000)
    silent = world.users.pop("m1")
    world.run(SESSION_MS + 5_000)
    world.users["m1"] = silent
    world.run(5_000)
    world.add("m3")
    world.run(5_000)
    world.loss = 0.0
    world.run(10_000)
    world.check_settled()
    assert len({name for reads in world.reads.values() for name, _ in reads}) >= 3


@pytest.mark.parametrize("seed", range(2))
def test_a_partition_that_is_handed_over_goes_on_where_it_was_committed(seed: int) -> None:
    world = World(seed, loss=0.0)
    for number in range(4):
        world.add(f"m{number}")
        world.run(6_000)
    world.check_settled()
    for reads in world.reads.values():
        assert [offset for _, offset in reads] == list(range(len(reads))), "each once, in order"


@pytest.mark.parametrize("seed", range(2))
def test_a_member_that_is_cut_off_stops_reading_before_others_begin(seed: int) -> None:
    world = World(seed, loss=0.0)
    world.add("m0")
    world.run(3_000)
    world.add("m1")
    world.run(5_000)
    # From now on nothing of m0 arrives, but it goes on polling.
    cut = world.users["m0"]
    for _ in range(200):
        world.queue = [entry for entry in world.queue if entry[2] is not cut]
        world.run(100)
    assert not any(name == "m0" for reads in world.reads.values() for name, _ in reads[-3:])
    assert {world.coordinator.owner(each.key) for each in PARTITIONS} == {"m1"}
