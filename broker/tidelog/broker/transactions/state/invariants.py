"""What is true of transactions after every step, and between two steps. Pure.

Owns the list. `check` looks at a state, `check_step` at two of them, one step apart; a core checks
itself after a load, tests and simulations after everything.

1. Whoever works has an epoch of at most 32,766. 32,767 is only on a marker; then, and only then,
   the next producer id is known.
2. An end carries exactly one epoch more than the data that it ends, under the same producer id.
3. Something is touched if the transaction is ONGOING; nothing is if none is in progress.
4. A producer id belongs to one transactional id.
5. Every ONGOING transaction has a deadline; every decision that is committed either has a marker on
   its way to each partition that waits, or a deadline for the next attempt.
6. Nothing is prepared without a principal, and all that is prepared is counted.
7. States follow each other as the table says.
8. A decision never changes, nor what it is about, until it is complete.
9. What a transaction touches only grows while it is open.
10. The current identity changes only to one with a higher epoch, or to a new producer id, which is
    then the one that the decision has named, or comes while nothing is in progress.
11. Nothing but an idle id is forgotten.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.states import (
    COMPLETE_OF,
    EPOCH_MAX,
    FENCING_EPOCH,
    MAY_FOLLOW,
    Succession,
    TransactionState,
)
from tidelog.broker.transactions.state.transaction import (
    NEVER_MS,
    Transaction,
    Transactions,
    touched_topics,
)


def check(transactions: Transactions) -> None:
    """Checks a state between two steps of a core that is loaded and knows its topics."""
    owners: dict[int, str] = {}
    prepared: dict[str, str] = {}
    for name, each in transactions.by_id.items():
        assert each.transactional_id == name, f"`{each.transactional_id}` stands as `{name}`"
        check_value(name, each.value)
        _check_work(each)
        assert touched_topics(each.keys) == each.value.topics, f"`{name}`: keys are not the value's"
        if each.value.state is TransactionState.PREPARED:
            prepared[name] = each.value.principal
        for producer_id in sorted(_producer_ids(each.value)):
            owner = owners.setdefault(producer_id, name)
            assert owner == name, f"producer id {producer_id} belongs to `{owner}` and `{name}`"
    assert prepared == transactions.prepared, f"{transactions.prepared} for {prepared}"


def _producer_ids(value: TransactionValue) -> dict[int, None]:
    found: dict[int, None] = {value.current.producer_id: None}
    if value.last is not None:
        found[value.last.producer_id] = None
    if value.next_producer_id is not None:
        found[value.next_producer_id] = None
    return found


def check_value(name: str, value: TransactionValue) -> None:
    """Checks one value by itself."""
    where = f"`{name}` {value.state.name} {value.current}"
    assert value.current.producer_id >= 0, f"{where}: no producer id"
    assert value.timeout_ms > 0, f"{where}: no timeout"
    if value.is_ending:
        _check_ending(where, value)
    else:
        assert 0 <= value.current.producer_epoch <= EPOCH_MAX, f"{where}: no epoch to work with"
        assert value.next_producer_id is None, f"{where}: a next producer id and no decision"
    assert (value.last is None) == (value.succession is Succession.NONE), f"{where}: no last one"
    if value.state is TransactionState.ONGOING:
        assert value.topics, f"{where} and touches nothing"
    if value.is_idle:
        assert not value.topics, f"{where} and touches something"
    assert (value.started_ms >= 0) == (not value.is_idle), f"{where}: started {value.started_ms}"
    is_prepared = value.state is TransactionState.PREPARED
    assert bool(value.principal) == is_prepared, f"{where}: prepared by `{value.principal}`"
    ids = [each.topic_id for each in value.topics]
    assert ids == sorted(ids), f"{where}: topics out of order"
    for each in value.topics:
        assert list(each.partitions) == sorted(each.partitions), f"{where}: out of order"


def _check_ending(where: str, value: TransactionValue) -> None:
    last = value.last
    assert last is not None, f"{where}: an end of nobody's"
    assert last.producer_id == value.current.producer_id, f"{where}: ends another producer id"
    # Two steps at once would pass 32,767 when a takeover meets the last epoch.
    assert value.current.producer_epoch == last.producer_epoch + 1, f"{where}: after {last}"
    is_last_epoch = value.current.producer_epoch == FENCING_EPOCH
    assert value.current.producer_epoch <= FENCING_EPOCH, f"{where}: beyond the last epoch"
    assert is_last_epoch == (value.next_producer_id is not None), f"{where}: rotation"


def _check_work(each: Transaction) -> None:
    where = f"`{each.transactional_id}` {each.value.state.name}"
    assert each.due_ms == NEVER_MS or each.timer_ms <= each.due_ms, f"{where}: no timer"
    if each.value.state in (TransactionState.ONGOING,):
        assert each.due_ms != NEVER_MS, f"{where}: never times out"
    if each.markers is not None:
        assert each.value.is_ending, f"{where}: markers without a decision"
        assert each.markers.waiting, f"{where}: all markers are there, and it is not complete"
        for key in each.markers.waiting:
            assert key in each.keys, f"{where}: a marker for {key}, which it does not touch"
            is_coming = key in each.markers.sent or each.due_ms != NEVER_MS
            assert is_coming, f"{where}: nobody sends the marker for {key}"
        sendings: dict[int, int] = {}
        for key, send_id in each.markers.sent.items():
            assert key in each.markers.waiting, f"{where}: {key} has its marker"
            sendings[send_id] = sendings.get(send_id, 0) + 1
        assert sendings == each.markers.unanswered, f"{where}: {each.markers.unanswered}"


class TransactionView(msgspec.Struct, frozen=True):
    """What `check_step` compares."""

    values: Mapping[str, TransactionValue]


def view(transactions: Transactions) -> TransactionView:
    """Returns a state as it is now; later steps do not change the view."""
    return TransactionView({name: each.value for name, each in transactions.by_id.items()})


def check_step(before: TransactionView, after: TransactionView) -> None:
    """Checks two states, one step apart."""
    for name, old in before.values.items():
        new = after.values.get(name)
        if new is None:
            assert old.is_idle, f"`{name}` was forgotten while {old.state.name}"
        elif new is not old:
            _check_value_step(name, old, new)


def _check_value_step(name: str, old: TransactionValue, new: TransactionValue) -> None:
    where = f"`{name}` {old.state.name} {old.current} to {new.state.name} {new.current}"
    # An end of nothing passes through its PREPARE within one step.
    is_undecided = old.is_idle or old.state is TransactionState.PREPARED
    is_short_end = is_undecided and not old.topics and new.state in COMPLETE_OF.values()
    assert old.state in MAY_FOLLOW[new.state] or is_short_end, f"{where}: not in the table"
    if old.is_ending:
        assert new.state is COMPLETE_OF[old.state], f"{where}: the decision changed"
        assert new.current == old.successor, f"{where}: instead of {old.successor}"
        assert (new.last, new.succession) == (old.last, old.succession), f"{where}: last one"
        return
    if old.state is TransactionState.ONGOING and new.state is not TransactionState.ONGOING:
        assert new.topics == old.topics, f"{where}: ends what it did not touch"
    if not (old.is_idle or is_short_end):
        assert new.current.producer_id == old.current.producer_id, f"{where}: while in progress"
    if old.topics:
        assert _holds(new, old), f"{where}: forgets what it touches"
    _check_identities(where, old.current, new)


def _check_identities(where: str, old: Identity, new: TransactionValue) -> None:
    if new.current.producer_id == old.producer_id:
        grows = new.current.producer_epoch - old.producer_epoch
        is_same = new.state in (TransactionState.ONGOING, TransactionState.PREPARED)
        assert grows >= 0, f"{where}: the epoch fell"
        assert not (is_same and grows), f"{where}: another epoch within a transaction"
        assert grows <= 1, f"{where}: {grows} epochs at once"
    else:
        assert old.producer_epoch == EPOCH_MAX, f"{where}: rotated before its time"
        assert new.current.producer_epoch == 0, f"{where}: a new producer id begins above 0"


def _holds(new: TransactionValue, old: TransactionValue) -> bool:
    present = {
        (each.topic_id, partition): None for each in new.topics for partition in each.partitions
    }
    return all(
        (each.topic_id, partition) in present
        for each in old.topics
        for partition in each.partitions
    )
