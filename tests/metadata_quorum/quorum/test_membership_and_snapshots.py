"""Learners that join, snapshots that are fetched in pieces, hand-overs, reads, refusals."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tests.metadata_quorum.quorum.quorum_world import (
    BOOTSTRAP,
    Life,
    SimulatedQuorum,
    address,
    member_id,
    members,
    options,
    until,
)
from tidelog.chaos.sim.world.world import World
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.transport import SERVICE
from tidelog.metadata_quorum.quorum.wire.joining import encode_piece_request
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, HardState, Snapshot, SnapshotId
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

SMALL = QuorumLimits(snapshot_after_entries=20, snapshot_piece_bytes=100)
SHORT_LOG = options(entries_kept=5)


@pytest.fixture(params=[1, 2, 3])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    assert made.findings() == []
    made.close()


async def _write(quorum: SimulatedQuorum, count: int) -> None:
    for number in range(count):
        await quorum.propose(b"command %d" % number)


def test_a_new_node_becomes_a_learner_and_can_be_promoted(world: World) -> None:
    quorum = SimulatedQuorum(world, 1)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await quorum.propose(b"before")
        newcomer = quorum.join(2)
        assert await quorum.agree() == [BOOTSTRAP, b"before"]
        described = leader.up.describe()
        member = described.members.find(member_id(2))
        assert member is not None
        assert member.is_learner
        await leader.up.promote(member_id(2), timeout_ms=5_000)
        assert len(leader.up.describe().members.voters) == 2
        await quorum.propose(b"after")
        assert await quorum.agree() == [BOOTSTRAP, b"before", b"after"]
        assert newcomer.up.describe().members.voters == described_voters(leader)

    world.run(story())


def described_voters(life: Life) -> tuple[object, ...]:
    return life.up.describe().members.voters


def test_a_member_that_was_taken_out_hears_that_it_was_and_stays_quiet(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        gone = next(life for life in quorum.lives.values() if life is not leader)
        await leader.up.remove_member(member_id(gone.node), timeout_ms=5_000)

        def was_told() -> bool:
            return member_id(gone.node) not in gone.up.describe().committed_members.voters

        await until(was_told)
        term = leader.up.describe().term
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert gone.up.describe().role is Role.FOLLOWER
        assert leader.up.describe().term == term

    world.run(story())


def test_a_follower_that_is_far_behind_fetches_a_snapshot_in_pieces(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3, limits=SMALL, options=SHORT_LOG)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        late = next(life for life in quorum.lives.values() if life is not leader)
        late.kill()
        await _write(quorum, 100)
        await until(lambda: leader.up.newest_snapshot())
        newest = leader.up.newest_snapshot()
        assert newest is not None
        assert newest.size_bytes > 3 * SMALL.snapshot_piece_bytes
        late.storage.members_of_fetched = newest.members
        late.start()
        commands = await quorum.agree()
        assert commands == [BOOTSTRAP, *(b"command %d" % number for number in range(100))]
        assert late.machine.restores == 1

    world.run(story())


def test_a_learner_that_knows_nobody_finds_the_source_of_its_snapshot(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, limits=SMALL, options=SHORT_LOG)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await _write(quorum, 50)
        await until(lambda: leader.up.newest_snapshot())
        newcomer = quorum.join(4)
        newcomer.storage.members_of_fetched = members(1)
        commands = await quorum.agree()
        assert len(commands) == 51
        assert newcomer.machine.restores == 1

    world.run(story())


def test_a_learner_gets_another_snapshot_where_the_newest_has_rotted(world: World) -> None:
    """Nothing is written any more that would make the next one due."""
    quorum = SimulatedQuorum(world, 1, limits=SMALL, options=SHORT_LOG)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await write_until_a_snapshot(quorum, leader)
        leader.storage.is_rotten = True
        newcomer = quorum.join(4)
        newcomer.storage.members_of_fetched = members(1)
        assert await quorum.agree() == leader.machine.commands
        assert newcomer.machine.restores == 1

    world.run(story())


def test_an_observer_gets_another_snapshot_where_the_newest_has_rotted(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, limits=SMALL, options=SHORT_LOG)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await write_until_a_snapshot(quorum, leader)
        leader.storage.is_rotten = True
        with pytest.raises(TidelogError) as caught:
            await read_newest(leader)
        assert caught.value.code is ErrorCode.UNAVAILABLE
        await until(lambda: not leader.storage.is_rotten)
        assert await read_newest(leader) == tuple(leader.machine.commands)

    world.run(story())


async def write_until_a_snapshot(quorum: SimulatedQuorum, leader: Life) -> None:
    """The newest one holds all that is applied."""
    for number in range(SMALL.snapshot_after_entries):
        await quorum.propose(b"command %d" % number)
        await asyncio.sleep(1)
        if leader.up.newest_snapshot() is not None:
            return
    raise AssertionError("after so many entries there is a snapshot")


async def read_newest(life: Life) -> tuple[bytes, ...]:
    newest = life.up.newest_snapshot()
    assert newest is not None
    pieces = [piece async for piece in life.up.snapshot_pieces(newest)]
    return msgspec.msgpack.decode(b"".join(pieces), type=tuple[bytes, ...])


def test_leadership_is_handed_over_without_an_election_timeout(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await quorum.propose(b"x")
        to = next(life for life in quorum.lives.values() if life is not leader)
        begun_s = world.loop.time()
        await leader.up.transfer(to.up.member_id, timeout_ms=5_000)
        await until(lambda: to.up.describe().role is Role.LEADER)
        assert world.loop.time() - begun_s < 0.5

    world.run(story())


def test_a_leader_that_stops_hands_over_and_answers_everybody(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        waiting = asyncio.ensure_future(leader.up.wait_applied(LogIndex(1_000)))
        await asyncio.sleep(0.01)
        begun_s = world.loop.time()
        await leader.up.stop()
        with pytest.raises(TidelogError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert leader.up.failure is None
        leader.runner = None
        await quorum.propose(b"soon")
        assert world.loop.time() - begun_s < 0.9

    world.run(story())


def test_a_read_on_a_follower_sees_what_was_written_before(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        follower = next(life for life in quorum.lives.values() if life is not leader)
        for number in range(10):
            written = b"%d" % number
            await leader.up.propose(written, term=leader.up.describe().term)
            await follower.up.read_index(timeout_ms=5_000)
            assert written in follower.machine.commands

    world.run(story())


def test_a_proposal_on_a_follower_names_the_leader(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        follower = next(life for life in quorum.lives.values() if life is not leader)
        await until(lambda: follower.up.describe().leader)
        with pytest.raises(TidelogError) as caught:
            await follower.up.propose(b"x", term=Term(0))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert address(leader.node) in caught.value.hint

    world.run(story())


@pytest.mark.parametrize("field", ["cluster", "node", "directory"])
def test_a_message_for_another_cluster_node_or_directory_is_refused(
    world: World, field: str
) -> None:
    quorum = SimulatedQuorum(world, 1)
    here = Identity(cluster_id="other" if field == "cluster" else "test", member_id=member_id(9))
    meant = member_id(2 if field == "node" else 1, life=2 if field == "directory" else 1)
    message = encode_piece_request(
        here, meant, SnapshotId(end_index=LogIndex(0), term=Term(0)), 0, 1
    )

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        assert leader.process is not None
        with pytest.raises(TidelogError) as caught:
            await leader.process.ports.network.call(
                address(1), f"{SERVICE}/FetchSnapshot", message, timeout_ms=1_000
            )
        assert caught.value.code is ErrorCode.WRONG_CLUSTER
        assert caught.value.hint

    world.run(story())


def test_a_full_disk_loses_nothing_and_the_leader_steps_aside(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        await quorum.propose(b"before")
        leader.storage.refusal = ErrorCode.STORAGE_FULL
        term = leader.up.describe().term
        with pytest.raises(TidelogError) as caught:
            await leader.up.propose(b"caught", term=term)
        assert caught.value.code is ErrorCode.INDETERMINATE
        await quorum.propose(b"by another")
        leader.storage.refusal = None
        await quorum.propose(b"after")
        commands = await quorum.agree()
        assert [c for c in commands if c != b"caught"] == [
            BOOTSTRAP,
            b"before",
            b"by another",
            b"after",
        ]

    world.run(story())


def test_a_single_voter_on_a_full_disk_refuses_and_goes_on_by_itself(world: World) -> None:
    quorum = SimulatedQuorum(world, 1)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        leader.storage.refusal = ErrorCode.STORAGE_FULL
        term = leader.up.describe().term
        with pytest.raises(TidelogError) as first:
            await leader.up.propose(b"a", term=term)
        with pytest.raises(TidelogError) as second:
            await leader.up.propose(b"b", term=term)
        assert first.value.code is ErrorCode.INDETERMINATE
        assert second.value.code is ErrorCode.STORAGE_FULL
        leader.storage.refusal = None
        await asyncio.sleep(2)
        await leader.up.propose(b"c", term=term)
        assert leader.machine.commands == [BOOTSTRAP, b"a", b"c"]

    world.run(story())


def test_a_failed_disk_ends_the_quorum_of_this_node_for_good(world: World) -> None:
    quorum = SimulatedQuorum(world, 1, 2, 3)

    async def story() -> None:
        quorum.start()
        leader = await quorum.leader()
        leader.storage.refusal = ErrorCode.STORAGE_FAILED
        runner = leader.up
        term = runner.describe().term
        with pytest.raises(TidelogError):
            await runner.propose(b"under way", term=term)
        with pytest.raises(TidelogError) as caught:
            await runner.propose(b"later", term=term)
        assert caught.value.code is ErrorCode.STORAGE_FAILED
        assert runner.failure is not None
        assert not runner.is_running
        await quorum.propose(b"by another")

    world.run(story())


def test_a_log_that_does_not_lead_up_to_the_snapshot_gives_way_to_it_at_the_start(
    world: World,
) -> None:
    quorum = SimulatedQuorum(world, 1)

    async def story() -> list[bytes]:
        storage = quorum.lives[1].storage
        snapshot_id = SnapshotId(LogIndex(11), Term(2))
        data = msgspec.msgpack.encode((BOOTSTRAP,))
        storage.files = {snapshot_id: (data, (BOOTSTRAP,), members(1))}
        storage.snapshot = Snapshot(id=snapshot_id, members=members(1), size_bytes=len(data))
        storage.hard_state = HardState(term=Term(2))
        storage.entries = [
            Entry(index=LogIndex(index), term=Term(1), kind=EntryKind.COMMAND, data=b"lost")
            for index in range(1, 6)
        ]
        quorum.start()
        leader = await quorum.leader()
        await quorum.propose(b"after")
        assert leader.up.committed_entries(LogIndex(3), 100) is None, "they are in the snapshot"
        assert [each.index for each in storage.entries] == [11, 12]
        return leader.machine.commands

    assert world.run(story()) == [BOOTSTRAP, b"after"]


def test_whoever_asks_a_quorum_that_has_ended_hears_that_it_has(world: World) -> None:
    quorum = SimulatedQuorum(world, 1)

    async def follow(life: Life) -> None:
        seen = 0
        for _ in range(1_000):
            seen = await life.up.wait_change(seen)

    async def story() -> ErrorCode:
        quorum.start()
        leader = await quorum.leader()
        await leader.up.stop()
        with pytest.raises(TidelogError) as caught:
            await asyncio.wait_for(follow(leader), 5)
        return caught.value.code

    assert world.run(story()) is ErrorCode.UNAVAILABLE


def test_a_stop_during_the_start_waits_for_the_end(world: World) -> None:
    quorum = SimulatedQuorum(world, 1)
    life = quorum.lives[1]

    async def story() -> None:
        life.start()
        runner = await until(lambda: life.runner)
        assert not runner.is_running, "its snapshot is still being loaded"
        await runner.stop()
        assert runner.has_ended

    life.storage.slow_load_s = 1.0
    snapshot_id = SnapshotId(LogIndex(11), Term(2))
    data = msgspec.msgpack.encode((BOOTSTRAP,))
    life.storage.files = {snapshot_id: (data, (BOOTSTRAP,), members(1))}
    life.storage.snapshot = Snapshot(id=snapshot_id, members=members(1), size_bytes=len(data))
    life.storage.hard_state = HardState(term=Term(2))
    world.run(story())
