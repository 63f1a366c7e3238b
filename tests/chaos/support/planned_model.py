"""Carries a plan of transactions out over the model of a correct log, or over one with a known bug.

The bug is that of Kafka's protocol before its second version of transactions: an end carries no
more than the identity of its producer, which is the same for all of its transactions. One that was
held back decides whatever the producer has open when it arrives.
"""

from collections.abc import Generator
from typing import Final

from tests.chaos.support.transaction_model import PendingTransaction, Steps, TransactionModel
from tidelog.chaos.checkers.transactions import Derived, Pipeline, TransactionOutcome
from tidelog.chaos.workloads.transactions import (
    Ending,
    Held,
    PlannedPoll,
    PlannedProcess,
    PlannedSend,
    PlannedTransaction,
    TransactionPlan,
    Work,
)

HELD_STEPS_MAX: Final = 60
_READER_TURNS: Final = 20


class _Identity:
    """What the coordinator knows of a transactional id."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.open: PendingTransaction | None = None
        self.last: PendingTransaction | None = None
        """The transaction before; the next one waits until it is complete."""

    @property
    def is_busy(self) -> bool:
        """Whether a new transaction is refused for now."""
        return self.last is not None and not self.last.is_complete


class PlannedModel(TransactionModel):
    """One plan, carried out once."""

    def __init__(self, plan: TransactionPlan, seed: int, *, is_fenced: bool = True) -> None:
        super().__init__(seed, partitions=tuple(plan.leaders))
        self._is_fenced = is_fenced
        self._identities: dict[str, _Identity] = {}
        self._folded: dict[str, tuple[int, int]] = {}
        """Of each process that folds: the committed position and the state there."""
        self._proposed: dict[PendingTransaction, tuple[str, tuple[int, int]]] = {}
        self.ends_that_came_late = 0
        """How many decided a transaction that they did not belong to."""
        self.work = [self._process(each) for each in plan.processes]
        self.work += [self.reader(f"reader-{number}", _READER_TURNS) for number in range(2)]

    def _process(self, planned: PlannedProcess) -> Steps:
        process = planned.transactional_id
        self._identities[process] = _Identity(planned.first_epoch)
        positions = dict.fromkeys(planned.reads, 0)
        self.builder.assign(process, positions, at_ns=self.now_ns)
        for transaction in planned.transactions:
            yield from self.wait()
            self.builder.begin(process, at_ns=self.now_ns)
            if planned.work is Work.FOLD:
                yield from self._fold(planned, transaction, positions)
            else:
                for step in transaction.steps:
                    if isinstance(step, PlannedSend):
                        yield from self._send(process, step.partition, step.value)
                    else:
                        yield from self._consume(process, positions, step)
            yield from self.wait(2 + transaction.pause_ms // 100)
            yield from self._finish(process, transaction)
            if planned.work is Work.FOLD:
                positions = {planned.reads[0]: self._folded.get(process, (0, 0))[0]}
                self.builder.seek(process, positions, at_ns=self.now_ns)

    def _send(self, process: str, partition: str, value: str) -> Steps:
        identity = self._identities[process]
        self.builder.send(process, partition, value, at_ns=self.now_ns)
        while identity.open is None and identity.is_busy:
            yield
        if identity.open is None:
            identity.open = PendingTransaction()
        offset = self.append(partition, value, identity.open)
        yield from self.wait()
        self.builder.acknowledge(process, value, offset=offset, at_ns=self.now_ns)

    def _consume(
        self, process: str, positions: dict[str, int], planned: PlannedPoll
    ) -> Generator[None, None, dict[str, list[tuple[int, str]]]]:
        began_ns = self.now_ns
        yield from self.wait()
        ends = {name: self.partitions[name].stable_end for name in positions}
        records: dict[str, list[tuple[int, str]]] = {}
        for name, end in ends.items():
            shown = self.partitions[name].shown(positions[name], max(end, positions[name]))
            if not planned.reads_to_end and len(shown) > planned.records_max:
                shown = shown[: planned.records_max]
                end = shown[-1][0] + 1
            records[name] = shown
            positions[name] = max(end, positions[name])
            yield from self.wait(1)
        told = ends if planned.reads_to_end else None
        self.builder.poll(process, records, began_ns=began_ns, ended_ns=self.now_ns, ends=told)
        return records

    def _fold(
        self,
        planned: PlannedProcess,
        transaction: PlannedTransaction,
        positions: dict[str, int],
    ) -> Steps:
        """Answers each record of the input with the count of records up to it."""
        process, source = planned.transactional_id, planned.reads[0]
        _, state = self._folded.get(process, (0, 0))
        poll = next(each for each in transaction.steps if isinstance(each, PlannedPoll))
        targets = [each for each in transaction.steps if isinstance(each, PlannedSend)]
        records = yield from self._consume(process, positions, poll)
        for at, (offset, _) in enumerate(records[source]):
            state += 1
            value = f"{targets[0].value} {at} {source} {offset} {state}"
            # One partition for each source: the answers of one source stay in order.
            yield from self._send(process, planned.writes[0], value)
        self._propose(process, planned.writes[0], (positions[source], state))

    def _propose(self, process: str, output: str, folded: tuple[int, int]) -> None:
        """Position and state are committed with the transaction, or not at all."""
        pending = self._identities[process].open
        if pending is not None:
            self._proposed[pending] = (process, folded)

    def _finish(self, process: str, transaction: PlannedTransaction) -> Steps:
        identity = self._identities[process]
        if transaction.ending is Ending.VANISH:
            self.builder.end(process, TransactionOutcome.UNKNOWN, at_ns=self.now_ns)
            yield from self.wait()
            self._decide(identity, is_committed=False)
        else:
            is_committed = transaction.ending is Ending.COMMIT
            call = self.builder.commit if is_committed else self.builder.abort
            call(process, at_ns=self.now_ns)
            if transaction.held is Held.END:
                held = self._held_end(
                    identity, identity.epoch, identity.open, is_committed=is_committed
                )
                self.work.append(held)
            yield from self.wait()
            self._decide(identity, is_committed=is_committed)
            yield from self.wait()
            outcome = TransactionOutcome.COMMITTED if is_committed else TransactionOutcome.ABORTED
            self.builder.end(process, outcome, at_ns=self.now_ns)
        while identity.is_busy:
            yield

    def _held_end(
        self,
        identity: _Identity,
        epoch: int,
        meant: PendingTransaction | None,
        *,
        is_committed: bool,
    ) -> Steps:
        """The first copy of an end: the client has repeated it, and has gone on since."""
        yield from self.wait(HELD_STEPS_MAX)
        while identity.is_busy:
            yield
        if self._is_fenced and epoch != identity.epoch:
            return
        self.ends_that_came_late += identity.open not in (None, meant)
        self._decide(identity, is_committed=is_committed)

    def _decide(self, identity: _Identity, *, is_committed: bool) -> None:
        pending, identity.open = identity.open, None
        if self._is_fenced:
            identity.epoch += 1
        if pending is None:
            return
        identity.last = pending
        pending.is_committed = is_committed
        proposed = self._proposed.pop(pending, None)
        if is_committed and proposed is not None:
            self._folded[proposed[0]] = proposed[1]
        self.work.append(self.markers(pending))


def pipeline_of(planned: PlannedProcess) -> Pipeline:
    """What the outputs of a process that folds must be."""

    def read_output(value: str) -> Derived:
        _, _, source, offset, state = value.split()
        return Derived(source, int(offset), state)

    return Pipeline(
        inputs=planned.reads,
        outputs=planned.writes[:1],
        read_output=read_output,
        initial="0",
        fold=lambda state, _: str(int(state) + 1),
        is_complete=False,
    )
