"""Bounded queues, and callers that each get one outcome."""

import asyncio
from collections.abc import Coroutine

import pytest

from tests.metadata_quorum.quorum.memory_storage import MemoryStorage
from tests.metadata_quorum.quorum.quorum_world import address, member_id, members
from tests.metadata_quorum.quorum.test_quorum_messages import A, B, append, entry
from tidelog.metadata_quorum.quorum.inbox import Inbox, Restored
from tidelog.metadata_quorum.quorum.joining import was_member
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.peer_link import LinkPorts, PeerLink
from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.quorum.storage_task import StorageTask
from tidelog.metadata_quorum.quorum.transport import QuorumTransport
from tidelog.metadata_quorum.quorum.waiting import AppliedWaiters, Proposals, Requests
from tidelog.metadata_quorum.raft.effects import Accepted, Persist
from tidelog.metadata_quorum.raft.inputs import PeerDied, Persisted
from tidelog.metadata_quorum.raft.membership import encode_members
from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Members,
    Recovered,
)
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term


def as_quorum(runner: QuorumRunner) -> Quorum:
    """The type checker's proof that the runner fulfils the port."""
    return runner


def _run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(story)


def _link(limits: QuorumLimits) -> PeerLink:
    ports = LinkPorts(
        network=GrpcNetwork(RealClock()),
        clock=RealClock(),
        random=RealRandom(),
        limits=limits,
        here=A,
        deliver=lambda message, size: True,
        on_dead=lambda node_id: None,
    )
    return PeerLink(B.member_id, lambda: "nowhere:1", ports)


def _queued(link: PeerLink) -> list[AppendRequest]:
    return list(link._queue)


def test_a_full_queue_loses_the_oldest_heartbeats_first() -> None:
    link = _link(QuorumLimits(peer_queue_max=3))
    first, second = append(entry(7, 2)), append(entry(8, 2), previous=7)
    beat, newer = append(), append(term=4)
    for message in (first, beat, second, newer):
        link.push(message)
    assert _queued(link) == [first, second, newer]
    link.push(append(term=5))
    assert _queued(link) == [first, second, append(term=5)]
    assert link.messages_lost == 2


def test_a_queue_of_entries_over_its_bytes_loses_the_oldest() -> None:
    link = _link(QuorumLimits(peer_queue_bytes_max=2_500))
    requests = [append(entry(7 + n, 2, bytes(900)), previous=6 + n) for n in range(4)]
    for request in requests:
        link.push(request)
    assert _queued(link) == requests[2:]


def test_the_address_of_a_member_that_was_taken_out_is_not_forgotten_at_once() -> None:
    transport = QuorumTransport(
        network=GrpcNetwork(RealClock()),
        clock=RealClock(),
        random=RealRandom(),
        limits=QuorumLimits(),
        here=A,
        peer_addresses={},
        deliver=lambda message, size: True,
        on_dead=lambda node_id: None,
    )
    transport.update_members(members(1, 2, 3))
    transport.update_members(members(1, 2))
    assert transport.address_of(member_id(3)) == address(3)


def test_a_full_inbox_loses_messages_and_never_completions() -> None:
    async def story() -> None:
        inbox = Inbox(QuorumLimits(messages_waiting_max=2, message_bytes_waiting_max=100))
        assert inbox.put_message(append(), 10)
        assert not inbox.put_message(append(), 95)
        assert inbox.put_message(append(), 10)
        assert not inbox.put_message(append(), 10)
        inbox.put(PeerDied(node_id=1))
        assert len(inbox.take()) == 3
        assert inbox.messages_lost == 2
        assert inbox.put_message(append(), 95)

    _run(story())


def test_a_proposal_whose_place_another_entry_took_was_not_done() -> None:
    async def story() -> None:
        proposals = Proposals(QuorumLimits())
        mine, lost = proposals.begin(1, 0), proposals.begin(2, 0)
        for request_id, index in ((1, 7), (2, 8)):
            accepted = Accepted(index=LogIndex(index), term=Term(2))
            assert proposals.accept(request_id, accepted)
        proposals.on_applied((entry(7, 2), entry(8, 3)))
        assert await mine == 7
        with pytest.raises(TidelogError) as caught:
            await lost
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert len(proposals) == 0

    _run(story())


def test_a_proposal_that_is_not_committed_in_time_is_answered() -> None:
    async def story() -> None:
        proposals = Proposals(QuorumLimits(propose_timeout_ms=100))
        future = proposals.begin(1, 1_000)
        proposals.expire(1_099)
        assert not future.done()
        proposals.expire(1_100)
        with pytest.raises(TidelogError) as caught:
            await future
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED

    _run(story())


def test_a_change_without_an_answer_is_uncertain_and_a_read_is_not_done() -> None:
    async def story() -> None:
        requests = Requests()
        change = requests.begin(1, is_change=True)
        read = requests.begin(2, is_change=False)
        stopping = TidelogError(ErrorCode.UNAVAILABLE, tried="ask", happened="the node is stopping")
        requests.fail_all(stopping)
        codes = []
        for future in (change, read):
            with pytest.raises(TidelogError) as caught:
                await future
            codes.append(caught.value.code)
        assert codes == [ErrorCode.INDETERMINATE, ErrorCode.UNAVAILABLE]

    _run(story())


def test_waiters_whose_callers_have_gone_do_not_pile_up() -> None:
    async def story() -> None:
        waiters = AppliedWaiters()
        for _ in range(2_000):
            waiters.begin(LogIndex(9)).cancel()
        assert len(waiters) <= 256
        kept = waiters.begin(LogIndex(3))
        waiters.on_applied(LogIndex(3))
        assert kept.done()

    _run(story())


def test_a_storage_task_that_is_never_idle_does_its_other_jobs_as_well() -> None:
    async def story() -> None:
        limits = QuorumLimits(batches_before_job_max=3)
        storage = MemoryStorage(member_id(1), members(1))

        def persist_on(done: Persisted | Restored) -> None:
            task.persist(Persist(sequence=done.sequence + 1))

        task = StorageTask(
            storage, RealClock(), limits, on_done=persist_on, on_full=lambda error, attempts: None
        )
        task.persist(Persist(sequence=1))
        running = asyncio.ensure_future(task.run())
        for _ in range(2):
            flushes = task.flushes
            async with asyncio.timeout(5):
                await task.submit(lambda: storage.trim(LogIndex(1)))
            assert task.flushes - flushes <= 5
        running.cancel()

    _run(story())


def test_only_a_node_that_was_never_a_member_asks_to_be_let_in() -> None:
    def recovered(bootstrap: Members, *entries: Entry) -> Recovered:
        return Recovered(
            hard_state=HardState(), snapshot=None, bootstrap=bootstrap, entries=entries
        )

    with_me = Entry(
        index=LogIndex(1),
        term=Term(1),
        kind=EntryKind.MEMBERS,
        data=encode_members(members(1, 2)),
    )
    without_me = Entry(
        index=LogIndex(2), term=Term(1), kind=EntryKind.MEMBERS, data=encode_members(members(1))
    )
    me = member_id(2)
    assert not was_member(me, recovered(Members()))
    assert not was_member(me, recovered(members(1)))
    assert was_member(me, recovered(members(1, 2)))
    assert was_member(me, recovered(Members(), with_me, without_me))
