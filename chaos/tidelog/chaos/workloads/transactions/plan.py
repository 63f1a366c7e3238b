"""What a seed decides of a run with transactions: processes, their transactions, what goes wrong.

A plan is a value: a simulator and a live run carry it out, each in its own way, and write down
what came of it in a history that the checkers of transactions judge. Shares are dealt, not drawn,
so that every plan has them: at least a fifth of the transactions abort, and at least a fifth write
to partitions of several leaders. It must never know how a broker works.

Three kinds of work: WRITE sends records; MOVE moves money between accounts, each transaction a
transfer of legs that add up to zero; FOLD reads one input partition, sends the fold of it and
commits its offsets with it, so that the output can be compared with the input.
"""

import enum
from typing import Final

import msgspec

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.sim.base.seeds import SeededRandom, Seeds

ABORTED_SHARE: Final = 0.25
SPANNING_SHARE: Final = 0.35
VANISHING_SHARE: Final = 0.06
HELD_SHARE: Final = 0.15
PRODUCER_EPOCH_LAST: Final = 32_766
"""At this epoch the next producer id takes over; one more stays reserved for the coordinator."""
_HIGH_EPOCHS_PROBABILITY: Final = 0.3
_SEND_RECORDS_MAX: Final = 4
_POLL_RECORDS_MAX: Final = 6
_AMOUNT_MAX: Final = 100


class Work(enum.Enum):
    """What the transactions of a process are for."""

    WRITE = "write"
    MOVE = "move"
    FOLD = "fold"


class Ending(enum.Enum):
    """What the process does at the end of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"
    VANISH = "vanish"
    """It dies with the transaction open, and starts again under the same transactional id."""


class Held(enum.Enum):
    """Which message of a transaction is held back, and let go while a later one runs."""

    NOTHING = "nothing"
    END = "end"
    SEND = "send"
    ANSWER = "answer"
    """The answer to the end: it is repeated by the client, and must be answered the same."""


class PlannedSend(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """One record."""

    partition: PartitionKey
    value: str
    """Unique in the plan; the amount of a leg stands behind its colon."""


class PlannedPoll(msgspec.Struct, frozen=True, kw_only=True, tag="poll"):
    """One poll of the process's consumer."""

    records_max: int
    reads_to_end: bool = False
    """Asks for the ends and reads up to them."""


class PlannedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction."""

    steps: tuple[PlannedSend | PlannedPoll, ...]
    ending: Ending
    held: Held
    pause_ms: int
    """Before its end is called: now and then longer than the transaction's timeout."""


class PlannedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One producer, with a consumer beside it."""

    transactional_id: str
    work: Work
    reads: tuple[PartitionKey, ...]
    """What its consumer is assigned; of FOLD its one input partition."""
    writes: tuple[PartitionKey, ...]
    group: str
    """Of FOLD, whose offsets are committed with the output; else empty."""
    first_epoch: int
    """The producer epoch with which its transactional id begins."""
    timeout_ms: int
    transactions: tuple[PlannedTransaction, ...]


class TransactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one seed."""

    brokers: int
    leaders: dict[PartitionKey, int]
    """The broker that leads each partition at first, from 0: topics are created so."""
    segment_bytes: int
    """Small ones roll inside transactions."""
    processes: tuple[PlannedProcess, ...]

    def is_spanning(self, transaction: PlannedTransaction) -> bool:
        """Whether it writes to partitions of several leaders."""
        sends = [each for each in transaction.steps if isinstance(each, PlannedSend)]
        return len({self.leaders[each.partition] for each in sends}) > 1


def amount_of(value: str) -> int | None:
    """What a leg moves; None: the value is no leg of a transfer."""
    _, is_leg, amount = value.partition(":")
    return int(amount) if is_leg else None


def draw_transaction_plan(
    seeds: Seeds, *, processes: int = 4, transactions: int = 12, brokers: int = 3
) -> TransactionPlan:
    """From the seed alone; each kind of work is done by somebody once there are three processes."""
    assert processes > 0, "a plan has a process"
    assert brokers > 1, "no transaction spans the leaders of one broker"
    random = seeds.purpose("transaction plan")
    names = [f"accounts-{number}" for number in range(brokers * 2)]
    inputs = [f"input-{number}" for number in range(2)]
    outputs = [f"output-{number}" for number in range(brokers)]
    leaders = {name: at % brokers for at, name in enumerate((*names, *inputs, *outputs))}
    has_high_epochs = random.chance(_HIGH_EPOCHS_PROBABILITY)
    works = list(Work)
    return TransactionPlan(
        brokers=brokers,
        leaders=leaders,
        segment_bytes=(1_024, 4_096, 65_536)[random.below(3)],
        processes=tuple(
            _draw_process(
                seeds.purpose(f"process {number}"),
                f"process-{number}",
                work=works[number % len(works)],
                partitions=(names, inputs, outputs),
                leaders=leaders,
                transactions=transactions,
                has_high_epochs=has_high_epochs,
                number=number,
            )
            for number in range(processes)
        ),
    )


def _draw_process(
    random: SeededRandom,
    name: str,
    *,
    work: Work,
    partitions: tuple[list[str], list[str], list[str]],
    leaders: dict[PartitionKey, int],
    transactions: int,
    has_high_epochs: bool,
    number: int,
) -> PlannedProcess:
    accounts, inputs, outputs = partitions
    is_fold = work is Work.FOLD
    source = inputs[number // len(Work) % len(inputs)]
    writes = outputs if is_fold else [*accounts, *(inputs if work is Work.WRITE else [])]
    first_epoch = 0
    if has_high_epochs:
        first_epoch = PRODUCER_EPOCH_LAST - random.below(min(transactions, 5) + 1)
    drawn = _Draw(random, name, work, writes, leaders)
    return PlannedProcess(
        transactional_id=name,
        work=work,
        reads=(source,) if is_fold else tuple(random.shuffled(list(accounts))[:2]),
        writes=tuple(writes),
        group=f"group-{number}" if is_fold else "",
        first_epoch=first_epoch,
        timeout_ms=(1_000, 5_000, 60_000)[random.below(3)],
        transactions=drawn.transactions(transactions),
    )


class _Draw:
    """Draws the transactions of one process."""

    def __init__(
        self,
        random: SeededRandom,
        process: str,
        work: Work,
        writes: list[str],
        leaders: dict[PartitionKey, int],
    ) -> None:
        self._random = random
        self._process = process
        self._work = work
        self._writes = writes
        self._leaders = leaders
        self._values = 0

    def transactions(self, count: int) -> tuple[PlannedTransaction, ...]:
        """So many, of which each share is dealt."""
        aborted = self._dealt(count, ABORTED_SHARE)
        vanishing = self._dealt(count, VANISHING_SHARE)
        spanning = self._dealt(count, SPANNING_SHARE)
        held = self._dealt(count, HELD_SHARE)
        kinds = [kind for kind in Held if kind is not Held.NOTHING]
        drawn: list[PlannedTransaction] = []
        for number in range(count):
            ending = Ending.VANISH if number in vanishing else Ending.COMMIT
            if number in aborted:
                ending = Ending.ABORT
            what = kinds[self._random.below(len(kinds))] if number in held else Held.NOTHING
            drawn.append(
                PlannedTransaction(
                    steps=tuple(self._steps(is_spanning=number in spanning)),
                    ending=ending,
                    held=what,
                    pause_ms=(0, 0, 0, 20, 200, 2_000)[self._random.below(6)],
                )
            )
        return tuple(drawn)

    def _dealt(self, count: int, share: float) -> frozenset[int]:
        """At least this share of the transactions, by their numbers."""
        order = self._random.shuffled([str(number) for number in range(count)])
        return frozenset(int(each) for each in order[: -int(-count * share // 1)])

    def _steps(self, *, is_spanning: bool) -> list[PlannedSend | PlannedPoll]:
        steps: list[PlannedSend | PlannedPoll] = []
        targets = self._targets(is_spanning=is_spanning)
        amounts = self._amounts(len(targets)) if self._work is Work.MOVE else []
        if self._work is Work.FOLD or self._random.chance(0.5):
            steps.append(self._poll())
        for at, partition in enumerate(targets):
            self._values += 1
            amount = f":{amounts[at]}" if amounts else ""
            value = f"{self._process}/{self._values}{amount}"
            steps.append(PlannedSend(partition=partition, value=value))
            if self._work is not Work.FOLD and self._random.chance(0.2):
                steps.append(self._poll())
        return steps

    def _poll(self) -> PlannedPoll:
        return PlannedPoll(
            records_max=1 + self._random.below(_POLL_RECORDS_MAX),
            reads_to_end=self._work is not Work.FOLD and self._random.chance(0.2),
        )

    def _targets(self, *, is_spanning: bool) -> list[PartitionKey]:
        """Where the records go; a transfer has two legs at least."""
        least = 2 if is_spanning or self._work is Work.MOVE else 1
        count = self._random.between(least, _SEND_RECORDS_MAX)
        first = self._writes[self._random.below(len(self._writes))]
        same = [each for each in self._writes if self._leaders[each] == self._leaders[first]]
        others = [each for each in self._writes if self._leaders[each] != self._leaders[first]]
        targets = [first]
        if is_spanning:
            targets.append(others[self._random.below(len(others))])
        pool = self._writes if is_spanning else same
        while len(targets) < count:
            targets.append(pool[self._random.below(len(pool))])
        return targets

    def _amounts(self, count: int) -> list[int]:
        """Amounts that add up to zero, none of them zero."""
        amounts = [self._random.between(1, _AMOUNT_MAX) for _ in range(count - 1)]
        return [*amounts, -sum(amounts)]
