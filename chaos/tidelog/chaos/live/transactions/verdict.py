"""The verdict on a live run with transactions: from the journals of its clients to what was torn.

Owns the way from journals to a history, and the proof that the checks see: a leg that is taken out
of what a reader was handed, and a record of the output that is taken out or doubled, has to be
found. Otherwise the run proves nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from tidelog.chaos.checkers.history.history import Anomaly
from tidelog.chaos.checkers.transactions import (
    HistoryBuilder,
    Pipeline,
    PollOperation,
    TransactionHistory,
    TransactionOutcome,
    check_bank,
    check_pipeline,
    check_transactions,
    drained_logs,
)
from tidelog.chaos.checkers.transactions.history import Operation
from tidelog.chaos.live.transactions.journal import (
    Began,
    Deciding,
    Ended,
    Entry,
    GivenUp,
    Placed,
    Polled,
    Sending,
    Stored,
    now_ns,
    read_client_journal,
)
from tidelog.chaos.live.transactions.mover import amount_of


class Counts(msgspec.Struct, kw_only=True):
    """What a history holds."""

    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    reads: int = 0
    records_read: int = 0
    longest_without_news_ms: float = 0.0
    """The longest time in which one reader was handed nothing new."""


def history_of(journals: Mapping[str, Path]) -> TransactionHistory:
    """Of all clients, by the names of their processes; each is in its own order."""
    builder = HistoryBuilder()
    for process, file in journals.items():
        for entry in read_client_journal(file):
            _take(builder, process, entry)
    return builder.build(at_ns=now_ns())


def _take(builder: HistoryBuilder, process: str, entry: Entry) -> None:
    match entry:
        case Began():
            builder.begin(process, at_ns=entry.at_ns)
        case Sending():
            builder.send(process, entry.partition, entry.value, at_ns=entry.at_ns)
        case Stored():
            builder.acknowledge(process, entry.value, at_ns=entry.at_ns, offset=entry.offset)
        case GivenUp():
            builder.give_up(entry.value, TransactionOutcome.UNKNOWN, at_ns=entry.at_ns)
        case Deciding():
            (builder.commit if entry.is_commit else builder.abort)(process, at_ns=entry.at_ns)
        case Ended():
            builder.end(process, TransactionOutcome(entry.outcome), at_ns=entry.at_ns)
        case Placed():
            builder.assign(process, entry.positions, at_ns=entry.at_ns)
        case Polled():
            builder.poll(
                process,
                entry.records,
                began_ns=entry.began_ns,
                ended_ns=entry.ended_ns,
                ends=entry.ends,
                is_final=entry.is_final,
            )


def counts_of(history: TransactionHistory) -> Counts:
    """For the figures of a run."""
    counts = Counts()
    news_ns: dict[str, int] = {}
    for each in history.transactions:
        if each.is_transactional:
            counts.committed += each.outcome is TransactionOutcome.COMMITTED
            counts.aborted += each.outcome is TransactionOutcome.ABORTED
            counts.unknown += each.outcome is TransactionOutcome.UNKNOWN
        for poll in each.polls():
            counts.reads += 1
            counts.records_read += sum(len(found) for _, found in poll.records)
            if poll.records and not poll.is_final:
                since_ns = news_ns.get(each.process, poll.began_ns)
                waited_ms = (poll.ended_ns - since_ns) / 1e6
                counts.longest_without_news_ms = max(counts.longest_without_news_ms, waited_ms)
                news_ns[each.process] = poll.ended_ns
    return counts


def judge_bank(history: TransactionHistory) -> list[Anomaly]:
    """Every check of transactions, and the sums."""
    return [*check_transactions(history), *check_bank(history, amount_of)]


def judge_pipeline(history: TransactionHistory, stages: Sequence[Pipeline]) -> list[Anomaly]:
    """Each stage's output is the fold of its input, and what was fed is there. The sends of stages
    stand in no journal: what they wrote is judged by the fold alone."""
    logs = drained_logs(history)
    found = list(check_transactions(_read_of(history, stages[0].inputs)))
    for stage in stages:
        found += check_pipeline(logs, stage)
    return found


def _read_of(history: TransactionHistory, partitions: Collection[str]) -> TransactionHistory:
    """As if nothing else had been read."""

    def kept(operation: Operation) -> Operation:
        if not isinstance(operation, PollOperation):
            return operation
        return msgspec.structs.replace(
            operation,
            records=tuple(each for each in operation.records if each[0] in partitions),
            ends=tuple(each for each in operation.ends if each[0] in partitions),
        )

    return msgspec.structs.replace(
        history,
        transactions=tuple(
            msgspec.structs.replace(each, operations=tuple(map(kept, each.operations)))
            for each in history.transactions
        ),
    )


def without_one_record(history: TransactionHistory, prefix: str) -> TransactionHistory:
    """The same, but that the final drain lacks one record of a partition whose name begins so."""
    transactions = list(history.transactions)
    for place, each in enumerate(transactions):
        for number, operation in enumerate(each.operations):
            if not isinstance(operation, PollOperation) or not operation.is_final:
                continue
            records = dict(operation.records)
            key = next((key for key in records if key.startswith(prefix) and records[key]), None)
            if key is None:
                continue
            middle = len(records[key]) // 2
            records[key] = (*records[key][:middle], *records[key][middle + 1 :])
            left = tuple((key, found) for key, found in records.items() if found)
            spoilt = msgspec.structs.replace(operation, records=left)
            operations = list(each.operations)
            operations[number] = spoilt
            transactions[place] = msgspec.structs.replace(each, operations=tuple(operations))
            return msgspec.structs.replace(history, transactions=tuple(transactions))
    raise AssertionError(f"the final drain has read nothing of {prefix}")
