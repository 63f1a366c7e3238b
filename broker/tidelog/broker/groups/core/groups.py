"""The coordinator of the groups of one partition of `__groups`. Pure.

Owns the dispatch of what comes in, and the order of what goes out: records before the answers that
show them, answers only when everything is committed that they show. Its theory of operation stands
at the head of the package.
"""

from collections.abc import Iterator
from typing import Final, assert_never

import msgspec

from tidelog.broker.groups.core import admin, membership, offsets
from tidelog.broker.groups.core.staging import Staging, identity_of
from tidelog.broker.groups.core.upkeep import Upkeep
from tidelog.broker.groups.state import replay
from tidelog.broker.groups.state.answers import EndStagedAnswer, Response
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import Group
from tidelog.broker.groups.state.invariants import check
from tidelog.broker.groups.state.messages import (
    AlterOffsets,
    Answer,
    AnyRequest,
    AppendCommitted,
    AppendFailed,
    AppendRecords,
    AppendRefused,
    Asked,
    BrokersChanged,
    Caller,
    Completion,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    Effect,
    EndStaged,
    GroupTopic,
    ListGroups,
    LoadEnded,
    Message,
    ReloadNeeded,
    RemoveMembers,
    SettingsChanged,
    Tick,
    TopicsChanged,
    TransactionVerified,
    VerifyTransaction,
)
from tidelog.broker.groups.state.notes import Notes
from tidelog.broker.groups.state.pending import Pending
from tidelog.broker.groups.state.records import StagedKey, decode_record
from tidelog.broker.groups.state.refusals import LOADING
from tidelog.broker.groups.state.world import World
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import (
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    SendOffsets,
    SendOffsetsAnswer,
    StoredOffset,
    Subscription,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A core in numbers."""

    is_loaded: bool
    is_failed: bool
    groups: int
    members: int
    offsets: int
    staged_transactions: int
    staged_offsets: int
    appends_in_flight: int
    answers_waiting: int


class GroupCoordinatorCore:
    """`apply` and `apply_marker` while loading, then `step`, `tick`, `completed`."""

    def __init__(self) -> None:
        self._world: Final = World()
        self._pending: Final = Pending()
        self._upkeep: Final = Upkeep(self._world)
        self._staging: Final = Staging(self._world)
        self._is_loaded = False
        self._are_topics_known = False
        self._failure: TidelogError | None = None

    @property
    def groups(self) -> dict[str, Group]:
        """To look at, not to change."""
        return self._world.groups

    @property
    def notes(self) -> Notes:
        """What it noticed: for metrics and the node's log."""
        return self._world.notes

    def committed_offsets(self) -> Iterator[tuple[str, PartitionKey, StoredOffset]]:
        """All that is stored, in no order that means anything: for metrics of lag."""
        for name, group in self._world.groups.items():
            for key, stored in group.offsets.items():
                yield name, key, stored

    def resolve(self, subscription: Subscription) -> tuple[GroupTopic, ...]:
        """The topics that a subscription means at this moment."""
        return self._world.topics.resolve(subscription)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Replay a stored record. STORAGE_CORRUPT or UNSUPPORTED_VERSION stop the load."""
        assert not self._is_loaded, "a record is replayed while loading, never later"
        record = decode_record(key, value)
        if record is not None:
            replay.apply(self._world.groups, *record)
            if isinstance(record[0], StagedKey):
                self._staging.note_loaded(record[0])

    def apply_marker(self, end: Identity, decision: Decision) -> None:
        """Replay the end of a transaction, in its place among the records."""
        assert not self._is_loaded, "a marker is replayed while loading, never later"
        self._staging.on_marker_loaded(end, decision)

    def step(self, message: Message) -> list[Effect]:
        """Take one message."""
        if self._failure is not None:
            return self._refuse(message, self._failure)
        match message:
            case SettingsChanged():
                self._world.defaults = message.defaults
                self._world.by_group = dict(message.by_group)
                return []
            case LoadEnded():
                return self._on_load_ended(message)
            case TopicsChanged():
                assert self._is_loaded, "topics come once everything is loaded"
                self._world.see_time(message.now_ms, message.wall_ms)
                self._are_topics_known = True
                effects = self._append_all(self._upkeep.on_topics(message))
                return effects + self._append_all(self._staging.fold_loaded())
            case BrokersChanged():
                assert self._are_topics_known, "brokers come behind the topics"
                self._world.see_time(message.now_ms, message.wall_ms)
                return self._append_all(self._upkeep.on_brokers(message))
            case TransactionVerified():
                return self._on_verified(message)
            case Asked():
                return self._on_asked(message)
            case _:
                assert_never(message)

    def _on_load_ended(self, message: LoadEnded) -> list[Effect]:
        assert not self._is_loaded, "a core is loaded once"
        self._is_loaded = True
        self._world.see_time(message.now_ms, message.wall_ms)
        self._upkeep.on_loaded()
        self._staging.on_loaded()
        check(self._world.groups)
        return []

    def _refuse(self, message: Message, error: TidelogError) -> list[Effect]:
        if not isinstance(message, Asked):
            return []
        return [Answer(request_id=message.request_id, result=error)]

    def _on_asked(self, asked: Asked) -> list[Effect]:
        if not (self._is_loaded and self._are_topics_known):
            return self._refuse(asked, LOADING)
        self._world.see_time(asked.now_ms, asked.wall_ms)
        request = asked.request
        if isinstance(request, ListGroups):
            return self._answer(None, asked.request_id, admin.list_groups(self._world))
        if isinstance(request, EndStaged):
            self._staging.on_end(asked, request)
            return self._end_staged()
        if isinstance(request, SendOffsets):
            return self._on_send(asked, request)
        if isinstance(request, Heartbeat):
            quick = membership.quick_answer(self._world, request, asked.caller)
            if quick is not None:
                return self._answer(request.group, asked.request_id, quick)
        draft = Draft(self._world.groups, request.group)
        result: Response | TidelogError
        try:
            result = self._dispatch(draft, request, asked.caller)
        except TidelogError as refusal:
            result = refusal
        effects: list[Effect] = self._append(draft)
        assert not (effects and isinstance(result, TidelogError)), f"{result} changed something"
        draft.forget_if_nothing()
        return effects + self._answer(request.group, asked.request_id, result)

    def _dispatch(self, draft: Draft, request: AnyRequest, caller: Caller) -> Response:
        world = self._world
        match request:
            case Heartbeat():
                return membership.on_heartbeat(world, draft, request, caller)
            case CommitOffsets():
                return offsets.on_commit(world, draft, request)
            case FetchOffsets():
                return offsets.on_fetch(world, draft, request)
            case DescribeGroup():
                return admin.on_describe(world, draft, request)
            case AlterOffsets():
                return offsets.on_alter(world, draft, request)
            case DeleteOffsets():
                return offsets.on_delete(world, draft, request)
            case DeleteGroup():
                return admin.on_delete_group(world, draft, request)
            case RemoveMembers():
                return admin.on_remove_members(world, draft, request)
            case ListGroups() | SendOffsets() | EndStaged():
                raise AssertionError(f"{type(request).__name__} is taken by itself")
            case _:
                assert_never(request)

    def _on_send(self, asked: Asked, request: SendOffsets) -> list[Effect]:
        try:
            self._staging.begin(asked, request)
        except TidelogError as refusal:
            return self._answer(request.group, asked.request_id, refusal)
        if not request.offsets:
            self._staging.take_verified(asked.request_id)
            return self._answer(request.group, asked.request_id, SendOffsetsAnswer())
        return [
            VerifyTransaction(
                request_id=asked.request_id,
                transactional_id=request.transactional_id,
                identity=identity_of(request),
            )
        ]

    def _on_verified(self, message: TransactionVerified) -> list[Effect]:
        """The member is checked again, and what it sends is staged in the step of its append."""
        asked = self._staging.take_verified(message.request_id)
        if asked is None:
            return []
        request = asked.request
        assert isinstance(request, SendOffsets), "only offsets are verified"
        self._world.see_time(message.now_ms, message.wall_ms)
        if message.error is not None:
            return self._answer(request.group, asked.request_id, message.error)
        draft = Draft(self._world.groups, request.group)
        try:
            key = self._staging.stage(draft, request)
        except TidelogError as refusal:
            draft.forget_if_nothing()
            return self._answer(request.group, asked.request_id, refusal)
        effects = self._append(draft, identity_of(request))
        token = self._pending.last_of(request.group)
        self._staging.note_sent(token, key, request, asked.request_id)
        return effects + self._answer(request.group, asked.request_id, SendOffsetsAnswer())

    def _end_staged(self) -> list[Effect]:
        """Fold what markers have decided, once nothing of it is on its way any more."""
        effects: list[Effect] = []
        for request_id, drafts in self._staging.take_ends():
            effects += self._append_all(drafts)
            # Also behind the fold of one that came before: a marker that comes again waits too.
            effects += self._answer(None, request_id, EndStagedAnswer())
        return effects

    def _append(self, draft: Draft, producer: Identity | None = None) -> list[Effect]:
        return [
            AppendRecords(token=self._pending.begin(draft.name), records=records, producer=producer)
            for records in draft.appends()
        ]

    def _append_all(self, drafts: list[Draft]) -> list[Effect]:
        effects: list[Effect] = []
        for draft in drafts:
            effects += self._append(draft)
            draft.forget_if_nothing()
        return effects

    def _answer(
        self, group: str | None, request_id: int, result: Response | TidelogError
    ) -> list[Effect]:
        """Now, or once the last append is committed of which it may show something."""
        answer = Answer(request_id=request_id, result=result)
        token = self._pending.last_of(group)
        if token == 0:
            return [answer]
        self._pending.wait(token, answer)
        return []

    def tick(self, tick: Tick) -> list[Effect]:
        """Sessions, rebalance timeouts, computations that were put off, expiry."""
        if self._failure is not None or not self._are_topics_known:
            return []
        self._world.see_time(tick.now_ms, tick.wall_ms)
        return self._append_all(self._upkeep.on_tick(may_expire=tick.may_expire))

    def next_deadline_ms(self) -> int:
        """Monotonic: when `tick` is due. It may come earlier; then it finds nothing to do."""
        return self._upkeep.next_deadline_ms()

    def completed(self, completion: Completion) -> list[Effect]:
        """What came of an append."""
        if self._failure is not None:
            return []
        match completion:
            case AppendCommitted():
                self._staging.on_committed(completion.token)
                return [*self._pending.on_committed(completion.token), *self._end_staged()]
            case AppendRefused():
                token, error = completion.token, completion.error
                request_id = self._staging.on_refused(token)
                answers = self._pending.on_refused(token, request_id, error)
                return [*answers, *self._end_staged()]
            case AppendFailed():
                error = self._failure = completion.error
                refused = self._pending.refuse_all(error)
                refused += [
                    Answer(request_id=each, result=error)
                    for each in self._staging.take_all_verifying()
                ]
                return [*refused, ReloadNeeded(error=error)]
            case _:
                assert_never(completion)

    def describe(self) -> Description:
        """For operators and tests."""
        groups = self._world.groups.values()
        return Description(
            is_loaded=self._is_loaded and self._are_topics_known,
            is_failed=self._failure is not None,
            groups=len(groups),
            members=sum(len(group.members) for group in groups),
            offsets=sum(len(group.offsets) for group in groups),
            staged_transactions=self._staging.transaction_count,
            staged_offsets=self._staging.offset_count,
            appends_in_flight=self._pending.append_count,
            answers_waiting=self._pending.answer_count,
        )
