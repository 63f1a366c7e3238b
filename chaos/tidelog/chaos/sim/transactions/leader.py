"""The leader of one partition in one epoch: takes batches and markers, and serves readers.

Owns the leader's own copy of the log and its watermark. Who may append is judged by the broker's
own rules of admission; asking the coordinator is the caller's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidelog.broker.log.transactions.admission import (
    Admission,
    Append,
    AskCoordinator,
    FirstBatch,
    MarkerHere,
    MarkerVerdict,
    Verdict,
)
from tidelog.broker.transactions.state.answers import Identity
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.partition import rebuilt
from tidelog.chaos.sim.transactions.truth import Entry, ReplicatedLog, Truth
from tidelog.chaos.sim.world.process import Process
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import ErrorCode, TidelogError

Ask = Callable[[], Awaitable[None]]
"""Asks the coordinator whether the partition is part of the transaction; raises if it is not."""


class Leader:
    """Of one log, from the news that this broker leads it until the news that it does not."""

    def __init__(
        self,
        world: World,
        truth: Truth,
        process: Process,
        log: ReplicatedLog,
        epoch: int,
        replication_ns: tuple[int, int],
    ) -> None:
        self.log: Final = log
        self.epoch: Final = epoch
        # What the former leader had appended and nobody else has is not there.
        self.entries: list[Entry] = list(log.committed)
        self.state = rebuilt(self.entries)
        self.high_watermark = len(self.entries)
        self.stable = self.state.stable(self.high_watermark)
        self.admission: Final = Admission()
        self.is_over = False
        self.violations: list[str] = []
        self._world = world
        self._truth = truth
        self._process = process
        self._random = world.seeds.purpose("replication")
        self._replication_ns = replication_ns
        self._waiting: list[tuple[int, Callable[[TidelogError | None], None]]] = []
        self._verifying: dict[int, asyncio.Future[TidelogError | None]] = {}
        self._is_replicating = False

    @property
    def tried(self) -> str:
        """For refusals."""
        return f"append to {self.log.name}"

    # -- appending -----------------------------------------------------------------------------

    def append(self, entry: Entry) -> int:
        """Behind everything else; the first offset behind it."""
        assert not self.is_over, "a leader that knows that it leads no more appends nothing"
        entry = msgspec.structs.replace(entry, offset=len(self.entries))
        self.entries.append(entry)
        self.state.apply(entry)
        if entry.producer_id >= 0:
            if entry.is_marker:
                self.admission.on_marker(entry.producer_id, entry.producer_epoch)
            else:
                self.admission.on_batch(entry.producer_id, entry.producer_epoch)
        self.log.append(self.epoch, entry)
        self._replicate_soon()
        return entry.offset + 1

    def when_committed(self, end: int, tell: Callable[[TidelogError | None], None]) -> None:
        """Calls back once everything below `end` is committed, or cannot be known to be."""
        if self.is_over:
            tell(self._not_leader())
        elif end <= self.high_watermark:
            tell(None)
        else:
            self._waiting.append((end, tell))

    async def wait_committed(self, end: int) -> None:
        """The same; raises NOT_LEADER."""
        done: asyncio.Future[TidelogError | None] = self._world.loop.create_future()

        def tell(error: TidelogError | None) -> None:
            if not done.done():
                done.set_result(error)

        self.when_committed(end, tell)
        error = await done
        if error is not None:
            raise error

    def _replicate_soon(self) -> None:
        if not self._is_replicating:
            self._is_replicating = True
            self._process.start_task(self._replicate(), f"replicate {self.log.name}")

    async def _replicate(self) -> None:
        while not self.is_over and self.high_watermark < len(self.entries):
            await sleep_ns(self._world.loop, self._random.between(*self._replication_ns))
            end = (
                self.high_watermark
                + 1
                + self._random.below(len(self.entries) - self.high_watermark)
            )
            if not self._truth.commit(self.log, self.epoch, end):
                break
            self._commit_to(end)
        self._is_replicating = False

    def _commit_to(self, end: int) -> None:
        self.high_watermark = end
        stable = self.state.stable(end)
        if stable < self.stable:
            self.violations.append(
                f"stable_fell: in {self.log.name} from {self.stable} to {stable}"
            )
        self.stable = stable
        due = [tell for wanted, tell in self._waiting if wanted <= end]
        self._waiting = [each for each in self._waiting if each[0] > end]
        for tell in due:
            tell(None)

    def end(self) -> None:
        """Another one leads."""
        self.is_over = True
        self.admission.clear()
        waiting, self._waiting = self._waiting, []
        for _, tell in waiting:
            tell(self._not_leader())
        for future in self._verifying.values():
            if not future.done():
                future.set_result(self._not_leader())

    def _not_leader(self) -> TidelogError:
        return TidelogError(ErrorCode.NOT_LEADER, tried=self.tried, happened="another one leads")

    def _check_leads(self) -> None:
        if self.is_over:
            raise self._not_leader()

    # -- batches and markers -------------------------------------------------------------------

    async def take(self, entry: Entry, ask: Ask) -> int:
        """A batch of a transaction: its offset, once it is committed."""
        self._check_leads()
        offset = self._stored(entry)
        if offset is None:
            batch = FirstBatch(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                base_sequence=entry.sequence,
            )
            verdict = self.admission.judge(
                self.state.here(entry.producer_id), batch, tried=self.tried
            )
            await self._verify(batch, verdict, ask)
            # Its append's turn comes later than the answer.
            await sleep_ns(self._world.loop, self._random.between(*self._replication_ns) // 4)
            self._check_leads()
            offset = self._stored(entry)
            if offset is None:
                self.admission.admit(self.state.here(entry.producer_id), batch, tried=self.tried)
                self._check_sequence(entry)
                offset = self.append(entry) - 1
        await self.wait_committed(offset + 1)
        return offset

    async def _verify(self, batch: FirstBatch, verdict: Verdict, ask: Ask) -> None:
        if isinstance(verdict, Append):
            return
        if isinstance(verdict, AskCoordinator):
            self._verifying[verdict.ticket] = self._world.loop.create_future()
            # A task of its own: who waits may be cancelled, and others wait for the same answer.
            self._process.start_task(self._ask(batch, verdict.ticket, ask), "verify")
        future = self._verifying.get(verdict.ticket)
        if future is not None:
            error = await asyncio.shield(future)
            if error is not None:
                raise _anew(error)

    async def _ask(self, batch: FirstBatch, ticket: int, ask: Ask) -> None:
        error: TidelogError | None = None
        try:
            await ask()
        except TidelogError as refusal:
            error = refusal
        if not self.is_over:
            self.admission.on_answer(batch.producer_id, ticket, error)
        future = self._verifying.pop(ticket)
        if not future.done():
            future.set_result(error)

    def _stored(self, entry: Entry) -> int | None:
        """Where a batch that is sent again lies."""
        producer = self.state.producers.get(entry.producer_id)
        if producer is None or producer.epoch != entry.producer_epoch or entry.sequence < 0:
            return None
        return producer.stored.get(entry.sequence)

    def _check_sequence(self, entry: Entry) -> None:
        producer = self.state.producers.get(entry.producer_id)
        last = -1
        if producer is not None and producer.epoch == entry.producer_epoch:
            last = producer.last_sequence
        # Offsets of groups have none: to store them twice is no different.
        if entry.sequence >= 0 and entry.sequence != last + 1:
            raise TidelogError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE,
                tried=self.tried,
                happened=f"sequence {entry.sequence} comes behind {last}",
            )

    async def mark(self, identity: Identity, *, is_commit: bool, coordinator_epoch: int) -> None:
        """A marker: returns once it is committed."""
        self._check_leads()
        await sleep_ns(self._world.loop, self._random.between(*self._replication_ns) // 4)
        self._check_leads()
        marker = MarkerHere(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
        verdict = self.admission.judge_marker(
            self.state.here(identity.producer_id), marker, tried=self.tried
        )
        end = len(self.entries)
        if verdict is MarkerVerdict.APPEND:
            end = self.append(
                Entry(
                    offset=-1,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    is_marker=True,
                    is_commit=is_commit,
                    coordinator_epoch=coordinator_epoch,
                )
            )
        await self.wait_committed(end)


def _anew(error: TidelogError) -> TidelogError:
    return TidelogError(error.code, tried=error.tried, happened=error.happened, hint=error.hint)
