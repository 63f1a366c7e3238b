"""Programs that carry a plan of transactions out, as a careful user of the client would.

Owns what is written down of them. A life is one run of a program: it dies with its transaction
open, is fenced by its successor, or goes on as a zombie beside it. It must never look behind its
client, and writes nothing down that its client did not tell it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from tidelog.chaos.checkers.transactions import HistoryBuilder, TransactionOutcome
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.client import (
    Folded,
    PreparedToken,
    Standing,
    TransactionalClient,
)
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.sim.world.world import World
from tidelog.chaos.workloads.transactions import (
    Ending,
    PlannedPoll,
    PlannedProcess,
    PlannedSend,
    PlannedTransaction,
    Work,
)
from tidelog.wire.errors import ErrorCode, TidelogError

_MS: Final = 1_000_000
PAUSE_NS: Final = (5 * _MS, 150 * _MS)
_AWAITED: Final = 0.4
_SWITCHES: Final = 0.2
"""How likely an end of unknown outcome is followed by an abort instead of the same call again."""
_ZOMBIE_TRANSACTIONS: Final = 2

MakeClient = Callable[[SimulatedPorts, PlannedProcess], TransactionalClient]


class Decisions(Protocol):
    """Where prepared transactions go: another process decides them."""

    def hand_over(self, token: PreparedToken, *, is_commit: bool) -> "asyncio.Future[None]":
        """Done when it is decided."""
        ...


class Setting:
    """What lives share: the run."""

    def __init__(
        self,
        world: World,
        decisions: Decisions,
        make_client: MakeClient,
        *,
        zombies: float,
        prepared: float,
    ) -> None:
        self.world: Final = world
        self.builder: Final = HistoryBuilder()
        self.decisions: Final = decisions
        self.make_client: Final = make_client
        self.zombies: Final = zombies
        """How likely a producer that should be dead goes on."""
        self.prepared: Final = prepared
        """How likely a commit is prepared, and decided by another process."""
        self.violations: list[str] = []
        self.outcomes: dict[str, int] = {}
        self.folded = 0
        """Input records that folds have answered in transactions that committed."""
        self.takeovers: Callable[[str], int] = lambda _: 0
        """Of a transactional id, how often anybody took it over without naming an identity, the
        first time included."""
        self.is_calm = False
        """Nothing new begins."""


class Gone(Exception):
    """The life is over: it was fenced, or the run calms down."""


class Owner:
    """Of one transactional id: which transactions are still to be done, and by which life."""

    def __init__(self, setting: Setting, planned: PlannedProcess) -> None:
        self.setting: Final = setting
        self.planned: Final = planned
        self.left: list[PlannedTransaction] = list(planned.transactions)
        self.lives: list[Life] = []
        self.life: Life | None = None
        """Whose turn it is."""

    @property
    def is_done(self) -> bool:
        """Nothing is left, or nothing new begins, and nobody is at work."""
        is_free = self.life is None or self.life.is_over
        return is_free and (not self.left or self.setting.is_calm)

    def keep(self) -> None:
        """A successor takes over from a life that is over."""
        is_free = self.life is None or self.life.is_over
        if is_free and self.left and not self.setting.is_calm:
            self.succeed()

    def succeed(self) -> None:
        """Another life begins, whatever becomes of the one before."""
        self.life = Life(self, len(self.lives) + 1)
        self.lives.append(self.life)
        self.life.start()

    def steal(self) -> None:
        """Somebody else begins under the same id, and the one before does not know."""
        if self.life is not None and not self.life.is_over:
            self.life.become_zombie()
            self.succeed()


class Life:
    """One of them."""

    def __init__(self, owner: Owner, number: int) -> None:
        self.owner: Final = owner
        self.name: Final = f"{owner.planned.transactional_id}.{number}"
        self.process: Process | None = None
        self._setting = owner.setting
        self._planned = owner.planned
        self._random: SeededRandom = owner.setting.world.seeds.purpose(f"life {self.name}")
        self._client: TransactionalClient
        self._has_ended = False
        self._own: list[PlannedTransaction] | None = None
        """Of a zombie: what it believes to have to do."""
        self._positions: dict[str, int] = dict.fromkeys(owner.planned.reads, 0)
        self._folded = Folded(0, 0)
        self._transaction = 0
        self._takeovers = 0
        """Of its id, when it asked for its identity."""
        self._unsent: list[tuple[str, str]] = []
        """Records of the open transaction that have not left."""
        self._is_open = False

    @property
    def is_over(self) -> bool:
        """Whether it does nothing any more."""
        return self._has_ended or self.process is None or self.process.is_dead

    def start(self) -> None:
        """From its first instruction on."""
        self.process = self._setting.world.machine(self.name).start(self.name, self._live)

    def become_zombie(self) -> None:
        """It goes on, and somebody else does what it should do."""
        if self._own is None:
            self._own = list(self.owner.left[:_ZOMBIE_TRANSACTIONS])

    def write_rest(self) -> None:
        """At the end of the run: what it would have sent as well, so that transfers are whole."""
        if self._is_open and not self._has_ended:
            self._give_up_unsent()

    # -- the program ---------------------------------------------------------------------------

    async def _live(self, ports: SimulatedPorts) -> None:
        self._client = self._setting.make_client(ports, self._planned)
        self._setting.builder.assign(self.name, self._positions, at_ns=self._now_ns)
        try:
            await self._initialize()
            if self._planned.work is Work.FOLD:
                await self._look_up_offsets()
            while (transaction := self._next()) is not None:
                await self._pause()
                await self._carry_out(transaction)
        except Gone:
            pass
        self._has_ended = True
        await self._client.close()

    @property
    def _now_ns(self) -> int:
        return self._setting.world.loop.now_ns

    async def _pause(self) -> None:
        await sleep_ns(self._setting.world.loop, self._random.between(*PAUSE_NS))

    def _next(self) -> PlannedTransaction | None:
        todo = self.owner.left if self._own is None else self._own
        return None if self._setting.is_calm or not todo else todo.pop(0)

    async def _initialize(self) -> None:
        self._takeovers = self._setting.takeovers(self._planned.transactional_id)
        while True:
            try:
                await self._client.initialize()
            except TidelogError as error:
                # While a transaction of before is prepared nobody takes over: it stands.
                self._check_alive(error)
                await self._pause()
            else:
                return

    def _check_alive(self, error: TidelogError) -> None:
        if self._client.standing is Standing.FENCED:
            self._check_fenced(error)
            raise Gone from error

    def _check_fenced(self, error: TidelogError) -> None:
        """Only a takeover fences: neither a timeout nor anything of its own."""
        takeovers = self._setting.takeovers(self._planned.transactional_id) - self._takeovers
        if takeovers <= 1:  # One is its own.
            self._setting.violations.append(
                f"fenced_alone: {self.name}, and nobody has taken its id over: {error}"
            )

    async def _look_up_offsets(self) -> None:
        (source,) = self._planned.reads
        while True:
            try:
                self._folded = await self._client.join(self._planned.group)
            except TidelogError:
                if self._setting.is_calm and self._own is not None:
                    raise Gone from None
                await self._pause()
                continue
            self._positions = {source: self._folded.position}
            self._setting.builder.seek(self.name, self._positions, at_ns=self._now_ns)
            return

    async def _carry_out(self, planned: PlannedTransaction) -> None:
        await self._begin()
        self._transaction += 1
        self._is_open = True
        builder = self._setting.builder
        builder.begin(self.name, at_ns=self._now_ns)
        self._unsent = [
            (step.partition, f"{self.name}.{self._transaction}~{step.value}")
            for step in planned.steps
            if isinstance(step, PlannedSend)
        ]
        folded: Folded | None = None
        is_commit = planned.ending is not Ending.ABORT
        try:
            if self._planned.work is Work.FOLD:
                folded = await self._fold(planned)
            else:
                await self._take_steps(planned)
            await sleep_ns(self._setting.world.loop, planned.pause_ms * _MS)
        except TidelogError:
            is_commit = False  # Part of it was not done: nobody wants the rest.
        self._give_up_unsent()
        if planned.ending is Ending.VANISH and self._own is None:
            await self._vanish()
        outcome = await self._conclude(is_commit=is_commit)
        name = outcome.name.lower()
        self._setting.outcomes[name] = self._setting.outcomes.get(name, 0) + 1
        self._is_open = False
        builder.end(self.name, outcome, at_ns=self._now_ns)
        if self._client.standing is Standing.FENCED:
            raise Gone
        if self._planned.work is Work.FOLD:
            if outcome is TransactionOutcome.COMMITTED and folded is not None:
                self._setting.folded += folded.state - self._folded.state
                self._folded = folded
            else:
                await self._look_up_offsets()

    async def _begin(self) -> None:
        while True:
            try:
                await self._client.begin()
            except TidelogError as error:
                self._check_alive(error)
                await self._pause()
                if self._client.standing is Standing.NEW:
                    await self._initialize()
                elif self._client.standing in (Standing.MUST_ABORT, Standing.UNDECIDED):
                    await self._conclude(is_commit=False)
            else:
                return

    async def _vanish(self) -> None:
        """It dies with its transaction open; or somebody only believes that it has."""
        if self._random.chance(self._setting.zombies):
            self.become_zombie()
            self.owner.succeed()
            return
        self._setting.world.loop.call_soon(
            self._die, context=self._setting.world.loop.world_context
        )
        await asyncio.Event().wait()

    def _die(self) -> None:
        if self.process is not None and not self.process.is_dead:
            self.process.kill()

    # -- steps ---------------------------------------------------------------------------------

    async def _take_steps(self, planned: PlannedTransaction) -> None:
        for step in planned.steps:
            if isinstance(step, PlannedSend):
                partition, value = self._unsent.pop(0)
                await self._send(partition, value)
            else:
                await self._look_around(step)

    async def _look_around(self, step: PlannedPoll) -> None:
        """A poll that fails changes nothing of the transaction."""
        try:
            await self._read(step)
        except TidelogError:
            await self._pause()

    async def _send(self, partition: str, value: str) -> None:
        """Now and then the answer is waited for; the commit waits for all of them."""
        builder, number = self._setting.builder, self._transaction
        builder.send(self.name, partition, value, at_ns=self._now_ns)
        future = await self._client.send(partition, value)

        def acknowledge(done: "asyncio.Future[int]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, TidelogError) and error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
                self._check_fenced(error)
            if error is not None:
                return
            if self._is_open and self._transaction == number:
                builder.acknowledge(self.name, value, offset=done.result(), at_ns=self._now_ns)

        future.add_done_callback(acknowledge)
        if self._random.chance(_AWAITED):
            await future

    async def _read(self, step: PlannedPoll) -> dict[str, list[tuple[int, str]]]:
        began_ns = self._now_ns
        read = await self._client.read(
            self._positions, records_max=step.records_max, to_end=step.reads_to_end
        )
        self._positions = read.positions
        self._setting.builder.poll(
            self.name,
            read.records,
            began_ns=began_ns,
            ended_ns=self._now_ns,
            ends=read.ends if step.reads_to_end else None,
        )
        return read.records

    async def _fold(self, planned: PlannedTransaction) -> Folded:
        """Answers each record of the input with the count of records up to it."""
        (source,) = self._planned.reads
        step = next(each for each in planned.steps if isinstance(each, PlannedPoll))
        _, prefix = self._unsent[0]
        self._unsent.clear()
        records = await self._read(step)
        state = self._folded.state
        for at, (offset, _) in enumerate(records[source]):
            state += 1
            await self._send(self._planned.writes[0], f"{prefix} {at} {source} {offset} {state}")
        folded = Folded(self._positions[source], state)
        await self._client.send_offsets(self._planned.group, folded)
        return folded

    def _give_up_unsent(self) -> None:
        """The records that never leave belong to the transaction all the same."""
        for partition, value in self._unsent:
            self._setting.builder.send(self.name, partition, value, at_ns=self._now_ns)
        self._unsent.clear()

    # -- ends ----------------------------------------------------------------------------------

    async def _conclude(self, *, is_commit: bool) -> TransactionOutcome:
        """Ends the transaction, however often that has to be asked for."""
        client = self._client
        may_prepare = is_commit and client.standing is Standing.OPEN
        if may_prepare and self._random.chance(self._setting.prepared):
            outcome = await self._prepare()
            if outcome is not None:
                return outcome
            is_commit = False
        wants_commit, was_asked = is_commit, False
        while True:
            if client.standing is Standing.MUST_ABORT:
                wants_commit = False
            if self._is_open:
                builder = self._setting.builder
                (builder.commit if wants_commit else builder.abort)(self.name, at_ns=self._now_ns)
            was_asked = was_asked or wants_commit
            try:
                await (client.commit() if wants_commit else client.abort())
            except TidelogError as error:
                outcome = self._judge_failure(error, wants_commit=wants_commit, was_asked=was_asked)
                if outcome is not None:
                    return outcome
                is_doubtful = client.standing in (Standing.UNDECIDED, Standing.OPEN)
                if is_doubtful and self._random.chance(_SWITCHES):
                    wants_commit = False
                await self._pause()
            else:
                if wants_commit:
                    return TransactionOutcome.COMMITTED
                return TransactionOutcome.ABORTED

    def _judge_failure(
        self, error: TidelogError, *, wants_commit: bool, was_asked: bool
    ) -> TransactionOutcome | None:
        """What an end that raised has come to; None: it is to be called again."""
        unknown = TransactionOutcome.UNKNOWN if was_asked else TransactionOutcome.ABORTED
        match self._client.standing:
            case Standing.READY if wants_commit:
                return TransactionOutcome.ABORTED
            case Standing.READY:
                if was_asked:
                    return TransactionOutcome.COMMITTED
                self._setting.violations.append(
                    f"unasked_commit: {self.name} was told of a commit that nobody asked for: "
                    f"{error}"
                )
                return TransactionOutcome.UNKNOWN
            case Standing.FENCED:
                self._check_fenced(error)
                return unknown
            case Standing.NEW:
                return unknown
            case _:
                return None

    async def _prepare(self) -> TransactionOutcome | None:
        """Another process decides; None: it could not be prepared, and can only abort."""
        client, builder = self._client, self._setting.builder
        is_commit = self._random.chance(0.75)
        (builder.commit if is_commit else builder.abort)(self.name, at_ns=self._now_ns)
        try:
            token = await client.prepare()
        except TidelogError:
            if client.standing is Standing.FENCED:
                return TransactionOutcome.ABORTED
            return None
        await self._setting.decisions.hand_over(token, is_commit=is_commit)
        while True:
            # To decide it again the same way is a success, and brings the next identity.
            try:
                await client.decide(token, is_commit=is_commit)
            except TidelogError as error:
                if error.code is ErrorCode.TRANSACTION_NOT_FOUND:
                    # Others have prepared and decided since, under the same id.
                    break
                self._check_undecided(error)
                await self._pause()
            else:
                break
        return TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED

    def _check_undecided(self, error: TidelogError) -> None:
        if not error.retriable:
            self._setting.violations.append(
                f"prepared_lost: {self.name} could not decide again what was decided: {error}"
            )
            raise Gone from error
