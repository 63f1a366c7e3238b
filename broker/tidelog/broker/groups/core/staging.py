"""Offsets in a transaction: checked, staged, and counted or dropped by the transaction's end. Pure.

Owns what is between a SendOffsets and its answer, and between a marker and its answer. It must
never let an offset count that was not appended in its transaction before its marker; never answer
for a marker before what it decides shows; never leave in memory what no record says.

    SendOffsets ─▶ member and epoch checked ─▶ VerifyTransaction ─▶ checked once more, and staged in
    the step that hands its record out (KAFKA-15784) ─┬▶ committed: answered
                                                      └▶ refused in its append's turn: taken back
    marker ─▶ appends of its transaction are settled ─▶ folded: what was sent becomes ordinary
    records, in one append with tombstones for the parts ─▶ committed: answered (KAFKA-17507)

The member is looked at twice, as the verification takes a while: the second look is in the step of
the append, so that a member cannot send what it lost meanwhile.
"""

from typing import Final

import msgspec

from tidelog.broker.groups.core.judging import (
    KeptOffsets,
    check_request,
    check_room,
    committing_member,
    judge,
    judge_owner,
    no_room,
    records_size,
)
from tidelog.broker.groups.core.offsets import store
from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.messages import Asked, EndStaged
from tidelog.broker.groups.state.records import StagedKey
from tidelog.broker.groups.state.refusals import exhausted
from tidelog.broker.groups.state.staged import StagedTransaction
from tidelog.broker.groups.state.world import World
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.refusals import (
    aborted,
    check_id,
    check_identity,
    concurrent,
    invalid,
)
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import SendOffsets
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerId

_TRIED: Final = (
    "send offsets of group `{0.group}` to transaction `{0.transactional_id}` of producer "
    "{0.producer_id}@{0.producer_epoch}"
)
_TOMBSTONE_BYTES: Final = 48
"""At most so much of a tombstone of a part is not the group's name."""


class _Sent(msgspec.Struct, frozen=True):
    """A part whose append is in flight."""

    key: StagedKey
    identity: Identity
    request_id: int


def identity_of(request: SendOffsets) -> Identity:
    """Whose transaction it is."""
    return Identity(request.producer_id, request.producer_epoch)


class Staging:
    """What is on its way into transactions and out of them; see the module."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._verifying: dict[int, Asked] = {}
        """By request id."""
        self._sent: Final[dict[int, _Sent]] = {}
        """By token."""
        self._ends: list[Asked] = []
        """Markers that wait until appends of their transactions are settled; in their order."""
        self._groups_of: Final[dict[ProducerId, dict[str, None]]] = {}
        """Which groups a producer's transaction has sent offsets to. Perhaps one too many: of one
        that has none any more nothing is found there."""
        self._offset_count = 0
        self._decided: Final[dict[tuple[str, ProducerId], None]] = {}
        """While loading: what a marker has decided and no fold is known of, in that order."""

    @property
    def transaction_count(self) -> int:
        """Transactions in progress with offsets in this partition."""
        return len(self._groups_of)

    @property
    def offset_count(self) -> int:
        """Offsets of these."""
        return self._offset_count

    # -- loading -------------------------------------------------------------------------------

    def note_loaded(self, key: StagedKey) -> None:
        """A record of a part was replayed."""
        self._groups_of.setdefault(key.producer_id, {})[key.group] = None

    def on_marker_loaded(self, end: Identity, decision: Decision) -> None:
        """A marker was replayed: what it decides is folded once everything is loaded."""
        for name in self._groups_of.get(end.producer_id, ()):
            group = self._world.groups.get(name)
            if group is not None and replay.decide(group, end, decision) is not None:
                self._decided.pop((name, end.producer_id), None)
                self._decided[name, end.producer_id] = None

    def on_loaded(self) -> None:
        """Counts what is there."""
        self._groups_of.clear()
        for name, group in self._world.groups.items():
            for producer_id, transaction in group.staged.items():
                self._groups_of.setdefault(producer_id, {})[name] = None
                self._offset_count += sum(len(part) for part in transaction.parts.values())

    def fold_loaded(self) -> list[Draft]:
        """What was decided and not folded when the former coordinator ended; before any request is
        taken, so that nothing can come between."""
        drafts = []
        for name, producer_id in self._decided:
            group = self._world.groups.get(name)
            transaction = None if group is None else group.staged.get(producer_id)
            if transaction is not None and transaction.decision is not None:
                drafts.append(self._fold(name, transaction))
        self._decided.clear()
        return drafts

    # -- offsets that are sent -----------------------------------------------------------------

    def begin(self, asked: Asked, request: SendOffsets) -> None:
        """The transaction is to be verified; or the refusal of what could not be staged anyway."""
        group = self._world.groups.get(request.group) or Group(name=request.group)
        self._check(group, request)
        self._verifying[asked.request_id] = asked

    def take_verified(self, request_id: int) -> Asked | None:
        """Whose transaction was verified; None: it was answered meanwhile."""
        return self._verifying.pop(request_id, None)

    def take_all_verifying(self) -> list[int]:
        """Request ids of all that wait: the core is of no more use."""
        found, self._verifying = list(self._verifying), {}
        found += [each.request_id for each in self._ends]
        self._ends = []
        return found

    def stage(self, draft: Draft, request: SendOffsets) -> StagedKey:
        """A record of one part, or the refusal."""
        group = draft.group()
        self._check(group, request)
        identity = identity_of(request)
        before = group.staged.get(identity.producer_id)
        key = StagedKey(
            group.name, identity.producer_id, 0 if before is None else before.next_number()
        )
        value = replay.staged_value(
            request.offsets,
            identity=identity,
            transactional_id=request.transactional_id,
            staged_ms=self._world.wall_ms,
        )
        draft.put(key, value)
        self.note_loaded(key)
        self._offset_count += len(request.offsets)
        return key

    def note_sent(self, token: int, key: StagedKey, request: SendOffsets, request_id: int) -> None:
        """The part's append is in flight."""
        self._sent[token] = _Sent(key, identity_of(request), request_id)

    def on_committed(self, token: int) -> None:
        """Parts up to this one are in the log."""
        for each in [each for each in self._sent if each <= token]:
            del self._sent[each]

    def on_refused(self, token: int) -> int:
        """The part is not in the log: it is forgotten. The id of its request."""
        sent = self._sent.pop(token)
        group = self._world.groups.get(sent.key.group)
        transaction = None if group is None else group.staged.get(sent.key.producer_id)
        if transaction is not None and transaction.identity == sent.identity:
            self._offset_count -= len(transaction.parts.get(sent.key.number, ()))
            replay.apply(self._world.groups, sent.key, None)
            self._forget_producer(sent.key.producer_id)
        return sent.request_id

    def _check(self, group: Group, request: SendOffsets) -> None:
        world, tried = self._world, _TRIED.format(request)
        identity = identity_of(request)
        check_id(tried, request.transactional_id)
        check_identity(tried, identity)
        check_request(tried, request.group, request.offsets)
        member = committing_member(group, request, tried)
        check_room(world, group, tried)
        for offset in request.offsets:
            error = judge(world, tried, offset)
            if error is None and member is not None:
                error = judge_owner(group, member, request.member_epoch, offset.key)
            if error is not None:
                raise error
        here = group.staged.get(identity.producer_id)
        if here is not None and here.identity == identity:
            _check_name(here, request, tried)
        self._check_order(here, identity, tried)
        self._check_limits(group, request, tried)

    def _check_order(self, here: StagedTransaction | None, identity: Identity, tried: str) -> None:
        """The partition's leader judges the same by its log; this says it in groups' words."""
        if here is None or (here.identity == identity and here.decision is None):
            return
        if identity.producer_epoch > here.identity.producer_epoch:
            raise concurrent(tried, f"the end of transaction {here.identity} is being written here")
        raise aborted(tried, f"the end of transaction {identity} stands here already")

    def _check_limits(self, group: Group, request: SendOffsets, tried: str) -> None:
        here = group.staged.get(request.producer_id)
        if here is None and len(group.staged) >= limits.TRANSACTIONS_PER_GROUP_MAX:
            what, limit = "too many transactions have", limits.TRANSACTIONS_PER_GROUP_MAX
            raise _full(tried, f"{what} sent offsets to the group", "PER_GROUP", limit)
        is_new = request.producer_id not in self._groups_of
        if is_new and len(self._groups_of) >= limits.TRANSACTIONS_PER_PARTITION_MAX:
            what, limit = "too many transactions have", limits.TRANSACTIONS_PER_PARTITION_MAX
            raise _full(tried, f"{what} sent offsets to this coordinator", "PER_PARTITION", limit)
        limit = limits.STAGED_OFFSETS_PER_PARTITION_MAX
        if self._offset_count + len(request.offsets) > limit:
            what = "too many offsets of transactions in progress wait at this coordinator"
            raise exhausted(tried, what, "STAGED_OFFSETS_PER_PARTITION_MAX", limit)
        merged = {} if here is None else here.offsets()
        merged.update({each.key: each for each in request.offsets})
        if KeptOffsets(group).room(merged) < 0:
            raise no_room(tried)
        parts = 1 if here is None else 1 + len(here.parts)
        if parts > limits.STAGED_PARTS_MAX:
            what = "the transaction has sent offsets to the group too often"
            raise exhausted(tried, what, "STAGED_PARTS_MAX", limits.STAGED_PARTS_MAX)
        # The fold is one append.
        name_bytes = len(group.name.encode())
        size = records_size(group.name, merged.values()) + parts * (name_bytes + _TOMBSTONE_BYTES)
        if size > limits.APPEND_BYTES_MAX:
            raise TidelogError(
                ErrorCode.BATCH_TOO_LARGE,
                tried=tried,
                happened=f"all that it has sent to the group would take up to {size:,} bytes; the "
                f"limit is {limits.APPEND_BYTES_MAX:,} (APPEND_BYTES_MAX)",
                hint="Abort it, and send fewer partitions or less metadata in one transaction.",
            )

    # -- ends ----------------------------------------------------------------------------------

    def on_end(self, asked: Asked, request: EndStaged) -> None:
        """A marker is committed; `take_ends` says when it is its turn."""
        for name in self._groups_of.get(request.end.producer_id, ()):
            group = self._world.groups.get(name)
            if group is not None:
                replay.decide(group, request.end, request.decision)
        self._ends.append(asked)

    def take_ends(self) -> list[tuple[int, list[Draft]]]:
        """Ids of requests whose markers take effect now, with what is to be appended for each.

        One waits while an append of its transaction is in flight. Where that append stands before
        the marker it is committed by now or in a moment; behind the marker it is refused.
        """
        found = []
        for asked in list(self._ends):
            assert isinstance(asked.request, EndStaged), "only ends wait here"
            end, decision = asked.request.end, asked.request.decision
            if any(_is_ended(sent.identity, end) for sent in self._sent.values()):
                continue
            self._ends.remove(asked)
            found.append((asked.request_id, self._fold_all(end, decision)))
        return found

    def _fold_all(self, end: Identity, decision: Decision) -> list[Draft]:
        drafts = []
        for name in sorted(self._groups_of.get(end.producer_id, ())):
            group = self._world.groups.get(name)
            transaction = None if group is None else replay.decide(group, end, decision)
            if transaction is not None:
                drafts.append(self._fold(name, transaction))
        return drafts

    def _fold(self, name: str, transaction: StagedTransaction) -> Draft:
        """One append: a failover finds all of it done, or none."""
        world, producer_id = self._world, transaction.identity.producer_id
        draft = Draft(world.groups, name)
        if transaction.decision is Decision.COMMIT:
            offsets = transaction.offsets()
            # Of a topic that was deleted meanwhile nothing is kept.
            known = [key for key in sorted(offsets) if key.topic_id in world.topics.by_id]
            store(world, draft, [offsets[key] for key in known])
        self._offset_count -= sum(len(part) for part in transaction.parts.values())
        for number in sorted(transaction.parts):
            draft.put(StagedKey(name, producer_id, number), None)
        self._forget_producer(producer_id)
        return draft

    def _forget_producer(self, producer_id: ProducerId) -> None:
        held = {
            name: None
            for name in self._groups_of.get(producer_id, ())
            if name in self._world.groups and producer_id in self._world.groups[name].staged
        }
        if held:
            self._groups_of[producer_id] = held
        else:
            self._groups_of.pop(producer_id, None)


def _is_ended(identity: Identity, end: Identity) -> bool:
    return identity.producer_id == end.producer_id and identity.producer_epoch < end.producer_epoch


def _check_name(here: StagedTransaction, request: SendOffsets, tried: str) -> None:
    """What waits for the transaction is told its name: it has to be the right one."""
    if here.transactional_id != request.transactional_id:
        raise invalid(tried, f"{here.identity} is the identity of `{here.transactional_id}`")


def _full(tried: str, what: str, limit_name: str, limit: int) -> TidelogError:
    return exhausted(tried, what, f"TRANSACTIONS_{limit_name}_MAX", limit)
