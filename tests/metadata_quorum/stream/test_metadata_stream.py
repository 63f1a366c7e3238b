"""The metadata stream between voters and an observer: ordered, unique, resumable anywhere."""

import asyncio
from typing import cast

import pytest

from tests.metadata_quorum.stream.voters_in_world import (
    CLUSTER,
    FakeQuorum,
    Stage,
    entry,
    member,
)
from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.types import Entry, NodeId, SnapshotId
from tidelog.metadata_quorum.stream import wire as stream_messages
from tidelog.metadata_quorum.stream.messages import (
    CommittedEntries,
    ObserveBegin,
    SnapshotPiece,
    VoterMessage,
)
from tidelog.metadata_quorum.stream.server import MetadataStreamServer
from tidelog.ports import RequestContext, Stream
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term


def names(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_committed_entries_come_in_order_and_once() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        stage.start_voter(quorum)
        stage.start_observer("v1:1")
        quorum.commit(*(entry(index) for index in range(1, 6)))
        await stage.wait(lambda: len(stage.seen.values) == 5)
        quorum.commit(entry(6))
        quorum.commit(entry(7, term=2))
        await stage.wait(lambda: len(stage.seen.values) == 7)
        await asyncio.sleep(3)
        assert stage.seen.values == names(*range(1, 8))
        assert [each.applied_index for each in stage.servers[1].observers()] == [7]

    stage.run(work())


def test_nothing_that_is_not_committed_is_sent() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        quorum.entries = [entry(1), entry(2), entry(3)]
        quorum.commit_index = 2
        stage.start_voter(quorum)
        stage.start_observer("v1:1")
        await asyncio.sleep(5)
        assert stage.seen.values == names(1, 2)

    stage.run(work())


def test_an_observer_goes_on_at_another_voter_from_the_place_that_it_has_applied() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        for quorum in (first, second):
            quorum.commit(entry(1), entry(2))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: len(stage.seen.values) == 2)
        stage.kill_voter(1)
        second.commit(entry(3))
        await stage.wait(lambda: len(stage.seen.values) == 3, seconds=5)
        assert stage.seen.values == names(1, 2, 3)
        assert stage.seen.restored == 0

    stage.run(work())


def test_a_voter_that_is_behind_the_observer_sends_nothing_until_it_has_caught_up() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        first.commit(entry(1), entry(2), entry(3))
        second.commit(entry(1))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: len(stage.seen.values) == 3)
        stage.kill_voter(1)
        await asyncio.sleep(4)
        assert stage.seen.values == names(1, 2, 3)
        second.commit(entry(2), entry(3), entry(4))
        await stage.wait(lambda: len(stage.seen.values) == 4, seconds=5)
        assert stage.seen.values == names(1, 2, 3, 4)

    stage.run(work())


def test_what_the_log_no_longer_holds_comes_as_a_snapshot_and_then_entries() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        quorum.commit(*(entry(index) for index in range(1, 31)))
        quorum.compact(26)
        stage.start_voter(quorum)
        stage.start_observer("v1:1")
        await stage.wait(lambda: len(stage.seen.values) == 30)
        assert stage.seen.restored == 1
        assert stage.seen.values == names(*range(1, 31))

    stage.run(work())


def test_a_snapshot_of_which_a_part_came_before_a_break_shows_nothing() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        first.commit(*(entry(index) for index in range(1, 200)))
        first.compact(200)
        second.commit(*(entry(index) for index in range(1, 200)))
        stage.start_voter(first)
        stage.start_voter(second)
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: stage.observer is not None and bool(stage.observer._snapshot_data))
        assert stage.seen.values == []
        stage.kill_voter(1)
        await stage.wait(lambda: len(stage.seen.values) == 199)
        assert stage.seen.restored == 0
        assert stage.seen.values == names(*range(1, 200))

    stage.run(work())


def test_an_observer_of_another_history_is_told_and_stops() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        first.commit(entry(1), entry(2, term=3))
        second.commit(entry(1), entry(2, term=4), entry(3, term=4))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: len(stage.seen.values) == 2)
        stage.kill_voter(1)
        await stage.wait(lambda: stage.error is not None)
        assert isinstance(stage.error, TidelogError)
        assert stage.error.code is ErrorCode.WRONG_CLUSTER
        assert "another history" in stage.error.happened
        assert stage.seen.values == names(1, 2)

    stage.run(work())


def test_an_observer_of_another_cluster_is_refused_and_stops() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        stage.start_voter(quorum, cluster_id="c2")
        stage.start_observer("v1:1")
        await stage.wait(lambda: stage.error is not None)
        assert isinstance(stage.error, TidelogError)
        assert stage.error.code is ErrorCode.WRONG_CLUSTER

    stage.run(work())


def test_the_leader_and_its_address_are_known_as_soon_as_they_change() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        quorum.commit(*(entry(index) for index in range(1, 4)))
        quorum.compact(3)
        stage.start_voter(quorum)
        stage.start_observer("v1:1")
        await stage.wait(lambda: stage.observer is not None and bool(stage.observer.leader()))
        assert stage.observer is not None
        await asyncio.sleep(2.1)
        quorum.leader, quorum.term = member(2).id, 5
        quorum.change()

        def has_moved() -> bool:
            assert stage.observer is not None
            leader = stage.observer.leader()
            return leader is not None and (leader.address, leader.term) == ("v2:1", 5)

        await stage.wait(has_moved, seconds=0.2)

    stage.run(work())


def test_a_voter_that_knows_no_leader_for_long_is_left_for_another() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        first.leader = None
        stage.start_voter(first)
        stage.start_voter(second)
        second.commit(entry(1))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: stage.seen.values == names(1), seconds=10)

    stage.run(work())


def test_why_nobody_is_followed_is_told_of_each_address() -> None:
    """One that is no voter hides nothing of what a voter says."""
    stage = Stage()

    async def refuse(context: RequestContext, stream: Stream) -> None:
        del context
        await stream.receive()
        raise TidelogError(ErrorCode.PERMISSION_DENIED, tried="follow it", happened="not you")

    def told() -> str:
        trouble = None if stage.observer is None else stage.observer.trouble
        return "" if trouble is None else trouble.happened

    async def work() -> None:
        stage.start_server("v1", refuse)
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: "v2:1" in told(), seconds=5)
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert "v1:1: [PERMISSION_DENIED] not you; v2:1: [" in told()
        quorum = FakeQuorum(2)
        stage.start_voter(quorum)
        quorum.commit(entry(1))
        await stage.wait(lambda: not told(), seconds=5)

    stage.run(work())


def test_a_silent_voter_is_left_after_three_seconds() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        first.commit(entry(1))
        second.commit(entry(1), entry(2))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: stage.seen.values == names(1))
        stage.world.machine("v1").processes["v1"].pause()
        await stage.wait(lambda: stage.seen.values == names(1, 2), seconds=5)

    stage.run(work())


def test_more_than_the_credit_comes_as_the_observer_applies_it() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        big = b"x" * 900_000
        quorum.commit(*(entry(index, data=big) for index in range(1, 13)))
        stage.start_voter(quorum)
        stage.start_observer("v1:1")
        await stage.wait(lambda: len(stage.seen.values) == 12)

    stage.run(work())


def test_an_observer_beyond_all_that_is_committed_is_of_another_history() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        first.commit(*(entry(index) for index in range(1, 6)))
        second.commit(entry(1), entry(2, term=4))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: len(stage.seen.values) == 5)
        stage.kill_voter(1)
        await stage.wait(lambda: second.read_count > 3)
        assert not stage.has_ended(), "a voter that may be behind does not tell"
        second.is_current = True
        await stage.wait(lambda: stage.error is not None)
        assert isinstance(stage.error, TidelogError)
        assert stage.error.code is ErrorCode.WRONG_CLUSTER
        assert "the last one committed is 2: another history" in stage.error.happened

    stage.run(work())


def test_terms_are_compared_only_once_the_place_is_applied() -> None:
    stage, first, second = Stage(), FakeQuorum(1), FakeQuorum(2)

    async def work() -> None:
        stage.start_voter(first)
        stage.start_voter(second)
        first.commit(entry(1), entry(2, term=3))
        second.applied_max = 1
        second.commit(entry(1), entry(2, term=4), entry(3, term=4))
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: len(stage.seen.values) == 2)
        stage.kill_voter(1)
        await stage.wait(lambda: second.read_count > 2)
        assert not stage.has_ended()
        second.applied_max = 3
        await stage.wait(lambda: stage.error is not None)
        assert isinstance(stage.error, TidelogError)
        assert stage.error.code is ErrorCode.WRONG_CLUSTER
        assert stage.seen.values == names(1, 2)

    stage.run(work())


class SaidStream:
    """A stream on which an observer says these messages, and then nothing more."""

    def __init__(self, *said: bytes) -> None:
        self.said = list(said)

    async def receive(self) -> bytes | None:
        """As the port says."""
        if self.said:
            return self.said.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, data: bytes) -> None:
        """As the port says."""


async def refused(server: MetadataStreamServer, stream: SaidStream) -> ErrorCode:
    """What comes of it within ten seconds."""
    with pytest.raises(TidelogError) as caught:
        async with asyncio.timeout(10):
            await server.observe(cast("RequestContext", None), cast("Stream", stream))
    return caught.value.code


def begin(next_index: int, term: int) -> bytes:
    return stream_messages.encode_observer_message(
        ObserveBegin(
            cluster_id=CLUSTER,
            node_id=NodeId(9),
            next_index=LogIndex(next_index),
            last_applied_term=Term(term),
            credit_bytes=1,
        )
    )


def test_a_beginning_that_names_a_term_of_no_entry_is_refused() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        quorum.commit(entry(1))
        server = MetadataStreamServer(cast("Quorum", quorum), cluster_id=CLUSTER)
        found = await refused(server, SaidStream(begin(next_index=1, term=2)))
        assert found is ErrorCode.INVALID_ARGUMENT

    stage.run(work())


def test_a_stream_that_does_not_begin_ends_and_counts_meanwhile() -> None:
    stage, quorum = Stage(), FakeQuorum()

    async def work() -> None:
        server = MetadataStreamServer(cast("Quorum", quorum), cluster_id=CLUSTER, observers_max=1)
        silent = asyncio.get_running_loop().create_task(refused(server, SaidStream()))
        await asyncio.sleep(1)
        assert await refused(server, SaidStream()) is ErrorCode.RESOURCE_EXHAUSTED
        assert await silent is ErrorCode.DEADLINE_EXCEEDED
        assert await refused(server, SaidStream()) is ErrorCode.DEADLINE_EXCEEDED

    stage.run(work())


def entries(*found: Entry, commit_index: int = 99) -> CommittedEntries:
    return CommittedEntries(entries=found, commit_index=LogIndex(commit_index))


def piece(end_index: int, position: int) -> SnapshotPiece:
    return SnapshotPiece(
        id=SnapshotId(LogIndex(end_index), Term(1)), position=position, data=b"x", total_bytes=9
    )


@pytest.mark.parametrize(
    "wrong",
    [
        (entries(entry(2)),),
        (entries(entry(1, term=2), entry(2, term=1)),),
        (entries(entry(1), commit_index=0),),
        (piece(5, 0), entries(entry(1))),
        (piece(1, 0),),
        (piece(5, 0), piece(6, 1)),
        (piece(5, 3),),
    ],
)
def test_a_voter_that_sends_what_cannot_be_is_left_for_another(
    wrong: tuple[VoterMessage, ...],
) -> None:
    stage, quorum = Stage(), FakeQuorum(2)

    async def lie(context: RequestContext, stream: Stream) -> None:
        del context
        await stream.receive()
        for message in wrong:
            await stream.send(stream_messages.encode_voter_message(message))
        await asyncio.sleep(1)

    async def work() -> None:
        stage.start_server("v1", lie)
        quorum.commit(entry(1), entry(2))
        stage.start_voter(quorum)
        stage.start_observer("v1:1", "v2:1")
        await stage.wait(lambda: stage.seen.values == names(1, 2), seconds=5)
        assert not stage.has_ended()

    stage.run(work())
