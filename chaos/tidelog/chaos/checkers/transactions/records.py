"""Checks of single records: each is where it was acknowledged, once, and was allowed to be read."""

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    NEVER_NS,
    OFFSET_UNKNOWN,
    TransactionOutcome,
)
from tidelog.chaos.checkers.transactions.view import (
    Findings,
    TransactionFinding,
    TransactionView,
    spell_ms,
)


def from_nowhere(view: TransactionView) -> Findings:
    """A record that no process sent is read."""
    for value, places in view.places.items():
        if value not in view.writers:
            (partition, offset), reader = next(iter(places.items()))
            yield TransactionFinding(
                partition=partition,
                detail=f"{reader.name} was handed {value} at {offset}, which no process sent",
                values=(value,),
            )


def duplicate(view: TransactionView) -> Findings:
    """One record is at two places."""
    for value, places in view.places.items():
        at = list(places)
        written = view.writers.get(value)
        if written is not None and written[1].offset != OFFSET_UNKNOWN:
            acknowledged = (written[1].partition, written[1].offset)
            if acknowledged in places:
                at = [acknowledged, *(place for place in at if place != acknowledged)]
        if len(at) > 1:
            spelled = " and ".join(f"{partition} at {offset}" for partition, offset in at)
            yield TransactionFinding(
                partition=at[0][0],
                detail=f"{value} was sent once and is in {spelled}",
                values=(value,),
            )


def misplaced(view: TransactionView) -> Findings:
    """A record is read elsewhere than it was sent to, or than its acknowledgement said."""
    for value, places in view.places.items():
        if value not in view.writers or value in view.blame.values:
            continue
        transaction, sent = view.writers[value]
        for (partition, offset), reader in places.items():
            is_elsewhere = partition != sent.partition
            if is_elsewhere or sent.offset not in (OFFSET_UNKNOWN, offset):
                told = (
                    "" if sent.offset == OFFSET_UNKNOWN else f" and acknowledged at {sent.offset}"
                )
                yield TransactionFinding(
                    partition=sent.partition,
                    detail=(
                        f"{value} was sent to {sent.partition} by {transaction.name}{told}; "
                        f"{reader.name} found it in {partition} at {offset}"
                    ),
                    values=(value,),
                )


def inconsistent_offsets(view: TransactionView) -> Findings:
    """One offset of a partition holds two records.

    The acknowledgement of an aborted transaction counts: its record lies in the log all the same.
    """
    held: dict[tuple[PartitionKey, int], dict[str, str]] = {}
    for transaction in view.history.transactions:
        for sent in transaction.sends():
            if sent.offset != OFFSET_UNKNOWN:
                by = f"acknowledged to {transaction.name}"
                held.setdefault((sent.partition, sent.offset), {})[sent.value] = by
    for value, places in view.places.items():
        for place, reader in places.items():
            held.setdefault(place, {}).setdefault(value, f"read by {reader.name}")
    for (partition, offset), by_value in held.items():
        values = [value for value in by_value if value not in view.blame.values]
        if len(values) > 1:
            told = "; ".join(f"{value} was {by_value[value]}" for value in values)
            yield TransactionFinding(
                partition=partition, detail=f"at {offset}: {told}", values=tuple(values)
            )


def precommitted_read(view: TransactionView) -> Findings:
    """A transaction reads what it has sent itself, which nobody may read before it commits."""
    for each in view.polls:
        if not each.transaction.is_transactional:
            continue
        for partition, records in each.poll.records:
            for offset, value in records:
                written = view.writers.get(value)
                if written is not None and written[0] is each.transaction:
                    yield TransactionFinding(
                        partition=partition,
                        detail=f"{each.name} was handed {value} at {offset}, its own record",
                        values=(value,),
                        polls=((each.number, partition),),
                    )


def aborted_read(view: TransactionView) -> Findings:
    """G1a: a record of a transaction that did not commit is read."""
    for value, places in view.places.items():
        if value not in view.writers or value in view.blame.values:
            continue
        transaction, _ = view.writers[value]
        if transaction.may_commit:
            continue
        why = (
            "was aborted"
            if transaction.outcome is TransactionOutcome.ABORTED
            else "never asked for its commit"
        )
        (partition, offset), reader = next(iter(places.items()))
        yield TransactionFinding(
            partition=partition,
            detail=(
                f"{value} is of {transaction.name}, which {why}; "
                f"{reader.name} was handed it at {offset}"
            ),
            values=(value,),
            polls=((reader.number, partition),),
        )


def uncommitted_read(view: TransactionView) -> Findings:
    """A record is read before the call of the commit, or before the plain send, that makes it so.

    A cycle of reads that takes real time always holds such a read, and is told as it.
    """
    called_ns = {
        value: transaction.deciding_ns if transaction.is_transactional else sent.began_ns
        for value, (transaction, sent) in view.writers.items()
        if value not in view.blame.values
    }
    for each in view.polls:
        ended_ns = each.poll.ended_ns
        for partition, records in each.poll.records:
            for offset, value in records:
                if called_ns.get(value, NEVER_NS) > ended_ns:
                    transaction, _ = view.writers[value]
                    what = "called commit" if transaction.is_transactional else "sent it"
                    yield TransactionFinding(
                        partition=partition,
                        detail=(
                            f"{each.name} was handed {value} at {offset}; {transaction.name} "
                            f"{what} at {spell_ms(called_ns[value])}, after that"
                        ),
                        values=(value,),
                        polls=((each.number, partition),),
                    )
