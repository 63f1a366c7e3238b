"""A leader's and a follower's session with a stream between them that a test delivers step by step.

The logs are in memory, the owners' part is played by hand: what the follower's session wants done
waits until the test lets it happen, in order for each partition.
"""

from collections import Counter, deque

from tests.broker.support.copy_log import CopyLog, key_of
from tidelog.broker.directory.core.messages import CommitTo, RestartLog, TrimHead, TruncateTail
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.follower import invariants as follower_invariants
from tidelog.broker.replication.follower.partition import (
    AppendCopies,
    FollowedPartition,
    FollowerEffect,
    MoveTo,
    Phase,
    StopHeadless,
)
from tidelog.broker.replication.follower.session import FollowerSession
from tidelog.broker.replication.leader import invariants as leader_invariants
from tidelog.broker.replication.leader.answer import AnswerDraft
from tidelog.broker.replication.leader.session import Counts, Effect, LeaderSession
from tidelog.broker.replication.shared.messages import (
    FetchAnswer,
    FetchAsk,
    Followed,
    FollowerPosition,
    Lane,
    ReplicationLimits,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionKey

LIMITS = ReplicationLimits(
    answer_bytes_max=600, partition_bytes_max=300, far_behind_bytes=3_000, near_end_bytes=500
)
LEADER = BrokerId(1)


class LeaderSide:
    """The leader's logs, and the session of one stream."""

    def __init__(self, partitions: int) -> None:
        self.logs = {key_of(number): CopyLog(number) for number in range(partitions)}
        for log in self.logs.values():
            log.lead(1)
        self.in_sync = dict.fromkeys(self.logs, True)
        self.unclean = dict.fromkeys(self.logs, False)
        """By the metadata that the leader has heard."""
        self.counted: list[FollowerPosition] = []

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> PartitionLog:
        found = self.logs[key]
        if not found.is_led:
            raise TidelogError(ErrorCode.NOT_LEADER, tried="pull", happened="another one leads")
        if leader_epoch != found.log.leader_epoch:
            is_old = leader_epoch < found.log.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise TidelogError(code, tried="pull", happened="another epoch")
        return found.log

    def is_in_sync(self, key: PartitionKey) -> bool:
        return self.in_sync[key]

    def is_unclean(self, key: PartitionKey) -> bool:
        return self.unclean[key]


class FollowerSide:
    """The follower's logs, and what its owners were asked for and have not done yet."""

    def __init__(self, partitions: int) -> None:
        self.logs = {key_of(number): CopyLog(number) for number in range(partitions)}
        self.asked: dict[PartitionKey, deque[FollowerEffect]] = {key: deque() for key in self.logs}
        self.watermarks: dict[PartitionKey, tuple[int, int]] = {}
        self.in_sync = dict.fromkeys(self.logs, True)
        """By the metadata that the follower has heard."""
        self.moves: list[MoveTo] = []
        self.lost: list[TruncateTail] = []
        self.headless: list[StopHeadless] = []

    def log(self, key: PartitionKey) -> PartitionLog | None:
        return self.logs[key].log

    def is_settled(self, key: PartitionKey) -> bool:
        return not self.asked[key]

    def is_flush_sync(self, key: PartitionKey) -> bool:
        return key.partition % 2 == 0

    def is_in_sync(self, key: PartitionKey) -> bool:
        return self.in_sync[key]


class SessionWorld:
    """One stream at a time; `open_stream` after `break_stream`."""

    def __init__(
        self, partitions: int = 1, limits: ReplicationLimits = LIMITS, lane: Lane = Lane.LIVE
    ) -> None:
        self.limits = limits
        self.lane = lane
        self.now_ms = 0
        self.leader = LeaderSide(partitions)
        self.follower = FollowerSide(partitions)
        self.follower_session = FollowerSession(self.follower, limits)
        self.leader_session = LeaderSession(self.leader, lane, limits)
        self.requests: deque[FetchAsk] = deque()
        self.answers: deque[FetchAnswer] = deque()
        self.sessions = 0
        self.seen: Counter[str] = Counter()
        """What the follower's session wanted done."""
        for key in self.follower.logs:
            self.follow(key, 1)

    # -- the follower ------------------------------------------------------------------------------

    def follow(self, key: PartitionKey, epoch: int, *, is_unclean: bool = False) -> None:
        self.follower.logs[key].follow(epoch)
        self.leader.unclean[key] = is_unclean
        followed = Followed(
            leader_id=LEADER, leader_epoch=LeaderEpoch(epoch), is_unclean=is_unclean
        )
        self.follower_session.follow(key, followed)

    def ask(self) -> FetchAsk | None:
        """Let the follower say what it has to say."""
        session = self.follower_session
        if session.is_start_due:
            self.sessions += 1
            ask: FetchAsk | None = session.start(self.sessions)
        else:
            ask = session.next_request(self.now_ms)
        self.check()
        if ask is not None:
            self.requests.append(ask)
        return ask

    def deliver_answer(self) -> list[FollowerEffect]:
        answer = self.answers.popleft()
        effects = self.follower_session.on_answer(answer, self.now_ms)
        self._take(effects)
        self.check()
        return effects

    def _take(self, effects: list[FollowerEffect]) -> None:
        for effect in effects:
            self.seen[type(effect).__name__] += 1
            if isinstance(effect, MoveTo):
                self.follower.moves.append(effect)
                self.follower_session.unfollow(effect.key)
            elif isinstance(effect, StopHeadless):
                self.follower.headless.append(effect)
                self.follower_session.unfollow(effect.key)
            elif isinstance(effect, CommitTo):
                self.follower.watermarks[effect.key] = (effect.leader_epoch, effect.offset)
                self._commit(effect.key)
                self._take(self.follower_session.on_advanced(effect.key))
            else:
                self.follower.asked[effect.key].append(effect)

    def do_one(self, key: PartitionKey) -> None:
        """The owner does the next thing that it was asked for."""
        side, session = self.follower, self.follower_session
        effect, log = side.asked[key].popleft(), side.logs[key]
        match effect:
            case AppendCopies():
                is_done = log.copy(effect.batches, effect.behind)
                session.on_appended(key, effect.token, None if is_done else refused(), self.now_ms)
            case TruncateTail():
                if effect.offset < log.log.high_watermark and not effect.is_unclean:
                    side.lost.append(effect)
                    session.on_changed(key, refused(), self.now_ms)
                else:
                    log.cut(effect.offset)
                    session.on_changed(key, None, self.now_ms)
            case RestartLog():
                log.restart(effect.offset, effect.start_epoch)
                session.on_changed(key, None, self.now_ms)
            case TrimHead():
                log.trim(effect.offset, effect.start_epoch)
                session.on_trimmed(key)
            case _:
                raise AssertionError(effect)
        self._moved(key)

    def flush(self, key: PartitionKey) -> None:
        self.follower.logs[key].flush()
        self._moved(key)

    def _moved(self, key: PartitionKey) -> None:
        self._commit(key)
        self.follower_session.on_moved(key)
        self._take(self.follower_session.on_advanced(key))

    def _commit(self, key: PartitionKey) -> None:
        """The owner takes the leader's watermark over as what is below it comes."""
        log = self.follower.logs[key]
        epoch, offset = self.follower.watermarks.get(key, (-1, 0))
        if epoch == log.log.leader_epoch:
            log.commit(offset)

    # -- the leader --------------------------------------------------------------------------------

    def write(self, partition: int = 0, value: bytes = b"v", count: int = 1) -> None:
        self.leader.logs[key_of(partition)].write(value, count)
        self.leader_session.on_news(key_of(partition))

    def commit(self, partition: int = 0, offset: int | None = None) -> None:
        log = self.leader.logs[key_of(partition)]
        log.commit(log.log.log_end_offset if offset is None else offset)
        self.leader_session.on_news(key_of(partition))

    def deliver_request(self) -> list[Effect]:
        effects = self.leader_session.on_request(self.requests.popleft())
        self.check()
        self.leader.counted += [each.position for each in effects if isinstance(each, Counts)]
        return effects

    def answer(self) -> FetchAnswer | None:
        """Let the leader say what it has to say."""
        if not self.leader_session.has_work:
            return None
        draft = AnswerDraft(self.leader_session)
        while (read := draft.next_read()) is not None:
            log = self.leader.logs[read.held.key]
            draft.take(read, log.piece(read.offset, read.max_bytes, read.upper_bound))
        answer = draft.finish()
        self.check()
        if answer is not None:
            self.answers.append(answer)
        return answer

    def check(self) -> None:
        """Both ends keep what they promise after every step."""
        leader_invariants.check(self.leader_session)
        follower_invariants.check(self.follower_session)

    # -- the stream --------------------------------------------------------------------------------

    def break_stream(self) -> None:
        """Whatever is on its way is lost; both ends begin anew."""
        self.requests.clear()
        self.answers.clear()
        self.leader_session = LeaderSession(self.leader, self.lane, self.limits)
        self.follower_session.reset()

    def settle(self, rounds: int = 300) -> None:
        """Deliver and do everything until nothing is left to do."""
        for _ in range(rounds):
            is_quiet = True
            for key, asked in self.follower.asked.items():
                while asked:
                    self.do_one(key)
                    is_quiet = False
                log = self.follower.logs[key].log
                if log.flushed_offset != log.log_end_offset:
                    self.flush(key)
                    is_quiet = False
            self.ask()
            while self.requests:
                self.deliver_request()
                is_quiet = False
            self.answer()
            while self.answers:
                self.deliver_answer()
                is_quiet = False
            waits = [each.phase is Phase.REFUSED for each in self._partitions()]
            if any(waits):
                self.now_ms += self.limits.retry_ms_max
                continue
            if not is_quiet:
                continue
            if not self.leader_session.are_numbers_waiting:
                return
            self.leader_session.on_numbers_due()
        raise AssertionError("leader and follower never come to rest")

    def _partitions(self) -> list[FollowedPartition]:
        return list(self.follower_session.partitions.values())


def refused() -> TidelogError:
    return TidelogError(ErrorCode.OFFSET_OUT_OF_RANGE, tried="store", happened="it does not fit")


def in_session(partitions: int = 1) -> SessionWorld:
    """Both ends at rest after the full start, and no answer unconfirmed."""
    world = SessionWorld(partitions)
    world.settle()
    world.requests.append(world.follower_session.probe())
    world.settle()
    assert world.leader_session.confirmed_answer == world.leader_session.answer_sequence
    return world


def ends(world: SessionWorld, partition: int = 0) -> tuple[int, int]:
    key = key_of(partition)
    return (
        world.leader.logs[key].log.log_end_offset,
        world.follower.logs[key].log.log_end_offset,
    )
