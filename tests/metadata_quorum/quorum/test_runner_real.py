"""The runner over real ports and real files: three members in one process, gRPC over loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import pytest

from tests.metadata_quorum.quorum.quorum_world import BOOTSTRAP, Commands, options
from tests.support.ports import free_ports
from tests.support.waiting import HANG_SECONDS
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import Member, MemberId, Members, NodeId
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports import Listener
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom
from tidelog.wire.errors import ErrorCode, TidelogError

POLL_S = 0.02
LIMITS = QuorumLimits(snapshot_after_entries=40, snapshot_piece_bytes=200)

pytestmark = pytest.mark.slow


class RealMember:
    """One member; `end` with or without a goodbye, then `begin` again on the same files."""

    def __init__(self, node: int, directory: Path, addresses: dict[int, str]) -> None:
        self.node = node
        self.directory = directory / str(node)
        self.addresses = addresses
        self.machine = Commands()
        self.runner: QuorumRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_up = asyncio.Event()

    @property
    def id(self) -> MemberId:
        return MemberId(NodeId(self.node), bytes([self.node]) * 16)

    @property
    def up(self) -> QuorumRunner:
        assert self.runner is not None, "the member has begun"
        return self.runner

    async def format(self, bootstrap: Members, cluster_id: str = "real") -> None:
        self.directory.mkdir()
        disk = await open_disk(self.directory)
        await format_storage(
            disk,
            cluster_id=cluster_id,
            node_id=self.node,
            directory_uuid=self.id.directory_uuid,
            bootstrap=bootstrap,
            bootstrap_command=BOOTSTRAP,
        )
        await disk.shutdown()

    async def begin(self) -> None:
        self._is_up.clear()
        self._task = asyncio.ensure_future(self._live())
        async with asyncio.timeout(HANG_SECONDS):
            await self._is_up.wait()

    async def kill(self) -> None:
        """No goodbye: tasks end where they are, sockets close."""
        assert self._task is not None, "the member has begun"
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.runner = None

    async def _live(self) -> None:
        disk = await open_disk(self.directory)
        network = GrpcNetwork(RealClock())
        self.machine = Commands()
        try:
            storage = await open_storage(disk)
            self.runner = QuorumRunner(
                storage=storage,
                state_machine=self.machine,
                network=network,
                clock=RealClock(),
                random=RealRandom(),
                limits=LIMITS,
                bootstrap_servers=[self.addresses[1]],
                bootstrap_command=storage.bootstrap_command,
                raft_options=options(entries_kept=5),
            )
            listener = Listener(name="cluster", bind=self.addresses[self.node])
            server = await network.serve(listener, self.runner.methods())
            self._is_up.set()
            try:
                await self.runner.run(address=self.addresses[self.node])
            finally:
                await server.stop(0)
        finally:
            await network.close()
            await disk.shutdown()


class RealQuorum:
    """Members by node id."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.addresses = {
            node: f"127.0.0.1:{port}" for node, port in enumerate(free_ports(nodes), start=1)
        }
        self.members = {
            node: RealMember(node, directory, self.addresses) for node in self.addresses
        }

    def voters(self, *nodes: int) -> Members:
        return Members(
            tuple(Member(id=self.members[n].id, address=self.addresses[n]) for n in nodes)
        )

    async def begin(self, *nodes: int) -> None:
        for node in nodes:
            await self.members[node].format(self.voters(*nodes))
        for node in nodes:
            await self.members[node].begin()

    async def leader(self) -> RealMember:
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                for member in self.members.values():
                    if member.runner is not None and BOOTSTRAP in member.machine.commands:
                        described = member.runner.describe()
                        if member.runner.is_running and described.role is Role.LEADER:
                            return member
                await asyncio.sleep(POLL_S)

    async def propose(self, data: bytes) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                leader = await self.leader()
                try:
                    await leader.up.propose(data, term=leader.up.describe().term)
                except TidelogError:
                    await asyncio.sleep(POLL_S)
                else:
                    return

    async def agree(self, *nodes: int, count: int) -> list[bytes]:
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                lists = [self.members[node].machine.commands for node in nodes]
                if all(len(each) >= count and each == lists[0] for each in lists):
                    return lists[0]
                await asyncio.sleep(POLL_S)

    async def end(self) -> None:
        for member in self.members.values():
            if member.runner is not None:
                await member.kill()


@contextlib.asynccontextmanager
async def quorum_of(directory: Path, nodes: int) -> AsyncIterator[RealQuorum]:
    quorum = RealQuorum(directory, nodes)
    try:
        yield quorum
    finally:
        await quorum.end()


async def _join_error(member: RealMember) -> TidelogError:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            if member.up.join_error is not None:
                return member.up.join_error
            await asyncio.sleep(POLL_S)


def _run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(story)


def test_real_voters_replicate_survive_their_leader_and_start_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum_of(tmp_path, 3) as quorum:
            await quorum.begin(1, 2, 3)
            leader = await quorum.leader()
            for number in range(10):
                await quorum.propose(b"%d" % number)
            await leader.kill()
            begun_s = asyncio.get_running_loop().time()
            await quorum.propose(b"after")
            assert asyncio.get_running_loop().time() - begun_s < 3
            await leader.begin()
            expected = [BOOTSTRAP, *(b"%d" % number for number in range(10)), b"after"]
            assert await quorum.agree(1, 2, 3, count=12) == expected
            for member in quorum.members.values():
                await member.kill()
            for member in quorum.members.values():
                await member.begin()
            await quorum.propose(b"again")
            assert await quorum.agree(1, 2, 3, count=13) == [*expected, b"again"]

    _run(story())


def test_a_real_learner_joins_by_snapshot_and_is_promoted(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum_of(tmp_path, 2) as quorum:
            await quorum.begin(1)
            for number in range(100):
                await quorum.propose(b"command %d" % number)
            leader = await quorum.leader()
            newcomer = quorum.members[2]
            await newcomer.format(Members())
            await newcomer.begin()
            await quorum.agree(1, 2, count=101)
            assert newcomer.machine.restores == 1
            await leader.up.promote(newcomer.id, timeout_ms=5_000)
            await leader.up.transfer(newcomer.id, timeout_ms=5_000)
            await quorum.propose(b"by the new leader")
            assert (await quorum.leader()) is newcomer
            await leader.up.read_index(timeout_ms=5_000)
            assert leader.machine.commands[-1] == b"by the new leader"

    _run(story())


def test_a_real_node_of_another_cluster_is_not_let_in(tmp_path: Path) -> None:
    async def story() -> None:
        async with quorum_of(tmp_path, 2) as quorum:
            await quorum.begin(1)
            await quorum.leader()
            stranger = quorum.members[2]
            await stranger.format(Members(), cluster_id="another")
            await stranger.begin()
            error = await _join_error(stranger)
            assert error.code is ErrorCode.WRONG_CLUSTER
            assert len(quorum.members[1].up.describe().members.members) == 1

    _run(story())
