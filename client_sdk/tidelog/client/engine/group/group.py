"""A consumer's part in its group: membership, commits and lookups behind one `step`.

Owns who may commit what: a member what it reads, a reader that assigns partitions to itself
whatever it likes. It must never send a commit for a partition that the user's side has not, or
that was wanted before the membership ended.
"""

from typing import assert_never

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS
from tidelog.client.engine.group.coordinator import CoordinatorDesk
from tidelog.client.engine.group.membership import Membership, Stage
from tidelog.client.engine.group.messages import (
    CommitAnswered,
    CommitWanted,
    CoordinatorFailed,
    CoordinatorFound,
    GroupEffect,
    GroupMessage,
    HeartbeatAnswered,
    LeaveWanted,
    LookupAnswered,
    LookupWanted,
    Note,
    OffsetsFound,
    OffsetToCommit,
    Reconciled,
    Severity,
    Subscribed,
    Tell,
)
from tidelog.client.engine.group.offsets_desk import Commit, Lookup, OffsetsDesk
from tidelog.client.engine.group.settings import (
    COMMITS_WAITING_MAX,
    LOOKUPS_WAITING_MAX,
    GroupSettings,
)
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

NO_EPOCH = -1


class GroupCore:
    """Messages in, effects out; one thread or task calls it."""

    def __init__(self, settings: GroupSettings, backoff: Backoff) -> None:
        self.settings = settings
        self.coordinator = CoordinatorDesk(backoff)
        self.membership = Membership(settings, self.coordinator, backoff)
        self.desk = OffsetsDesk(settings, self.coordinator, backoff)
        self._effects: list[GroupEffect] = []
        self._missing_told_at_ns: int | None = None

    def note_poll(self, polled_at_ns: int | None) -> None:
        """When the user's last poll ended; None: he is inside one."""
        self.membership.polled_at_ns = polled_at_ns

    def step(self, message: GroupMessage, now_ns: int) -> list[GroupEffect]:
        """One message; the effects are to be performed in their order."""
        match message:
            case Subscribed():
                self.membership.subscribe(message.subscription, now_ns)
                if message.subscription.is_empty:
                    self.desk.drop_starts()
            case Reconciled():
                self.membership.on_reconciled(message.number, now_ns)
            case CommitWanted():
                self._on_commit_wanted(message)
            case LookupWanted():
                self._on_lookup_wanted(message)
            case LeaveWanted():
                self.desk.drop_starts()
                self.membership.leave(message.deadline_ns, now_ns)
            case CoordinatorFound():
                self.coordinator.on_found(message.address)
            case CoordinatorFailed():
                self.coordinator.on_failed(message.error, now_ns)
                self.desk.on_no_coordinator(message.error)
            case HeartbeatAnswered():
                self._on_heartbeat(message, now_ns)
            case CommitAnswered():
                self.desk.on_commit(message, now_ns)
            case LookupAnswered():
                self.desk.on_lookup(message, now_ns)
            case _:
                assert_never(message)
        return self.tick(now_ns)

    def tick(self, now_ns: int) -> list[GroupEffect]:
        """Time passed, or something changed: send what is due."""
        membership, desk = self.membership, self.desk
        if desk.has_doubt:
            desk.has_doubt = False
            membership.suspect(now_ns)
        was_member = membership.stage is Stage.JOINED
        told = membership.tick(now_ns, may_depart=not desk.commits)
        if was_member and membership.stage is not Stage.JOINED:
            self._on_stopped()
        is_needed = membership.is_coordinator_needed or desk.is_coordinator_needed
        self._tell_missing(now_ns, is_needed=is_needed)
        search = self.coordinator.tick(now_ns) if is_needed else None
        member_id, epoch = self._stamp
        effects = [*self._effects, *desk.tick(now_ns, member_id, epoch), *told]
        self._effects.clear()
        if search is not None:
            effects.append(search)
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes; None: never."""
        deadlines = [self.membership.next_deadline_ns(), self.desk.next_deadline_ns()]
        if self.membership.is_coordinator_needed or self.desk.is_coordinator_needed:
            deadlines += [self.coordinator.next_deadline_ns(), self._tell_at_ns]
        return min((each for each in deadlines if each is not None), default=None)

    # Who may commit.

    @property
    def _stamp(self) -> tuple[str, int]:
        """Member id and epoch; a reader outside has neither."""
        if self.membership.subscription.is_empty:
            return "", NO_EPOCH
        return self.settings.member_id, self.membership.member_epoch

    def _on_commit_wanted(self, message: CommitWanted) -> None:
        if len(self.desk.commits) >= COMMITS_WAITING_MAX:
            self._settle(message, self._too_many("commits", COMMITS_WAITING_MAX))
            return
        member_id, epoch = self._stamp
        failures: dict[TopicPartition, TidelogError] = {}
        if member_id:
            reading = self.membership.reading
            refused = [each for each in message.offsets if each.key not in reading]
            failures = {each.topic_partition: self._not_owned(each) for each in refused}
        wanted = tuple(each for each in message.offsets if each.topic_partition not in failures)
        if not wanted:
            self.desk.settle(message.number, failures)
            return
        commit = Commit(
            message.number,
            wanted,
            group=self.settings.group,
            member_id=member_id,
            member_epoch=epoch,
            deadline_ns=message.deadline_ns,
        )
        commit.failures = failures
        self.desk.commits.append(commit)

    def _on_lookup_wanted(self, message: LookupWanted) -> None:
        if len(self.desk.lookups) >= LOOKUPS_WAITING_MAX:
            error = self._too_many("lookups", LOOKUPS_WAITING_MAX)
            self._effects.append(Tell(news=OffsetsFound(number=message.number, error=error)))
            return
        lookup = Lookup(
            message.number,
            message.partitions,
            deadline_ns=message.deadline_ns,
            is_start=message.is_start,
        )
        self.desk.lookups.append(lookup)

    def _settle(self, message: CommitWanted, error: TidelogError) -> None:
        failures = {each.topic_partition: error for each in message.offsets}
        self.desk.settle(message.number, failures)

    def _not_owned(self, offset: OffsetToCommit) -> TidelogError:
        name, loss = offset.topic_partition, self.membership.loss
        if self.membership.stage is not Stage.JOINED and loss is not None:
            return loss
        return TidelogError(
            ErrorCode.STALE_ASSIGNMENT,
            tried=f"commit {name.topic}-{name.partition} for group {self.settings.group!r}",
            happened="the partition is not assigned to this member",
        )

    def _too_many(self, what: str, limit: int) -> TidelogError:
        return TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=f"take a request for group {self.settings.group!r}",
            happened=f"{limit} {what} wait for the coordinator already",
            hint="wait for some of them, for instance with commit() instead of commit_async()",
        )

    # The coordinator.

    def _on_heartbeat(self, message: HeartbeatAnswered, now_ns: int) -> None:
        was_member = self.membership.stage is Stage.JOINED
        self.membership.on_answer(message, now_ns)
        if was_member and self.membership.stage is not Stage.JOINED:
            self._on_stopped()

    def _on_stopped(self) -> None:
        """The membership ended: what was wanted under it cannot be stored any more."""
        loss = self.membership.loss
        if self.membership.stage is Stage.STOPPED and loss is not None:
            self.desk.fail_commits(self.settings.member_id, loss)
            self.desk.drop_starts()

    @property
    def _tell_at_ns(self) -> int | None:
        """When the log is to be told that nothing works; None: something does."""
        since_ns = self.coordinator.failing_since_ns
        if since_ns is None:
            return None
        told_at_ns = self._missing_told_at_ns
        return since_ns + FIRST_NS if told_at_ns is None else told_at_ns + AGAIN_NS

    def _tell_missing(self, now_ns: int, *, is_needed: bool) -> None:
        """A line while the coordinator is missing or does not answer, and one when that is over."""
        desk, group = self.coordinator, self.settings.group
        if not is_needed:
            desk.failing_since_ns = None
        since_ns, tell_at_ns = desk.failing_since_ns, self._tell_at_ns
        if since_ns is None:
            if self._missing_told_at_ns is not None and is_needed:
                text = f"group {group!r}: the coordinator answers again"
                self._effects.append(Note(severity=Severity.INFO, text=text))
            self._missing_told_at_ns = None
        elif tell_at_ns is not None and now_ns >= tell_at_ns:
            self._missing_told_at_ns = now_ns
            waited_s = (now_ns - since_ns) / 1e9
            where = "" if desk.address is None else f" at {desk.address}"
            text = (
                f"waiting: group {group!r} has no coordinator that answers{where}, "
                f"for {waited_s:.0f} s: {desk.reason.told}; the search goes on"
            )
            self._effects.append(Note(severity=Severity.WARNING, text=text))
