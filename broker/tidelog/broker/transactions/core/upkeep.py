"""What a coordinator does without being asked: timeouts, attempts of markers, expiry. Pure.

Owns when. Every transaction in progress has a deadline from its first record on and again after
every load, unless it is prepared. Every decision is completed, however often its markers are
refused.
"""

from typing import Final

from tidelog.broker.transactions.core import ending, markers
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import SendMarkers
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.states import Decision, Succession, TransactionState
from tidelog.broker.transactions.state.transaction import NEVER_MS, Transaction
from tidelog.broker.transactions.state.world import TransactionWorld

Work = TransactionDraft | SendMarkers
"""Something to append, or something to send at once."""


class TransactionUpkeep:
    """Decides what is due; see the module."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world: Final = world
        self._expiry_due_ms = NEVER_MS

    def on_loaded(self) -> None:
        """Gives every transaction in progress its full timeout: nobody could reach it meanwhile."""
        world = self._world
        self._expiry_due_ms = world.now_ms + limits.EXPIRY_INTERVAL_MS
        for name in sorted(world.transactions.by_id):
            transaction = world.transactions.by_id[name]
            match transaction.value.state:
                case TransactionState.ONGOING:
                    world.timers.set(transaction, world.now_ms + transaction.value.timeout_ms)
                case TransactionState.PREPARED:
                    world.timers.set(transaction, world.now_ms + limits.PREPARED_NOTICE_MS)
                case _:
                    pass

    def continue_ends(self) -> list[Work]:
        """Sends the markers of every decision that was loaded: all of them are committed."""
        work: list[Work] = []
        for name in self._ending():
            work += self.begin_markers(self._world.transactions.by_id[name])
        return work

    def begin_markers(self, transaction: Transaction) -> list[Work]:
        """The decision is committed: now it may become visible."""
        markers.begin(transaction)
        return self._go_on(transaction)

    def _go_on(self, transaction: Transaction) -> list[Work]:
        """Completes what waits for nothing any more; sends what is not on its way."""
        progress = transaction.markers
        assert progress is not None, f"`{transaction.transactional_id}` has no markers"
        if markers.forget_deleted(self._world, progress):
            return [self.complete(transaction)]
        return [*markers.send(self._world, transaction)]

    def complete(self, transaction: Transaction) -> TransactionDraft:
        """Returns the record that the markers are there."""
        draft = TransactionDraft(self._world.transactions, transaction.transactional_id)
        ending.complete(self._world, draft)
        return draft

    def on_topics(self) -> list[Work]:
        """Completes what waited only for partitions of topics that are deleted now."""
        work: list[Work] = []
        for name in self._ending():
            transaction = self._world.transactions.by_id[name]
            progress = transaction.markers
            if progress is not None and markers.forget_deleted(self._world, progress):
                work.append(self.complete(transaction))
        return work

    def _ending(self) -> list[str]:
        by_id = self._world.transactions.by_id
        return sorted(name for name, each in by_id.items() if each.value.is_ending)

    def next_deadline_ms(self) -> int:
        """Returns when `on_tick` may find something."""
        return min(self._world.timers.next_ms(), self._expiry_due_ms)

    def on_tick(self, *, may_expire: bool) -> list[Work]:
        """Does all that is due by now; no id is forgotten by a clock that may be wrong."""
        world = self._world
        work: list[Work] = []
        for transaction in world.timers.take_due(world.now_ms):
            work += self._look_at(transaction)
        if world.now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = world.now_ms + limits.EXPIRY_INTERVAL_MS
            work += self._expire() if may_expire else []
        return work

    def _look_at(self, transaction: Transaction) -> list[Work]:
        world, value = self._world, transaction.value
        if value.state is TransactionState.ONGOING:
            return self._abort(transaction)
        if value.state is TransactionState.PREPARED:
            world.notes.add(transaction.transactional_id, NoteKind.PREPARED_LONG)
            world.timers.set(transaction, world.now_ms + limits.PREPARED_NOTICE_MS)
        elif transaction.markers is not None:
            return self._go_on(transaction)
        return []

    def _abort(self, transaction: Transaction) -> list[Work]:
        world = self._world
        if ending.needs_producer_id(transaction.value) and not len(world.producer_ids):
            # Put off, never left out: its epoch is used up, and without a next producer id there
            # is no identity to go on with.
            world.timers.set(transaction, world.now_ms + limits.PRODUCER_ID_WAIT_MS)
            return []
        draft = TransactionDraft(world.transactions, transaction.transactional_id)
        ending.decide(world, draft, Decision.ABORT, Succession.TIMED_OUT)
        world.notes.add(transaction.transactional_id, NoteKind.TIMED_OUT)
        return [draft]

    def _expire(self) -> list[Work]:
        """Forgets ids that nobody used for long and that have nothing in progress."""
        world = self._world
        before_ms = world.wall_ms - world.settings.id_expiration_ms
        work: list[Work] = []
        for name in sorted(world.transactions.by_id):
            value = world.transactions.by_id[name].value
            if value.is_idle and value.updated_ms <= before_ms:
                draft = TransactionDraft(world.transactions, name)
                draft.forget()
                world.notes.add(name, NoteKind.EXPIRED)
                work.append(draft)
        return work
