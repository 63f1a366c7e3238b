"""The quorum at work on this node: one task owns the core and performs its effects in order.

Owns the life of a Raft core between storage, network and the state machine. It must never apply
what the core did not emit, report as flushed what is not, or leave a caller without an outcome.
A metadata write passes here between the controller's decision and its place in the image.

Theory of operation.

    callers, members, completions ──► Inbox ──► [tick, step or give] ──► effects, in order:
       Persist, ResetLog ──► StorageTask ──► Persisted ──► Inbox
       Send ──► QuorumTransport            Apply ──► Applying ──► state machine, who waits
       FetchSnapshot ──► SnapshotFetcher   Answer ──► who asked    RoleChanged ──► Changes

A disk that is full stops nothing for good: the batch is tried again until there is room, nothing is
acknowledged meanwhile, new proposals are refused STORAGE_FULL, waiting ones answered INDETERMINATE,
and a leader tries to hand over. A disk that failed ends the quorum here: `failure` says why.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

import msgspec

from tidelog.metadata_quorum.quorum.applying import Applying
from tidelog.metadata_quorum.quorum.inbox import MESSAGE_TYPES, Inbox, Item, Restored
from tidelog.metadata_quorum.quorum.joining import Joining, was_member
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import QuorumStorage, StateMachine
from tidelog.metadata_quorum.quorum.requests import RequestDesk
from tidelog.metadata_quorum.quorum.service import QuorumRpc
from tidelog.metadata_quorum.quorum.snapshot_fetch import SnapshotFetcher
from tidelog.metadata_quorum.quorum.snapshot_take import SnapshotTaker
from tidelog.metadata_quorum.quorum.storage_task import StorageTask
from tidelog.metadata_quorum.quorum.transport import QuorumTransport
from tidelog.metadata_quorum.quorum.waiting import again, terms_are_spent
from tidelog.metadata_quorum.quorum.wire.route import NO_LEADER, Identity
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.core import RaftCore
from tidelog.metadata_quorum.raft.core_port import Core
from tidelog.metadata_quorum.raft.effects import (
    Answer,
    Apply,
    Effect,
    FetchSnapshot,
    MembersChanged,
    Persist,
    Refused,
    ResetLog,
    Role,
    RoleChanged,
    Send,
    TrimLog,
)
from tidelog.metadata_quorum.raft.inputs import (
    PeerDied,
    Persisted,
    Propose,
    SnapshotTaken,
    Transfer,
)
from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.types import (
    NO_TERM,
    Entry,
    MemberId,
    Options,
    Recovered,
    Snapshot,
)
from tidelog.ports import Clock, Method, Network, Random, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

MakeCore = Callable[[MemberId, Recovered, Options], Core]

FULL_DISK_ATTEMPTS = 2
"""After so many in a row a full disk is no passing thing."""

_SEED_BOUND = 1 << 32


class QuorumRunner(RequestDesk):
    """Implements `port.Quorum`: the calls are `RequestDesk`'s, the work is done by `run`."""

    def __init__(
        self,
        *,
        storage: QuorumStorage,
        state_machine: StateMachine,
        network: Network,
        clock: Clock,
        random: Random,
        limits: QuorumLimits | None = None,
        peer_addresses: Mapping[int, str] | None = None,
        bootstrap_servers: Sequence[str] = (),
        bootstrap_command: bytes = b"",
        make_core: MakeCore = RaftCore,
        raft_options: Options | None = None,
    ) -> None:
        limits = limits or QuorumLimits()
        options = raft_options or Options()
        if options.jitter_seed == 0:
            options = msgspec.structs.replace(options, jitter_seed=random.below(_SEED_BOUND))
        recovered = storage.recovered
        inbox = Inbox(limits)
        applying = Applying(
            state_machine,
            limits,
            recovered,
            read_members=decode_members,
            on_applied=self._on_applied,
        )
        self._writer = StorageTask(
            storage, clock, limits, on_done=inbox.put, on_full=self._on_full_disk
        )
        core = make_core(storage.member_id, recovered, options)
        super().__init__(core, storage, clock, limits, inbox, applying, self._writer)
        self._state_machine = state_machine
        self._network = network
        self._random = random
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._bootstrap_command = bootstrap_command
        self._bootstrap_term = NO_TERM
        """In which this node proposed it last, and with which request."""
        self._bootstrap_request = 0
        self._here = Identity(cluster_id=storage.cluster_id, member_id=storage.member_id)
        self._scope: TaskScope | None = None
        self._has_begun = False
        self._stop_asked = asyncio.Event()
        self._ended = asyncio.Event()
        self._role = Role.FOLLOWER
        self._join: Joining | None = None
        self._transport = self._make_transport(peer_addresses or {})
        self._transport.update_members(self._core.describe().members)
        self._fetcher = SnapshotFetcher(
            storage, self._writer, self._transport, clock, limits, complete=self._inbox.put
        )
        self._taker = self._make_taker()
        self._rpc = QuorumRpc(self, self._transport, storage, self._here, limits)

    def _make_transport(self, peer_addresses: Mapping[int, str]) -> QuorumTransport:
        return QuorumTransport(
            network=self._network,
            clock=self._clock,
            random=self._random,
            limits=self._limits,
            here=self._here,
            peer_addresses=peer_addresses,
            deliver=self._inbox.put_message,
            on_dead=self._on_dead,
        )

    def _make_taker(self) -> SnapshotTaker:
        return SnapshotTaker(
            self._storage,
            self._state_machine,
            self._writer,
            self._applying,
            self._clock,
            self._limits,
            complete=self._on_snapshot_taken,
        )

    # -- life ------------------------------------------------------------------------------------

    def methods(self) -> Mapping[str, Method]:
        """QuorumService, for the `cluster` listener; may be served before `run`."""
        return self._rpc.methods()

    async def run(self, *, address: str = "") -> None:
        """Until `stop` or `failure`; `address` is where this node's cluster listener is reached.

        A failure of the disk is not raised: it stands in `failure`.
        """
        assert not self._has_begun, "a runner runs once"
        self._has_begun = True
        ending = self._unavailable("the quorum has ended")
        try:
            snapshot = self._storage.recovered.snapshot
            if snapshot is not None:
                state = await self._storage.load_state(snapshot)
                self._state_machine.restore(snapshot, state)
            await self._live(address)
            ending = self._unavailable("the node is stopping")
        except TidelogError as error:
            self.failure = ending = error
        finally:
            self._is_running = False
            self._scope = None
            self._fail_all(self.failure or ending)
            self._transport.stop(again(self.failure or ending))
            await self._writer.fail_jobs(self.failure or ending)
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is written here any more."""
        return self._ended.is_set()

    @property
    def join_error(self) -> TidelogError | None:
        """Why this node was not let in when it asked last, if so."""
        return None if self._join is None else self._join.last_error

    @property
    def why_leaderless(self) -> TidelogError | None:
        """What each member says, or does not, that was asked for its vote; None: nobody was."""
        if self._core.describe().term >= NUMBER_MAX:
            return terms_are_spent(self._core.describe().term)
        unanswered = self._transport.why_unanswered()
        led = {node.node_id: leader for node, leader in self._transport.refusals().items()}
        if leaders := set(led.values()) - {NO_LEADER, self.member_id.node_id}:
            return self._is_left_out(sorted(led), sorted(leaders))
        if not unanswered:
            return None
        reasons = "; ".join(
            f"node {member_id.node_id}: [{error.code.name}] {error.happened}"
            for member_id, error in sorted(unanswered.items())
        )
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried="find a leader of the metadata quorum",
            happened=f"a majority is missing: {reasons}",
        )

    def _is_left_out(self, voters: Sequence[int], leaders: Sequence[int]) -> TidelogError:
        """The others are a quorum, and their leader does not come through to this node."""
        own = self.member_id
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried="find a leader of the metadata quorum",
            happened=f"{_nodes(voters)} answered and refused their vote: {_nodes(leaders)} leads, "
            f"and does not reach node {own.node_id} with the directory {own.directory_uuid.hex()}",
            hint=f"The log of {_nodes(leaders)} says why (quorum_member_unreached). Where `tidelog "
            f"quorum describe` shows another directory of node {own.node_id}, this one was "
            "formatted anew: format it with --join, not with --initial-voters.",
        )

    @property
    def full_disk(self) -> TidelogError | None:
        """What the quorum's disk refuses with while it has no room."""
        return self._writer.full_error

    def peer_error(self, member_id: MemberId) -> TidelogError | None:
        """Why this node's stream to a member broke last; None: it did not, or there is none."""
        return self._transport.last_error(member_id)

    async def stop(self) -> None:
        """Hand over if this node leads, write what is queued, answer everybody."""
        self._stop_asked.set()
        if self._has_begun:
            await self._ended.wait()

    async def _live(self, address: str) -> None:
        async with TaskScope() as scope:
            self._scope = scope
            self._transport.start(scope)
            self._is_running = True
            writer = scope.start(self._write(), name="quorum storage")
            scope.start(self._work(), name="quorum core")
            scope.start(self._tick(), name="quorum clock")
            if not was_member(self.member_id, self._storage.recovered):
                self._join = self._joining(address)
                scope.start(self._join.run(), name="quorum joining")
            await self._stop_asked.wait()
            await self._hand_over()
            self._is_running = False
            self._writer.end()
            await writer
            scope.cancel()

    async def _write(self) -> None:
        failure = await self._writer.run()
        if failure is not None:
            raise failure

    def _joining(self, address: str) -> Joining:
        return Joining(
            network=self._network,
            clock=self._clock,
            random=self._random,
            limits=self._limits,
            here=self._here,
            address=address,
            bootstrap_servers=self._bootstrap_servers,
            transport=self._transport,
            members=lambda: self._core.describe().members,
        )

    async def _hand_over(self) -> None:
        """So that the others need not wait for an election timeout."""
        if self._role is not Role.LEADER or len(self._core.describe().members.voters) < 2:
            return
        try:
            await self.transfer(None, timeout_ms=self._limits.handover_timeout_ms)
        except TidelogError:
            # The others elect a leader by themselves, a little later.
            return

    # -- the task that owns the core -------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            if self._applying.has_backlog:
                await asyncio.sleep(0)
            else:
                await self._inbox.wait()
            self._perform(self._core.tick(self._now_ms()))
            for item in self._inbox.take():
                self._perform(self._hand_in(item))
            self._applying.go_on()
            if self._scope is not None:
                self._taker.consider(self._scope)

    async def _tick(self) -> None:
        """The first tick comes at once: a one-voter quorum elects itself then."""
        while True:
            self._proposals.expire(self._now_ms())
            self._propose_bootstrap()
            self._inbox.wake()
            await self._clock.sleep(self._limits.tick_ms)

    def _hand_in(self, item: Item) -> list[Effect]:
        if isinstance(item, MESSAGE_TYPES):
            return self._core.step(item)
        if isinstance(item, Restored):
            self._proposals.lose("a snapshot of the leader took the place of this node's log")
            self._applying.restore(item.snapshot, item.state)
            self._snapshot = item.snapshot
            self._applied_waiters.on_applied(self._applying.applied_index)
            self._changes.bump()
            return self._core.give(Persisted(sequence=item.sequence))
        if isinstance(item, Propose) and (self._is_cut_off(item) or self._is_too_early(item)):
            return []
        return self._core.give(item)

    def _is_cut_off(self, proposal: Propose) -> bool:
        """What follows on a refused one of its proposer was built upon what will never be."""
        error = self._proposals.refusal_before(proposal.request_id)
        return error is not None and self._proposals.refuse(proposal.request_id, error)

    def _is_too_early(self, proposal: Propose) -> bool:
        """Nothing comes before the bootstrap command, or it would never be proposed."""
        if not self._bootstrap_command or self._applying.has_state:
            return False
        if self._role is not Role.LEADER or proposal.data is self._bootstrap_command:
            return False
        error = self._unavailable("the first command of the cluster is not committed yet")
        return self._proposals.refuse(proposal.request_id, error)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist() | ResetLog():
                    self._writer.persist(effect)
                case Send():
                    self._transport.send(effect.message)
                case Apply():
                    self._applying.add(effect.entries)
                case Answer():
                    self._on_answer(effect)
                    self._on_bootstrap_answer(effect)
                case RoleChanged():
                    self._on_role(effect)
                case MembersChanged():
                    self._transport.update_members(effect.members)
                    self._changes.bump()
                case FetchSnapshot():
                    assert self._scope is not None, "effects are performed while the runner runs"
                    self._fetcher.begin(self._scope, effect)
                case TrimLog():
                    self._trim(effect.first_index)
                case _:
                    assert_never(effect)

    def _on_role(self, changed: RoleChanged) -> None:
        if self._role is Role.LEADER:
            self._proposals.lose("leadership was lost before it was known to be committed")
        self._role = changed.role
        self._changes.bump()

    def _on_applied(self, entries: tuple[Entry, ...]) -> None:
        """Entries are in the state machine: those who wait for them go on."""
        self._propose_bootstrap()
        self._proposals.on_applied(entries)
        self._applied_waiters.on_applied(entries[-1].index)
        self._changes.bump()

    def _propose_bootstrap(self) -> None:
        """The first command of a cluster. A leader that has applied an entry of its own term has
        applied all that was committed before: none is there means that there never was one.
        """
        if not self._bootstrap_command or self._applying.has_state:
            return
        description = self._core.describe()
        term = self._applying.applied_term
        is_own = description.role is Role.LEADER and term == description.term
        if is_own and self._bootstrap_term != term:
            self._bootstrap_term = term
            request_id = self._bootstrap_request = self._next_request_id()
            command = self._bootstrap_command
            self._inbox.put_first(Propose(request_id=request_id, data=command, term=term))

    def _on_bootstrap_answer(self, answer: Answer) -> None:
        """Refused while the leadership is handed over: the next tick tries again."""
        if answer.request_id == self._bootstrap_request and isinstance(answer.outcome, Refused):
            self._bootstrap_term = NO_TERM

    def _trim(self, first_index: LogIndex) -> None:
        self._applying.trim(first_index)
        assert self._scope is not None, "effects are performed while the runner runs"
        self._scope.start(self._trim_storage(first_index), name=f"trim to {first_index}")

    async def _trim_storage(self, first_index: LogIndex) -> None:
        try:
            await self._writer.submit(lambda: self._storage.trim(first_index))
        except TidelogError:
            # Nothing is lost by entries that stay; a failed disk ends the storage task itself.
            return

    # -- news from the other tasks ---------------------------------------------------------------

    def _on_dead(self, node_id: int) -> None:
        self._inbox.put(PeerDied(node_id=node_id))

    def _on_snapshot_taken(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._inbox.put(SnapshotTaken(snapshot=snapshot))

    def _on_full_disk(self, error: TidelogError, attempts: int) -> None:
        """A moment without room is nobody's business; a longer one is the waiting callers'."""
        if attempts < FULL_DISK_ATTEMPTS:
            return
        self._proposals.lose(f"the quorum's disk is full: {error.happened}", hint=error.hint)
        if self._role is Role.LEADER:
            self._inbox.put(Transfer(request_id=self._next_request_id(), to=None))


def _nodes(node_ids: Sequence[int]) -> str:
    listed = " and ".join(map(str, node_ids))
    return f"node {listed}" if len(node_ids) == 1 else f"nodes {listed}"
