"""Checks of the order inside each partition: records lie in the order in which they were sent.

Between partitions nothing is promised, and neither is it between the records of transactions that
ran at the same time: they interleave (int-send-skip), and G0 across partitions is allowed.
"""

from itertools import pairwise

from tidelog.chaos.checkers.history.history import PartitionKey
from tidelog.chaos.checkers.transactions.history import (
    OFFSET_UNKNOWN,
    SendOperation,
    Transaction,
)
from tidelog.chaos.checkers.transactions.view import (
    Findings,
    TransactionFinding,
    TransactionView,
    spell_ms,
)

_Placed = tuple[int, Transaction, SendOperation]
"""An offset, and what lies there."""


def int_nonmonotonic_send(view: TransactionView) -> Findings:
    """The records of one transaction lie in another order than it sent them."""
    for transaction in view.history.transactions:
        by_partition: dict[PartitionKey, list[_Placed]] = {}
        for sent in transaction.sends():
            _put(view, by_partition, transaction, sent)
        for partition, placed in by_partition.items():
            for (before, _, first), (after, _, second) in pairwise(placed):
                if after <= before:
                    yield TransactionFinding(
                        partition=partition,
                        detail=(
                            f"{transaction.name} sent {first.value} before {second.value}; "
                            f"they lie at {before} and {after}"
                        ),
                        values=(second.value,),
                    )


def ext_nonmonotonic_send(view: TransactionView) -> Findings:
    """A later transaction of a process lies below an earlier one of it, in one partition."""
    for (process, partition), placed in _by_process(view).items():
        highest: _Placed | None = None
        for each in placed:
            if highest is not None and each[0] <= highest[0] and each[1] is not highest[1]:
                yield TransactionFinding(
                    partition=partition,
                    detail=(
                        f"{process} sent {highest[2].value} in {highest[1].name} before "
                        f"{each[2].value} in {each[1].name}; they lie at {highest[0]} and {each[0]}"
                    ),
                    values=(each[2].value,),
                )
            if highest is None or each[0] > highest[0]:
                highest = each


def G0(view: TransactionView) -> Findings:  # noqa: N802 - the literature's name
    """A write cycle inside one partition: a record lies below one acknowledged before it was sent.

    The log says that the later send came first, real time says that the earlier one did.
    """
    for partition, placed in _by_partition(view).items():
        acknowledged = sorted(
            (each for each in placed if each[2].offset != OFFSET_UNKNOWN),
            key=lambda each: each[2].ended_ns,
        )
        highest: _Placed | None = None
        at = 0
        for offset, transaction, sent in sorted(placed, key=lambda each: each[2].began_ns):
            while at < len(acknowledged) and acknowledged[at][2].ended_ns < sent.began_ns:
                if highest is None or acknowledged[at][0] > highest[0]:
                    highest = acknowledged[at]
                at += 1
            if highest is not None and offset < highest[0]:
                yield TransactionFinding(
                    partition=partition,
                    detail=(
                        f"{sent.value} of {transaction.name} lies at {offset}, before "
                        f"{highest[2].value} of {highest[1].name} at {highest[0]} (log order); "
                        f"that was acknowledged at {spell_ms(highest[2].ended_ns)}, before "
                        f"{sent.value} was sent at {spell_ms(sent.began_ns)} (real time)"
                    ),
                    values=(sent.value,),
                )


def _by_partition(view: TransactionView) -> dict[PartitionKey, list[_Placed]]:
    found: dict[PartitionKey, list[_Placed]] = {}
    for transaction in view.history.transactions:
        for sent in transaction.sends():
            _put(view, found, transaction, sent)
    return found


def _by_process(view: TransactionView) -> dict[tuple[str, PartitionKey], list[_Placed]]:
    """The records of each process in each partition, in the order in which it sent them."""
    found: dict[tuple[str, PartitionKey], list[_Placed]] = {}
    for partition, placed in _by_partition(view).items():
        # Transactions are listed as they ended; plain sends of one process may end in any order.
        for each in sorted(placed, key=lambda each: each[2].began_ns):
            found.setdefault((each[1].process, partition), []).append(each)
    return found


def _put(
    view: TransactionView,
    found: dict[PartitionKey, list[_Placed]],
    transaction: Transaction,
    sent: SendOperation,
) -> None:
    offset = view.place_of(sent)
    if offset != OFFSET_UNKNOWN and sent.value not in view.blame.values:
        found.setdefault(sent.partition, []).append((offset, transaction, sent))
