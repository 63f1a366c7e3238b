"""Faults planted into correct histories, one at a time: what a broken log would have shown.

A mutation takes a history and randomness, and gives back the history with its fault, or None where
the history has no place for it. MUTATIONS says under which names each may be told.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import msgspec

from tidelog.chaos.checkers.transactions import (
    PollOperation,
    SendOperation,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)
from tidelog.chaos.sim.base.seeds import SeededRandom

Item = TypeVar("Item")
Record = tuple[int, str]
Mutation = Callable[[TransactionHistory, SeededRandom], TransactionHistory | None]
PollChange = Callable[[str, list[Record], PollOperation], list[Record]]

replace = msgspec.structs.replace


def _with_polls(history: TransactionHistory, change: PollChange) -> TransactionHistory:
    """The history with other records in each answer."""

    def changed(operation: SendOperation | PollOperation) -> SendOperation | PollOperation:
        if isinstance(operation, SendOperation):
            return operation
        records = ((key, change(key, list(each), operation)) for key, each in operation.records)
        kept = tuple((key, tuple(each)) for key, each in records if each)
        return replace(operation, records=kept)

    return replace(
        history,
        transactions=tuple(
            replace(each, operations=tuple(changed(operation) for operation in each.operations))
            for each in history.transactions
        ),
    )


def _with_sends(
    history: TransactionHistory, changed: dict[str, SendOperation]
) -> TransactionHistory:
    """The history with other sends of these values."""
    return replace(
        history,
        transactions=tuple(
            replace(
                each,
                operations=tuple(
                    changed.get(operation.value, operation)
                    if isinstance(operation, SendOperation)
                    else operation
                    for operation in each.operations
                ),
            )
            for each in history.transactions
        ),
    )


def _with_poll(
    history: TransactionHistory, old: PollOperation, new: PollOperation
) -> TransactionHistory:
    """The history with one other answer."""
    return replace(
        history,
        transactions=tuple(
            replace(
                each,
                operations=tuple(
                    new if operation is old else operation for operation in each.operations
                ),
            )
            for each in history.transactions
        ),
    )


def _inserted(poll: PollOperation, partition: str, record: Record) -> PollOperation:
    """The answer with one more record at its place."""
    records = {key: list(each) for key, each in poll.records}
    records.setdefault(partition, []).append(record)
    records[partition].sort()
    return replace(poll, records=tuple((key, tuple(each)) for key, each in records.items()))


def _polls(history: TransactionHistory) -> Iterator[tuple[Transaction, PollOperation]]:
    for transaction in history.transactions:
        for poll in transaction.polls():
            yield transaction, poll


def _sends(
    history: TransactionHistory, outcome: TransactionOutcome = TransactionOutcome.COMMITTED
) -> list[tuple[Transaction, SendOperation]]:
    """Every acknowledged send of a transaction with this outcome."""
    return [
        (transaction, sent)
        for transaction in history.transactions
        if transaction.outcome is outcome and transaction.is_transactional
        for sent in transaction.sends()
        if sent.offset >= 0
    ]


def _drain(history: TransactionHistory) -> PollOperation:
    return next(poll for _, poll in _polls(history) if poll.is_final)


def _chosen(items: list[Item], random: SeededRandom) -> Item | None:
    return items[random.below(len(items))] if items else None


def _without(history: TransactionHistory, values: set[str]) -> TransactionHistory:
    return _with_polls(
        history, lambda _, records, __: [each for each in records if each[1] not in values]
    )


def lose_a_transaction(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A delayed abort: what was acknowledged as committed is readable nowhere."""
    sent = _chosen(_sends(history), random)
    return sent and _without(history, {each.value for each in sent[0].sends()})


def tear_a_transaction(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A delayed abort in the midst: one record of several is readable nowhere."""
    several = [each for each in _sends(history) if len(list(each[0].sends())) > 1]
    sent = _chosen(several, random)
    return sent and _without(history, {sent[1].value})


def show_an_aborted_record(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A delayed commit: what was acknowledged as aborted is read."""
    sent = _chosen(_sends(history, TransactionOutcome.ABORTED), random)
    drain = _drain(history)
    return sent and _with_poll(
        history, drain, _inserted(drain, sent[1].partition, (sent[1].offset, sent[1].value))
    )


def show_an_own_record(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A transaction polls what it has sent before."""
    able = [
        (sent, poll)
        for transaction, sent in _sends(history)
        for poll in transaction.polls()
        if poll.began_ns >= sent.ended_ns
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    sent, poll = picked
    return _with_poll(history, poll, _inserted(poll, sent.partition, (sent.offset, sent.value)))


def show_a_record_too_early(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """Isolation lost: a poll returns a record of a transaction that is open."""
    able = [
        (sent, poll)
        for transaction, sent in _sends(history)
        for reader, poll in _polls(history)
        if sent.ended_ns < poll.began_ns
        and poll.ended_ns < transaction.deciding_ns
        and reader is not transaction
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    sent, poll = picked
    return _with_poll(history, poll, _inserted(poll, sent.partition, (sent.offset, sent.value)))


def show_a_record_above_an_open_transaction(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """The last stable offset is ahead: a committed record above an open one is read."""
    able = [
        (high, poll)
        for transaction, low in _sends(history)
        for other, high in _sends(history)
        if high.partition == low.partition
        and high.offset > low.offset
        and other.ended_ns < transaction.deciding_ns
        for reader, poll in _polls(history)
        if other.ended_ns < poll.began_ns
        and poll.ended_ns < transaction.deciding_ns
        and all(key != high.partition for key, _ in poll.records)
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    sent, poll = picked
    return _with_poll(history, poll, _inserted(poll, sent.partition, (sent.offset, sent.value)))


def store_a_record_twice(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A retry is appended again."""
    drain = _drain(history)
    able = [(key, value) for key, records in drain.records for _, value in records]
    picked = _chosen(able, random)
    if picked is None:
        return None
    partition, value = picked
    end = dict(drain.ends)[partition]
    return _with_poll(history, drain, _inserted(drain, partition, (end + 5, value)))


def acknowledge_another_offset(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A producer is told an offset at which its record is not."""
    picked = _chosen(_sends(history), random)
    if picked is None:
        return None
    sent = picked[1]
    return _with_sends(history, {sent.value: replace(sent, offset=sent.offset + 1_000)})


def write_over_a_record(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """Two producers are told one offset, and only one record is there."""
    sends = _sends(history)
    able = [
        (lost, kept)
        for _, lost in sends
        for _, kept in sends
        if lost.partition == kept.partition and lost.value != kept.value
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    lost, kept = picked
    changed = _with_sends(history, {lost.value: replace(lost, offset=kept.offset)})
    return _without(changed, {lost.value})


def _swapped(
    history: TransactionHistory, first: SendOperation, second: SendOperation
) -> TransactionHistory:
    """Two records of a partition lie at each other's place, for everybody."""
    names = {first.value: second.value, second.value: first.value}
    changed = _with_sends(
        history,
        {
            first.value: replace(first, offset=second.offset),
            second.value: replace(second, offset=first.offset),
        },
    )
    return _with_polls(
        changed,
        lambda _, records, __: [(offset, names.get(value, value)) for offset, value in records],
    )


def swap_records_of_a_transaction(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """The order of one transaction's records is lost."""
    able = [
        (first, second)
        for transaction in history.transactions
        for first in transaction.sends()
        for second in transaction.sends()
        if first.partition == second.partition and 0 <= first.offset < second.offset
    ]
    picked = _chosen(able, random)
    return picked and _swapped(history, *picked)


def swap_transactions_of_a_process(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A delayed batch of an earlier transaction lies behind a later one."""
    able = [
        (first, second)
        for one, first in _sends(history)
        for other, second in _sends(history)
        if one.process == other.process and one.number < other.number
        if first.partition == second.partition
    ]
    picked = _chosen(able, random)
    return picked and _swapped(history, *picked)


def swap_records_of_two_processes(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A record is put below one that was acknowledged before it was sent."""
    able = [
        (first, second)
        for one, first in _sends(history)
        for other, second in _sends(history)
        if one.process != other.process and first.ended_ns < second.began_ns
        if first.partition == second.partition
    ]
    picked = _chosen(able, random)
    return picked and _swapped(history, *picked)


def deliver_a_record_again(
    history: TransactionHistory, random: SeededRandom
) -> TransactionHistory | None:
    """A consumer is handed what it was handed just before."""
    able = [(poll, key, each[-1]) for _, poll in _polls(history) for key, each in poll.records]
    picked = _chosen(able, random)
    if picked is None:
        return None
    poll, partition, last = picked
    records = tuple(
        (key, (*each, last) if key == partition else each) for key, each in poll.records
    )
    return _with_poll(history, poll, replace(poll, records=records))


def skip_a_record(history: TransactionHistory, random: SeededRandom) -> TransactionHistory | None:
    """A consumer is not handed a record that all others are handed."""
    able = [
        (poll, key, record)
        for _, poll in _polls(history)
        if not poll.is_final
        for key, each in poll.records
        for record in each[1:-1]
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    poll, partition, record = picked
    records = tuple(
        (key, tuple(one for one in each if key != partition or one != record))
        for key, each in poll.records
    )
    return _with_poll(history, poll, replace(poll, records=records))


def forget_a_record(history: TransactionHistory, random: SeededRandom) -> TransactionHistory | None:
    """What was read once is not there at the end."""
    drain = _drain(history)
    read = {
        value
        for _, poll in _polls(history)
        if poll is not drain
        for _, each in poll.records
        for _, value in each
    }
    able = [value for _, each in drain.records for _, value in each if value in read]
    gone = _chosen(able, random)
    if gone is None:
        return None
    records = tuple(
        (key, tuple(one for one in each if one[1] != gone)) for key, each in drain.records
    )
    kept = replace(drain, records=tuple(each for each in records if each[1]))
    return _with_poll(history, drain, kept)


def invent_a_record(history: TransactionHistory, random: SeededRandom) -> TransactionHistory | None:
    """A record is read that nobody sent."""
    polls = [poll for _, poll in _polls(history)]
    poll = polls[random.below(len(polls))]
    return _with_poll(history, poll, _inserted(poll, "x-0", (9_999, "invented")))


def show_an_old_end(history: TransactionHistory, random: SeededRandom) -> TransactionHistory | None:
    """A deposed leader answers: the end lies below what others have read before."""
    able = [
        (poll, key, min(offset for offset, _ in records))
        for _, earlier in _polls(history)
        for key, records in earlier.records
        for _, poll in _polls(history)
        if earlier.ended_ns < poll.began_ns
        and dict(poll.ends).get(key, -1) > records[0][0]
        and not poll.is_final
    ]
    picked = _chosen(able, random)
    if picked is None:
        return None
    poll, partition, end = picked
    ends = tuple((key, end if key == partition else at) for key, at in poll.ends)
    records = tuple(
        (key, tuple(one for one in each if key != partition or one[0] < end))
        for key, each in poll.records
    )
    shown = replace(poll, ends=ends, records=tuple(each for each in records if each[1]))
    # Where it reads on from there nothing is skipped and nothing repeated: it stops here.
    return _with_poll(history, poll, shown)


_REORDERED: Final = frozenset(
    {
        "int_nonmonotonic_send",
        "ext_nonmonotonic_send",
        "G0",
        "precommitted_read",
        "uncommitted_read",
    }
)
"""A record at the place of another is read when that one was, which may be before its commit."""

MUTATIONS: Final[dict[Mutation, frozenset[str]]] = {
    lose_a_transaction: frozenset({"lost_write", "unseen"}),
    tear_a_transaction: frozenset({"torn_transaction"}),
    show_an_aborted_record: frozenset({"aborted_read"}),
    show_an_own_record: frozenset({"precommitted_read"}),
    show_a_record_too_early: frozenset({"uncommitted_read"}),
    show_a_record_above_an_open_transaction: frozenset({"dirty_order"}),
    store_a_record_twice: frozenset({"duplicate"}),
    acknowledge_another_offset: frozenset({"misplaced"}),
    write_over_a_record: frozenset({"inconsistent_offsets"}),
    swap_records_of_a_transaction: frozenset({"int_nonmonotonic_send"}),
    swap_transactions_of_a_process: _REORDERED,
    swap_records_of_two_processes: _REORDERED,
    deliver_a_record_again: frozenset({"int_nonmonotonic_poll"}),
    skip_a_record: frozenset({"int_poll_skip", "intermediate_read"}),
    forget_a_record: frozenset({"vanished"}),
    invent_a_record: frozenset({"from_nowhere"}),
    show_an_old_end: frozenset({"G_single_process", "G_single_realtime", "G_single"}),
}
