"""Bugs that the transactions suite must find, first half: in coordinators and in partitions.

Each takes one guard out that keeps a transaction whole; most of them were missing in somebody's log
once. The second half, in clients and readers, is `of_transactional_clients`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from tidelog.broker.log.transactions import admission
from tidelog.broker.log.transactions.admission import (
    Admission,
    FirstBatch,
    MarkerHere,
    MarkerVerdict,
    ProducerHere,
)
from tidelog.broker.transactions.core import ending, markers, partitions, takeover
from tidelog.broker.transactions.core.coordinator import TransactionCoordinatorCore
from tidelog.broker.transactions.core.identities import Standing, standing
from tidelog.broker.transactions.core.upkeep import TransactionUpkeep, Work
from tidelog.broker.transactions.state import replay
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    Response,
)
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import (
    Answer,
    Effect,
    EndTransaction,
    InitTransactionalProducer,
    SendMarkers,
)
from tidelog.broker.transactions.state.pending import PendingAppends
from tidelog.broker.transactions.state.records import TouchedTopic, TransactionValue
from tidelog.broker.transactions.state.refusals import fenced
from tidelog.broker.transactions.state.states import Decision, Succession, TransactionState
from tidelog.broker.transactions.state.timers import TransactionTimers
from tidelog.broker.transactions.state.transaction import Transaction, keys_of, touched_topics
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey, ProducerEpoch

# -- coordinators ----------------------------------------------------------------------------------


def decide_by_name_alone() -> Substitution:
    """An end decides whatever its transactional id has open, as before the second version."""

    def standing_by_name(value: TransactionValue, identity: Identity) -> Standing:
        is_open = value.state is TransactionState.ONGOING
        return Standing.CURRENT if is_open else standing(value, identity)

    return Substitution(ending, "standing", standing_by_name)


def answer_before_it_is_committed() -> Substitution:
    """A failover takes back what was answered."""

    def last_of(self: PendingAppends, transactional_id: str | None) -> int:
        del self, transactional_id
        return 0

    return Substitution(PendingAppends, "last_of", last_of)


def accept_a_partition_before_it_is_noted() -> Substitution:
    """Leaders are told yes while the record that names their partition is on its way."""
    original = TransactionCoordinatorCore._answer

    def answer(
        self: TransactionCoordinatorCore,
        transactional_id: str | None,
        request_id: int,
        result: Response | TidelogError,
    ) -> list[Effect]:
        if isinstance(result, AddPartitionsAnswer):
            return [Answer(request_id=request_id, result=result)]
        return original(self, transactional_id, request_id, result)

    return Substitution(TransactionCoordinatorCore, "_answer", answer)


def mark_before_the_decision_is_committed() -> Substitution:
    """Markers leave with the append of the decision."""
    original = TransactionCoordinatorCore._append

    def append(self: TransactionCoordinatorCore, draft: TransactionDraft) -> list[Effect]:
        effects = original(self, draft)
        transaction = draft.transaction
        is_decided = transaction is not None and transaction.value.is_ending
        if transaction is not None and is_decided and transaction.markers is None:
            effects += self._perform(self._upkeep.begin_markers(transaction))
        return effects

    return Substitution(TransactionCoordinatorCore, "_append", append)


def complete_at_the_first_marker() -> Substitution:
    """One marker that is there stands for all of them."""
    original = markers.take_answers

    def take_answers(
        world: TransactionWorld,
        transaction: Transaction,
        send_id: int,
        results: Iterable[tuple[PartitionKey, TidelogError | None]],
    ) -> bool:
        answered = list(results)
        is_done = original(world, transaction, send_id, answered)
        is_any_there = any(error is None for _, error in answered)
        if is_any_there and transaction.markers is not None:
            transaction.markers.waiting.clear()
            transaction.markers.sent.clear()
            for each, name in list(world.sends.items()):
                if name == transaction.transactional_id:
                    del world.sends[each]
        return is_done or is_any_there

    return Substitution(markers, "take_answers", take_answers)


def commit_at_the_timeout() -> Substitution:
    """A transaction that takes too long is committed as far as it is."""
    original = ending.decide

    def decide(
        world: TransactionWorld,
        draft: TransactionDraft,
        decision: Decision,
        succession: Succession,
    ) -> None:
        if succession is Succession.TIMED_OUT:
            decision = Decision.COMMIT
        original(world, draft, decision, succession)

    return Substitution(ending, "decide", decide)


def never_time_out() -> Substitution:
    """A transaction whose producer is gone stays open."""
    original = TransactionUpkeep._look_at

    def look_at(self: TransactionUpkeep, transaction: Transaction) -> list[Work]:
        if transaction.value.state is TransactionState.ONGOING:
            return []
        return original(self, transaction)

    return Substitution(TransactionUpkeep, "_look_at", look_at)


def forget_timeouts_at_a_load() -> Substitution:
    """What was open when the coordinator moved has no deadline any more."""

    def on_loaded(self: TransactionUpkeep) -> None:
        del self

    return Substitution(TransactionUpkeep, "on_loaded", on_loaded)


def time_out_what_is_prepared() -> Substitution:
    """A prepared transaction is aborted as any other that takes too long."""
    original = TransactionUpkeep.on_tick

    def on_tick(self: TransactionUpkeep, *, may_expire: bool) -> list[Work]:
        world = self._world
        late = [
            transaction
            for transaction in world.transactions.by_id.values()
            if transaction.value.state is TransactionState.PREPARED
            and world.wall_ms - transaction.value.started_ms > transaction.value.timeout_ms
            and not ending.needs_producer_id(transaction.value)
        ]
        work: list[Work] = [self._abort(each)[0] for each in late]
        return work + original(self, may_expire=may_expire)

    return Substitution(TransactionUpkeep, "on_tick", on_tick)


def take_over_what_is_prepared() -> Substitution:
    """A takeover ends a prepared transaction as it ends an open one."""
    original = takeover.on_init

    def on_init(
        world: TransactionWorld, draft: TransactionDraft, request: InitTransactionalProducer
    ) -> InitAnswer | TidelogError:
        made = draft.transaction
        is_prepared = made is not None and made.value.state is TransactionState.PREPARED
        if made is not None and is_prepared and request.expected is None:
            ending.decide(world, draft, Decision.ABORT, Succession.TAKEN_OVER)
            return takeover._unfinished("take over")
        return original(world, draft, request)

    return Substitution(takeover, "on_init", on_init)


def send_markers_once() -> Substitution:
    """A marker that was refused or lost is not sent again."""
    original = TransactionTimers.set

    def set_timer(self: TransactionTimers, transaction: Transaction, due_ms: int) -> None:
        if not transaction.value.is_ending:
            original(self, transaction, due_ms)

    return Substitution(TransactionTimers, "set", set_timer)


def give_a_marker_a_new_epoch_each_time() -> Substitution:
    """A marker that is sent again fences the one that is there."""
    original = markers.send

    def send(world: TransactionWorld, transaction: Transaction) -> list[SendMarkers]:
        return [
            replace(each, identity=_later(each.identity, each.attempt - 1))
            for each in original(world, transaction)
        ]

    return Substitution(markers, "send", send)


def mark_with_the_epoch_of_the_data() -> Substitution:
    """Markers are not newer than what they end."""
    original = markers.send

    def send(world: TransactionWorld, transaction: Transaction) -> list[SendMarkers]:
        return [
            replace(each, identity=_later(each.identity, -1))
            for each in original(world, transaction)
        ]

    return Substitution(markers, "send", send)


def never_change_the_producer_id() -> Substitution:
    """The epochs go on behind the last one."""

    def needs_producer_id(value: TransactionValue) -> bool:
        del value
        return False

    return Substitution(ending, "needs_producer_id", needs_producer_id)


def bump_twice_at_a_takeover() -> Substitution:
    """One epoch to fence, one to abort: behind the last epoch there is no second one."""
    original = ending.decide

    def decide(
        world: TransactionWorld,
        draft: TransactionDraft,
        decision: Decision,
        succession: Succession,
    ) -> None:
        original(world, draft, decision, succession)
        made = draft.transaction
        if made is not None and made.value.is_ending:
            draft._records.pop()
            draft._write(replace(made.value, current=_later(made.value.current, 1)))

    return Substitution(takeover, "decide", decide)


def fence_who_comes_too_early() -> Substitution:
    """While the end before is completed the next identity is taken for a zombie's."""

    def refuse(tried: str, happened: str) -> TidelogError:
        return fenced(tried, happened)

    return Substitution(partitions, "concurrent", refuse)


def fence_who_was_timed_out() -> Substitution:
    """A producer that stalled past its timeout is told that somebody else has its id."""

    def refuse_former(value: TransactionValue, identity: Identity, tried: str) -> TidelogError:
        return fenced(tried, f"{identity} is over, not {value.current}")

    return Substitution(ending, "refuse_former", refuse_former)


def say_yes_to_the_contrary() -> Substitution:
    """An end that is repeated is told that it is done, whatever was decided."""

    def repeated(value: TransactionValue, request: EndTransaction, tried: str) -> EndAnswer:
        del request, tried
        return EndAnswer(identity=value.successor)

    return Substitution(ending, "_repeated", repeated)


def give_an_identity_to_two() -> Substitution:
    """Whoever names the last identity is told the current one, zombies too."""

    def is_successor(value: TransactionValue, expected: Identity) -> bool:
        return value.last is not None and expected == value.last

    return Substitution(takeover, "_is_successor", is_successor)


def take_over_without_a_new_epoch() -> Substitution:
    """A takeover of what is idle changes nothing."""

    def renew(
        world: TransactionWorld,
        draft: TransactionDraft,
        value: TransactionValue,
        succession: Succession,
        timeout_ms: int,
    ) -> InitAnswer:
        del world, draft, succession, timeout_ms
        return InitAnswer(identity=value.current)

    return Substitution(takeover, "_renew", renew)


def add_for_any_identity() -> Substitution:
    """Whose batch it is does not matter to what it is added to."""

    def standing_of_all(value: TransactionValue, identity: Identity) -> Standing:
        del value, identity
        return Standing.CURRENT

    return Substitution(partitions, "standing", standing_of_all)


def remember_the_last_partition_only() -> Substitution:
    """A partition that is added takes the place of those before."""
    original = touched_topics

    def last_topic(keys: Iterable[PartitionKey]) -> tuple[TouchedTopic, ...]:
        return original(list(keys)[-1:])

    return Substitution(partitions, "touched_topics", last_topic)


def load_the_first_partition_only() -> Substitution:
    """A coordinator that has loaded knows of one partition of each transaction."""

    def first_key(topics: tuple[TouchedTopic, ...]) -> dict[PartitionKey, None]:
        return dict.fromkeys(list(keys_of(topics))[:1])

    return Substitution(replay, "keys_of", first_key)


def leave_ends_where_they_are_at_a_load() -> Substitution:
    """A decision that was loaded gets no markers."""

    def continue_ends(self: TransactionUpkeep) -> list[Work]:
        del self
        return []

    return Substitution(TransactionUpkeep, "continue_ends", continue_ends)


# -- partitions ------------------------------------------------------------------------------------


def append_without_a_second_look() -> Substitution:
    """What was verified is appended, also behind its marker."""

    def admit(self: Admission, here: ProducerHere | None, batch: FirstBatch, *, tried: str) -> None:
        del self, here, batch, tried

    return Substitution(Admission, "admit", admit)


def ask_no_coordinator() -> Substitution:
    """Every batch that is of no older transaction is let in."""
    original = admission._is_open

    def is_open(here: ProducerHere | None, batch: FirstBatch, tried: str) -> bool:
        original(here, batch, tried)
        return True

    return Substitution(admission, "_is_open", is_open)


def verify_a_producer_once() -> Substitution:
    """A producer that has ended a transaction here is believed for the next one."""
    original = admission._is_open

    def is_open(here: ProducerHere | None, batch: FirstBatch, tried: str) -> bool:
        is_known = here is not None and not here.is_open and batch.producer_epoch >= here.epoch
        return is_known or original(here, batch, tried)

    return Substitution(admission, "_is_open", is_open)


def begin_before_the_end_is_here() -> Substitution:
    """The next transaction's data are let in while the one before has no marker here."""

    def is_open(here: ProducerHere | None, batch: FirstBatch, tried: str) -> bool:
        if here is not None and batch.producer_epoch < here.epoch:
            raise admission._is_over(batch, here.epoch, tried)
        return here is not None and here.is_open

    return Substitution(admission, "_is_open", is_open)


def take_data_of_older_epochs() -> Substitution:
    """A batch of a transaction that is over is part of the one that is open."""
    original = admission._is_open

    def is_open(here: ProducerHere | None, batch: FirstBatch, tried: str) -> bool:
        if here is not None and batch.producer_epoch < here.epoch and here.is_open:
            return True
        return original(here, batch, tried)

    return Substitution(admission, "_is_open", is_open)


def take_any_answer_for_yes() -> Substitution:
    """What the coordinator has refused is verified as well."""
    original = Admission.on_answer

    def on_answer(
        self: Admission, producer_id: int, ticket: int, error: TidelogError | None
    ) -> None:
        del error
        original(self, producer_id, ticket, None)

    return Substitution(Admission, "on_answer", on_answer)


def refuse_a_marker_that_is_here() -> Substitution:
    """A marker whose answer was lost is refused for ever."""
    return _judge_markers(MarkerVerdict.ALREADY_THERE, None)


def append_a_marker_again() -> Substitution:
    """A marker that is here already is stored once more."""
    return _judge_markers(MarkerVerdict.ALREADY_THERE, MarkerVerdict.APPEND)


def _judge_markers(of: MarkerVerdict, instead: MarkerVerdict | None) -> Substitution:
    original = Admission.judge_marker

    def judge_marker(
        self: Admission, here: ProducerHere | None, marker: MarkerHere, *, tried: str
    ) -> MarkerVerdict:
        verdict = original(self, here, marker, tried=tried)
        if verdict is not of:
            return verdict
        if instead is None:
            raise TidelogError(
                ErrorCode.INVALID_TRANSACTION_STATE, tried=tried, happened="nothing is open"
            )
        return instead

    return Substitution(Admission, "judge_marker", judge_marker)


def take_markers_of_any_epoch() -> Substitution:
    """A marker that was delayed ends whatever its producer has open."""
    original = Admission.judge_marker

    def judge_marker(
        self: Admission, here: ProducerHere | None, marker: MarkerHere, *, tried: str
    ) -> MarkerVerdict:
        if here is not None and here.is_open:
            return MarkerVerdict.APPEND
        return original(self, here, marker, tried=tried)

    return Substitution(Admission, "judge_marker", judge_marker)


def _later(identity: Identity, epochs: int) -> Identity:
    return Identity(identity.producer_id, ProducerEpoch(identity.producer_epoch + epochs))


BROKEN: Final = (
    "aborted_read",
    "torn_transaction",
    "lost_write",
    "unseen",
    "duplicate",
    "bank",
    "pipeline",
    "uncommitted_read",
    "dirty_order",
    "decided_twice",
    "marker_of_nothing",
    "unnamed_data",
    "data_after_end",
    "overlapping",
)
"""What shows that a transaction was not kept whole."""
STUCK: Final = ("not_alive",)


def plants(*of: tuple[Callable[[], Substitution], tuple[str, ...]]) -> dict[str, Plant]:
    """By the name of the function, with the checks that may say that it was this one."""
    return {make.__name__: Plant(make=make, expected=frozenset(expected)) for make, expected in of}


PLANTED: Final = plants(
    (decide_by_name_alone, BROKEN),
    (answer_before_it_is_committed, (*BROKEN, "state_skipped")),
    (accept_a_partition_before_it_is_noted, ("unnamed_data",)),
    (mark_before_the_decision_is_committed, ("marker_of_nothing", "decided_twice")),
    (complete_at_the_first_marker, (*BROKEN, *STUCK)),
    (commit_at_the_timeout, BROKEN),
    (never_time_out, STUCK),
    (forget_timeouts_at_a_load, STUCK),
    (time_out_what_is_prepared, ("prepared_lost", *BROKEN)),
    (take_over_what_is_prepared, ("prepared_lost", *BROKEN)),
    (send_markers_once, STUCK),
    (give_a_marker_a_new_epoch_each_time, ("marker_of_nothing", *STUCK)),
    (mark_with_the_epoch_of_the_data, ("marker_of_nothing", "epoch_of_data", *STUCK)),
    (never_change_the_producer_id, ("last_epoch", *STUCK)),
    (bump_twice_at_a_takeover, ("last_epoch", *STUCK)),
    (fence_who_comes_too_early, ("fenced_alone",)),
    (fence_who_was_timed_out, ("fenced_alone",)),
    (say_yes_to_the_contrary, BROKEN),
    (give_an_identity_to_two, BROKEN),
    (take_over_without_a_new_epoch, BROKEN),
    (add_for_any_identity, BROKEN),
    (remember_the_last_partition_only, (*BROKEN, *STUCK)),
    (load_the_first_partition_only, (*BROKEN, *STUCK)),
    (leave_ends_where_they_are_at_a_load, STUCK),
    (append_without_a_second_look, (*BROKEN, *STUCK)),
    (ask_no_coordinator, ("unnamed_data",)),
    (verify_a_producer_once, ("unnamed_data",)),
    (begin_before_the_end_is_here, ("overlapping",)),
    (take_data_of_older_epochs, ("data_after_end", "unnamed_data")),
    (take_any_answer_for_yes, ("unnamed_data",)),
    (refuse_a_marker_that_is_here, STUCK),
    (append_a_marker_again, ("marker_again",)),
    (take_markers_of_any_epoch, ("epoch_of_data", *BROKEN)),
)
