"""One whole node of the quorum: runner, transport, converters and storage over simulated ports.

Owns the lives of its process and what clients and operators ask of it. It must never reach behind
the ports.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from tidelog.chaos.checkers.history.linearizability import Value
from tidelog.chaos.checkers.raft.board import Seen
from tidelog.chaos.sim.quorum import factory
from tidelog.chaos.sim.quorum.key_value import KeyValue
from tidelog.chaos.sim.quorum.watched import WatchedCore, WatchedStorage
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.inputs import (
    AddLearner,
    Input,
    Promote,
    RemoveMember,
    Transfer,
)
from tidelog.metadata_quorum.raft.types import (
    Entry,
    MemberId,
    Members,
    Options,
    Recovered,
    Snapshot,
)
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.ports import Listener
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.chaos.sim.quorum_nodes.cluster import WholeCluster

DIRECTORY: Final = "quorum"
CLUSTER_ID: Final = "simulated"
_RESULTS_MAX: Final = 64
_REQUEST_MS: Final = 3_000
_NOTHING_CHANGED: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.RESOURCE_EXHAUSTED)

Done = Callable[[str, Value], None]


class WholeNode:
    """A machine with a process that is started again and again."""

    def __init__(
        self, cluster: "WholeCluster", member_id: MemberId, bootstrap: Members, observer: bool
    ) -> None:
        self.cluster = cluster
        self.node_id = int(member_id.node_id)
        self.name = f"n{self.node_id}"
        self.member_id = member_id
        self.bootstrap = bootstrap
        self.is_observer = observer
        self.machine = cluster.world.machine(self.name)
        self.process: Process | None = None
        self.runner: QuorumRunner | None = None
        self.seen: Seen
        self.store = KeyValue()
        self.results: dict[int, Value] = {}
        self.settled: dict[str, int] = {}
        """By path: how many bytes are told from a torn tail."""
        self.flips = 0
        """Damage that no life since has answered for."""

    # -- life ----------------------------------------------------------------------------------

    @property
    def core(self) -> QuorumRunner | None:
        """Whatever answers here; None: dead, or not ready."""
        return self.runner if self.process is not None and not self.process.is_dead else None

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped for a while."""
        return self.process is not None and self.process.is_paused

    def start(self) -> None:
        """Another life."""
        self.runner = None
        self.process = self.machine.start(self.name, self._live)

    def kill(self, *, is_machine: bool) -> None:
        """Of the process, or of the machine."""
        if self.process is None or self.process.is_dead:
            return
        self._forget()
        if is_machine:
            self.machine.crash()
        else:
            self.process.kill()

    def _forget(self) -> None:
        if self.runner is not None:
            self.cluster.watch.on_death(self.seen)
        self.runner = None

    async def _live(self, ports: SimulatedPorts) -> None:
        cluster = self.cluster
        disk = ports.open_disk(DIRECTORY)
        if "quorum.json" not in await disk.list():
            await format_storage(
                disk,
                cluster_id=CLUSTER_ID,
                node_id=self.node_id,
                directory_uuid=self.member_id.directory_uuid,
                bootstrap=self.bootstrap,
                bootstrap_command=b"",
            )
        storage = await factory.open_storage(
            disk, self.node_id, CLUSTER_ID, ports.host.boot_id(), cluster.segment_bytes
        )
        self.settled.clear()
        self.seen = cluster.watch.on_start(
            storage.member_id,
            storage.recovered,
            self.bootstrap,
            cluster.plan.options.election_timeout_ms,
        )
        self.flips = 0
        self.results.clear()
        self.store = KeyValue(self._on_applied)
        self.store.on_restored = self._on_restored
        self.runner = runner = QuorumRunner(
            storage=WatchedStorage(storage, cluster.watch, self.seen, self._on_settled),
            state_machine=self.store,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            limits=cluster.limits,
            bootstrap_servers=cluster.addresses(),
            make_core=self._make_core,
            raft_options=cluster.plan.options,
        )
        await ports.network.serve(
            Listener(name="cluster", bind=cluster.address(self.node_id)), runner.methods()
        )
        try:
            await runner.run(address=cluster.address(self.node_id))
        finally:
            self._forget()
        if runner.failure is not None:
            raise runner.failure

    def _make_core(self, member_id: MemberId, recovered: Recovered, options: Options) -> Core:
        def on_role(role: Role, cause: str) -> None:
            self.cluster.on_role(self, role, cause)

        core = factory.make_core(member_id, recovered, options)
        return WatchedCore(core, self.cluster.watch, self.seen, on_role)

    # -- what is told of it --------------------------------------------------------------------

    def _on_applied(self, entry: Entry, result: Value) -> None:
        self.cluster.watch.on_state(self.seen, entry.index, self.store.digest)
        self.results[entry.index] = result
        if len(self.results) > _RESULTS_MAX:
            del self.results[next(iter(self.results))]

    def _on_restored(self, snapshot: Snapshot) -> None:
        self.cluster.watch.on_restored(self.seen, snapshot)
        self.cluster.watch.on_state(self.seen, snapshot.last_index, self.store.digest)

    def _on_settled(self) -> None:
        for path, inode in self.machine.medium(DIRECTORY).durable_files():
            self.settled[path] = len(inode.durable)

    # -- what is asked of it -------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        process = self.process
        assert process is not None, "only a living node is asked"
        process.start_task(work, "caller")

    def propose(self, data: bytes, done: Done) -> None:
        """A command of a client."""
        self._begin(self._propose(data, done))

    async def _propose(self, data: bytes, done: Done) -> None:
        runner = self.runner
        if runner is None:
            done("failed", None)
            return
        try:
            index = await runner.propose(data, term=runner.describe().term)
        except TidelogError as error:
            done("failed" if error.code in _NOTHING_CHANGED else "unknown", None)
            return
        is_known = index in self.results
        done("ok" if is_known else "unknown", self.results.get(index))

    def read(self, key: str, done: Done) -> None:
        """A linearizable read."""
        self._begin(self._read(key, done))

    async def _read(self, key: str, done: Done) -> None:
        runner = self.runner
        if runner is None:
            done("failed", None)
            return
        try:
            await runner.read_index(timeout_ms=_REQUEST_MS)
        except TidelogError:
            done("failed", None)
            return
        done("ok", self.store.values.get(key))

    def request(self, make: Callable[[int], Input], done: Done) -> None:
        """A change of members or a transfer."""
        self._begin(self._request(make(0), done))

    async def _request(self, request: Input, done: Done) -> None:
        runner = self.runner
        if runner is None:
            return
        try:
            match request:
                case AddLearner(member=member):
                    await runner.add_learner(member, timeout_ms=_REQUEST_MS)
                case Promote(member_id=member_id):
                    await runner.promote(member_id, timeout_ms=_REQUEST_MS)
                case RemoveMember(member_id=member_id):
                    await runner.remove_member(member_id, timeout_ms=_REQUEST_MS)
                case Transfer(to=to):
                    await runner.transfer(to, timeout_ms=_REQUEST_MS)
                case _:
                    raise AssertionError("an operator asks for nothing else")
        except TidelogError:
            done("failed", None)
            return
        done("ok", None)
