"""What look-ups and commits of offsets end with when their time is over.

A look-up ends as every call that reads: with what was answered last, and that silence followed. A
commit that was sent and not answered may be stored, whatever later tries are told.
"""

from tidelog.client import TopicPartition
from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.group.group import GroupCore
from tidelog.client.engine.group.messages import (
    CommitAnswered,
    CommitDone,
    CommitWanted,
    CoordinatorFailed,
    CoordinatorFound,
    FindCoordinator,
    GroupEffect,
    GroupMessage,
    GroupPartition,
    LookupAnswered,
    LookupWanted,
    OffsetsFound,
    OffsetToCommit,
    SendCommit,
    SendLookup,
    Tell,
)
from tidelog.client.engine.group.settings import GroupSettings
from tidelog.client.errors import NoAnswerError, PeerError
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, TopicId

PATIENCE_MS = 30
IN_VAIN = "it did not work within default_api_timeout_ms: "
T_0 = GroupPartition(topic_partition=TopicPartition("t", 0), topic_id=TopicId(b"t" * 16))
COORDINATOR = "b1:1"


def silence() -> NoAnswerError:
    return NoAnswerError(
        ErrorCode.DEADLINE_EXCEEDED, tried="call", happened="a:1: no answer within 1 ms"
    )


def refused(happened: str = "it is loading") -> TidelogError:
    return PeerError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried="ask",
        happened=happened,
        retriable=True,
        retry_after_ms=7,
    )


class Reader:
    """A group's core whose questions are answered one by one, a millisecond after each other."""

    def __init__(self) -> None:
        settings = GroupSettings(group="g", member_id="m")
        self.core = GroupCore(settings, Backoff(initial_ms=1, max_ms=1))
        self.now_ns = 0
        self.told: list[OffsetsFound | CommitDone] = []
        self._asked: FindCoordinator | SendLookup | SendCommit | None = None

    def look_up(self, *answers: str | TidelogError) -> TidelogError | None:
        """An address tells where the coordinator is; an error answers whatever was asked."""
        end_ns = self.now_ns + PATIENCE_MS * NS_PER_MS
        wanted = LookupWanted(number=1, partitions=(T_0,), deadline_ns=end_ns, is_start=False)
        self._run(wanted, end_ns, answers)
        found = self.told.pop()
        assert isinstance(found, OffsetsFound)
        return found.error

    def commit(self, *answers: str | TidelogError) -> TidelogError:
        """The same."""
        end_ns = self.now_ns + PATIENCE_MS * NS_PER_MS
        at = OffsetToCommit(
            topic_partition=T_0.topic_partition, topic_id=T_0.topic_id, committed_offset=Offset(5)
        )
        self._run(CommitWanted(number=1, offsets=(at,), deadline_ns=end_ns), end_ns, answers)
        done = self.told.pop()
        assert isinstance(done, CommitDone)
        ((_, error),) = done.failures
        return error

    def _run(
        self, wanted: GroupMessage, end_ns: int, answers: tuple[str | TidelogError, ...]
    ) -> None:
        self._perform(self.core.step(wanted, self.now_ns))
        for answer in answers:
            self.now_ns += NS_PER_MS
            self._perform(self.core.tick(self.now_ns))
            self._answer(answer)
        self.now_ns = end_ns
        self._perform(self.core.tick(self.now_ns))

    def _answer(self, answer: str | TidelogError) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None, "nothing was asked"
        message: GroupMessage
        if isinstance(answer, str):
            message = CoordinatorFound(address=answer)
        elif isinstance(asked, SendLookup):
            message = LookupAnswered(number=asked.number, error=answer)
        elif isinstance(asked, SendCommit):
            message = CommitAnswered(number=asked.number, error=answer)
        else:
            message = CoordinatorFailed(error=answer)
        self._perform(self.core.step(message, self.now_ns))

    def _perform(self, effects: list[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case FindCoordinator() | SendLookup() | SendCommit():
                    self._asked = effect
                case Tell(news=(OffsetsFound() | CommitDone()) as news):
                    self.told.append(news)
                case _:
                    pass


def end_of(*answers: str | TidelogError) -> TidelogError:
    error = Reader().look_up(*answers)
    assert error is not None
    return error


# Look-ups.


def test_it_keeps_what_the_coordinator_has_answered_and_says_that_silence_followed() -> None:
    found = end_of(COORDINATOR, refused(), COORDINATOR, silence(), COORDINATOR)
    assert isinstance(found, PeerError)
    assert found.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (found.retriable, found.retry_after_ms) == (True, 7)
    assert found.tried == "look committed offsets up of group 'g'"
    assert found.happened == f"{IN_VAIN}it is loading; then b1:1: no answer within 25 ms"


def test_nothing_but_silence_is_told_as_it_is() -> None:
    found = end_of(COORDINATOR)
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.happened == f"{IN_VAIN}b1:1: no answer within 29 ms"


def test_an_answer_to_the_search_for_the_coordinator_tells_more_than_its_silence() -> None:
    found = end_of(COORDINATOR, silence(), refused("nobody leads"), silence())
    assert found.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.happened == (
        f"{IN_VAIN}nobody leads; then nobody has told where the coordinator is"
    )


def test_the_last_answer_is_told_whoever_gave_it() -> None:
    found = end_of(COORDINATOR, refused(), refused("nobody leads"), COORDINATOR, silence())
    assert found.happened.startswith(f"{IN_VAIN}nobody leads; then ")


def test_what_was_found_out_before_it_began_counts_where_nothing_else_is_known() -> None:
    reader = Reader()
    reader.look_up(refused("nobody leads"), silence())
    found = reader.look_up()
    assert found is not None
    assert found.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.happened.startswith(f"{IN_VAIN}nobody leads; then ")


# Commits.


def test_a_commit_that_nobody_has_answered_may_be_stored() -> None:
    found = Reader().commit(COORDINATOR, silence())
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.tried == "commit offsets of group 'g'"
    assert found.happened == f"{IN_VAIN}a:1: no answer within 1 ms; it may have been done"
    assert found.hint == "ask again: done twice it comes to the same"


def test_a_refusal_behind_silence_does_not_say_that_a_commit_is_not_stored() -> None:
    found = Reader().commit(COORDINATOR, silence(), COORDINATOR, refused())
    assert found.happened == (
        f"{IN_VAIN}it is loading; it may have been done: a:1: no answer within 1 ms"
    )


def test_a_commit_that_was_only_refused_is_not_stored() -> None:
    found = Reader().commit(COORDINATOR, refused())
    assert found.code is ErrorCode.DEADLINE_EXCEEDED
    assert found.happened == f"{IN_VAIN}it is loading"
