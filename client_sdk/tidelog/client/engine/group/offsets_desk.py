"""Commits offsets and looks committed ones up, at the group's coordinator.

Owns the order of commits: one request at a time, the oldest first, so that a commit that is sent
again never overtakes a later one. Those that wait travel together, the later offset of a partition
counts. Each goes with the member's epoch of when it was wanted: a partition that was given up and
came back since is not committed by it. It must never decide whether the member may commit.
"""

from collections import deque
from collections.abc import Mapping
from itertools import islice

import msgspec
from msgspec.structs import replace

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.times import AGAIN_NS, FIRST_NS
from tidelog.client.engine.cluster.topics import UNKNOWN_TOPIC_GRACE_MS
from tidelog.client.engine.cluster.tries import Doubt, Reason, saying
from tidelog.client.engine.group.coordinator import CoordinatorDesk, is_elsewhere
from tidelog.client.engine.group.messages import (
    CommitAnswered,
    CommitDone,
    CommittedOffset,
    GroupEffect,
    GroupPartition,
    LookupAnswered,
    Note,
    OffsetsFound,
    OffsetToCommit,
    SendCommit,
    SendLookup,
    Severity,
    Tell,
)
from tidelog.client.engine.group.settings import OFFSETS_PER_REQUEST_MAX, GroupSettings
from tidelog.client.errors import NoAnswerError
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

_NO_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH})


class Commit:
    """One commit of the user's, until every partition of it is settled."""

    __slots__ = (
        "deadline_ns",
        "doubt",
        "failures",
        "left",
        "member_epoch",
        "member_id",
        "number",
        "reason",
    )

    def __init__(
        self,
        number: int,
        offsets: tuple[OffsetToCommit, ...],
        *,
        group: str,
        member_id: str,
        member_epoch: int,
        deadline_ns: int,
    ) -> None:
        self.number = number
        self.left: dict[PartitionKey, OffsetToCommit] = {each.key: each for each in offsets}
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.deadline_ns = deadline_ns
        self.failures: dict[TopicPartition, TidelogError] = {}
        self.reason: TidelogError | None = None
        """Why the last try did not work."""
        self.doubt = Doubt(f"commit offsets of group {group!r}", may_repeat=True)
        """A try that was not answered may have stored them."""

    @property
    def stamp(self) -> tuple[str, int]:
        """Only commits of one member and epoch travel together."""
        return self.member_id, self.member_epoch

    def settle(
        self, key: PartitionKey, result: TidelogError | None, *, is_final: bool = False
    ) -> None:
        """One partition was answered; a retriable refusal leaves it to the next try."""
        if result is not None and result.retriable and not is_final:
            self.reason = result
            self.doubt.note(result)
            return
        offset = self.left.pop(key, None)
        if result is not None and offset is not None:
            self.failures[offset.topic_partition] = result

    def fail(self, error: TidelogError) -> None:
        """Nothing of what is left is stored, as far as anybody knows."""
        self.failures.update((each.topic_partition, error) for each in self.left.values())
        self.left.clear()


class Lookup:
    """One question of the user's side, until every partition is answered."""

    __slots__ = (
        "deadline_ns",
        "failures",
        "is_start",
        "left",
        "number",
        "reason",
        "retry_at_ns",
        "tell_at_ns",
        "undecided_since_ns",
    )

    def __init__(
        self,
        number: int,
        partitions: tuple[GroupPartition, ...],
        *,
        deadline_ns: int | None,
        is_start: bool,
    ) -> None:
        self.number = number
        self.left: dict[PartitionKey, GroupPartition] = {each.key: each for each in partitions}
        self.deadline_ns = deadline_ns
        self.is_start = is_start
        self.failures = 0
        self.retry_at_ns = 0
        self.reason = Reason()
        """Why there is no answer yet: its own tries, and the searches for the coordinator."""
        self.undecided_since_ns: dict[PartitionKey, int] = {}
        """Partitions for which a transaction in progress has sent an offset, and since when the
        coordinator has said so."""
        self.tell_at_ns: int | None = None
        """When the log is told of that next."""


class _CommitsSent(msgspec.Struct, frozen=True):
    request: SendCommit
    commits: list[Commit]
    """Those whose offsets it carries; what was wanted since is not among them."""


class OffsetsDesk:
    """One per consumer with a group."""

    def __init__(
        self, settings: GroupSettings, coordinator: CoordinatorDesk, backoff: Backoff
    ) -> None:
        self.commits: deque[Commit] = deque()
        """In the order in which they were wanted."""
        self.lookups: deque[Lookup] = deque()
        self.commits_sent: _CommitsSent | None = None
        self.lookup_sent: tuple[SendLookup, Lookup] | None = None
        self.has_doubt = False
        """A request was answered as if this were no member."""
        self._unknown_since_ns: dict[bytes, int] = {}
        """Topic ids that the coordinator does not know, and since when it has refused them."""
        self._settings = settings
        self._coordinator = coordinator
        self._backoff = backoff
        self._failures = 0
        self._retry_at_ns = 0
        self._sent = 0
        self._effects: list[GroupEffect] = []

    @property
    def is_coordinator_needed(self) -> bool:
        """Whether anything waits."""
        return bool(self.commits or self.lookups)

    def settle(self, number: int, failures: Mapping[TopicPartition, TidelogError]) -> None:
        """A commit of which nothing is left to be sent."""
        done = CommitDone(number=number, failures=tuple(failures.items()))
        self._effects.append(Tell(news=done))

    def drop_starts(self) -> None:
        """The partitions were lost: nobody waits any more for where to begin."""
        self.lookups = deque(each for each in self.lookups if not each.is_start)

    def fail_commits(self, member_id: str, error: TidelogError) -> None:
        """The membership under which these were wanted is over."""
        for commit in self.commits:
            if commit.member_id == member_id:
                commit.fail(error)
        self._tell_settled()

    # Answers.

    def on_commit(self, message: CommitAnswered, now_ns: int) -> None:
        """What became of the request."""
        if self.commits_sent is None or self.commits_sent.request.number != message.number:
            return
        sent, self.commits_sent = self.commits_sent, None
        request, error = sent.request, message.error
        results: tuple[TidelogError | None, ...]
        if error is not None:
            self._on_error(request.address, error, now_ns)
            results = (error,) * len(request.offsets)
        else:
            self._coordinator.works()
            results = message.results
        assert len(results) == len(request.offsets), "a result for each offset"
        is_clear = True
        for offset, result in zip(request.offsets, results, strict=True):
            if result is not None and error is None:
                self._on_error(request.address, result, now_ns)
            is_deleted = self._is_deleted(offset, result, now_ns)
            is_clear = is_clear and (result is None or not result.retriable or is_deleted)
            told = _deleted(offset, self._settings.group) if is_deleted else result
            for commit in sent.commits:
                commit.settle(offset.key, told, is_final=is_deleted)
        self._failures = 0 if is_clear else self._failures + 1
        delay_ns = 0 if is_clear else self._backoff.delay_ns(self._failures)
        self._retry_at_ns = now_ns + max(delay_ns, message.throttle_ms * NS_PER_MS)
        self._tell_settled()

    def _is_deleted(self, offset: OffsetToCommit, result: TidelogError | None, now_ns: int) -> bool:
        """Whether the topic is gone, and not only too new for the coordinator's metadata.

        Both are refused alike. A coordinator whose metadata lag catches up within the grace;
        waiting any longer would hold up commit() and close() until their deadlines, for an offset
        that means nothing any more.
        """
        topic_id = offset.topic_id
        if result is None or result.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            self._unknown_since_ns.pop(topic_id, None)
            return False
        since_ns = self._unknown_since_ns.setdefault(topic_id, now_ns)
        return now_ns - since_ns >= UNKNOWN_TOPIC_GRACE_MS * NS_PER_MS

    def on_lookup(self, message: LookupAnswered, now_ns: int) -> None:
        """What the coordinator knows."""
        if self.lookup_sent is None or self.lookup_sent[0].number != message.number:
            return
        sent, lookup = self.lookup_sent
        self.lookup_sent = None
        if lookup not in self.lookups:
            return
        error = message.error
        if error is not None:
            self._on_error(sent.address, error, now_ns)
            is_doubt = lookup.is_start and error.code in _NO_MEMBER
            if not error.retriable and not is_doubt:
                self._end(lookup, error)
                return
            lookup.reason.note(error)
        else:
            self._coordinator.works()
            self._take(lookup, message.offsets, now_ns)
        if lookup.left:
            lookup.failures += 1
            lookup.retry_at_ns = now_ns + self._backoff.delay_ns(lookup.failures)

    def on_no_coordinator(self, error: TidelogError) -> None:
        """A search has failed: nobody can be asked what was committed."""
        for lookup in self.lookups:
            lookup.reason.note(error)

    def _take(self, lookup: Lookup, offsets: tuple[CommittedOffset, ...], now_ns: int) -> None:
        found: list[CommittedOffset] = []
        for each in offsets:
            given_up = self._given_up(lookup, each, now_ns)
            if given_up is None and each.error is not None and each.error.retriable:
                lookup.reason.note(each.error)
                continue
            asked = lookup.left.pop(each.key, None)
            if asked is not None:
                found.append(given_up or each)
        if not lookup.left:
            self.lookups.remove(lookup)
        if found or not lookup.left:
            news = OffsetsFound(number=lookup.number, offsets=tuple(found), is_last=not lookup.left)
            self._effects.append(Tell(news=news))

    def _given_up(
        self, lookup: Lookup, found: CommittedOffset, now_ns: int
    ) -> CommittedOffset | None:
        """A partition is asked for again while a transaction holds it, but not for ever: what to
        say then; None: go on. A lookup of the user's ends by its own deadline; one that says where
        to begin has none."""
        why = found.error
        if why is None or why.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return None
        since_ns = lookup.undecided_since_ns.setdefault(found.key, now_ns)
        waited_ms = (now_ns - since_ns) // NS_PER_MS
        self._tell_undecided(lookup, found, why, now_ns)
        if lookup.deadline_ns is not None or waited_ms < self._settings.default_api_timeout_ms:
            return None
        error = TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=self._of_group("find where to begin with the partitions"),
            happened=_not_in_time(why),
            hint=f"poll() again to wait for longer. {why.hint}",
        )
        return replace(found, error=error)

    def _tell_undecided(
        self, lookup: Lookup, found: CommittedOffset, why: TidelogError, now_ns: int
    ) -> None:
        if lookup.tell_at_ns is None:
            lookup.tell_at_ns = now_ns + FIRST_NS
        if now_ns < lookup.tell_at_ns:
            return
        lookup.tell_at_ns = now_ns + AGAIN_NS
        waited_s = (now_ns - lookup.undecided_since_ns[found.key]) / 1e9
        name = found.topic_partition
        text = (
            f"waiting: {name.topic}-{name.partition} is not begun by group "
            f"{self._settings.group!r} for {waited_s:.0f} s: {why.happened}; it is asked again"
        )
        self._effects.append(Note(severity=Severity.WARNING, text=text))

    def _on_error(self, address: str, error: TidelogError, now_ns: int) -> None:
        if is_elsewhere(error):
            self._coordinator.forget(address, error, now_ns)
        if error.code in _NO_MEMBER:
            self.has_doubt = True

    # Time.

    def tick(self, now_ns: int, member_id: str, member_epoch: int) -> list[GroupEffect]:
        """Send what can be sent, give up what took too long; no member id: a simple reader."""
        self._expire(now_ns)
        address = self._coordinator.address
        if address is not None:
            if self.commits_sent is None and self.commits and now_ns >= self._retry_at_ns:
                self._send_commits(address, now_ns)
            if self.lookup_sent is None:
                self._send_lookup(address, now_ns, member_id, member_epoch)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do if no message comes."""
        carried = self.commits_sent.commits if self.commits_sent is not None else []
        deadlines = [each.deadline_ns for each in self.commits if each not in carried]
        deadlines += [each.deadline_ns for each in self.lookups if each.deadline_ns is not None]
        if self._coordinator.address is not None:
            if self.commits and self.commits_sent is None:
                deadlines.append(self._retry_at_ns)
            if self.lookup_sent is None:
                deadlines += [each.retry_at_ns for each in self.lookups]
        return min(deadlines, default=None)

    def _send_commits(self, address: str, now_ns: int) -> None:
        """The oldest, and with it those behind it of the same stamp."""
        assert self.commits_sent is None, "a commit is in flight already"
        first = self.commits[0]
        # One commit of more partitions than fit into a request goes in parts.
        merged = dict(islice(first.left.items(), OFFSETS_PER_REQUEST_MAX))
        carried = [first]
        for commit in islice(self.commits, 1, None):
            if commit.stamp != first.stamp or len(merged) >= OFFSETS_PER_REQUEST_MAX:
                break
            if len(merged.keys() | commit.left.keys()) > OFFSETS_PER_REQUEST_MAX:
                break
            merged.update(commit.left)
            carried.append(commit)
        self._sent += 1
        until_ns = max(commit.deadline_ns for commit in carried)
        request = SendCommit(
            number=self._sent,
            address=address,
            timeout_ms=self._timeout_ms(until_ns, now_ns),
            member_id=first.member_id,
            member_epoch=first.member_epoch,
            offsets=tuple(merged.values()),
        )
        self.commits_sent = _CommitsSent(request, carried)
        self._effects.append(request)

    def _send_lookup(self, address: str, now_ns: int, member_id: str, member_epoch: int) -> None:
        due = (each for each in self.lookups if now_ns >= each.retry_at_ns)
        lookup = next(due, None)
        if lookup is None:
            return
        self._sent += 1
        request = SendLookup(
            number=self._sent,
            address=address,
            timeout_ms=self._timeout_ms(lookup.deadline_ns, now_ns),
            member_id=member_id if lookup.is_start else "",
            member_epoch=member_epoch if lookup.is_start and member_id else -1,
            partitions=tuple(islice(lookup.left.values(), OFFSETS_PER_REQUEST_MAX)),
            # As Kafka's consumers since 2.5: to go on from an offset that a transaction is about
            # to replace is to process records twice.
            require_stable=True,
        )
        self.lookup_sent = request, lookup
        self._effects.append(request)

    def _timeout_ms(self, deadline_ns: int | None, now_ns: int) -> int:
        if deadline_ns is None:
            return self._settings.request_timeout_ms
        left_ms = max(1, (deadline_ns - now_ns) // NS_PER_MS)
        return min(self._settings.request_timeout_ms, left_ms)

    def _expire(self, now_ns: int) -> None:
        carried = self.commits_sent.commits if self.commits_sent is not None else []
        for commit in self.commits:
            # What is on its way is answered by its own timeout, and may be stored until then.
            if now_ns >= commit.deadline_ns and commit not in carried:
                error = self._too_late("commit offsets", commit.reason)
                commit.fail(commit.doubt.told(error))
        self._tell_settled()
        for lookup in list(self.lookups):
            if lookup.deadline_ns is not None and now_ns >= lookup.deadline_ns:
                self._end(lookup, self._unanswered(lookup))

    def _unanswered(self, lookup: Lookup) -> TidelogError:
        """As every call that only reads: what was answered last, and that silence followed."""
        reason, before = lookup.reason, self._coordinator.reason.told
        if reason.told is None and before is not None:
            reason.note(before)
        silence = self._silence(lookup)
        if silence is not None:
            reason.note(silence)
        why = reason.told
        tried = "look committed offsets up"
        if why is None:
            return self._too_late(tried, None)
        return saying(why, tried=self._of_group(tried), happened=_not_in_time(why))

    def _silence(self, lookup: Lookup) -> NoAnswerError | None:
        """Of what is on its way for this lookup while its time is over; None: nothing is."""
        if self.lookup_sent is not None and self.lookup_sent[1] is lookup:
            sent = self.lookup_sent[0]
            happened = f"{sent.address}: no answer within {sent.timeout_ms} ms"
        elif self._coordinator.is_asking:
            happened = "nobody has told where the coordinator is"
        else:
            return None
        return NoAnswerError(ErrorCode.DEADLINE_EXCEEDED, tried="ask", happened=happened)

    def _too_late(self, tried: str, reason: TidelogError | None) -> TidelogError:
        why = reason or self._coordinator.reason.told
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=self._of_group(tried),
            happened="the coordinator did not answer in time" if why is None else _not_in_time(why),
        )

    def _of_group(self, tried: str) -> str:
        return f"{tried} of group {self._settings.group!r}"

    def _end(self, lookup: Lookup, error: TidelogError) -> None:
        self.lookups.remove(lookup)
        self._effects.append(Tell(news=OffsetsFound(number=lookup.number, error=error)))

    def _tell_settled(self) -> None:
        for commit in [each for each in self.commits if not each.left]:
            self.commits.remove(commit)
            self.settle(commit.number, commit.failures)


def _deleted(offset: OffsetToCommit, group: str) -> TidelogError:
    name = offset.topic_partition
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        tried=f"commit {name.topic}-{name.partition} for group {group!r}",
        happened=f"topic {name.topic!r} was deleted, and what was committed for it is gone",
        hint="stop reading it: unsubscribe, or subscribe to other topics",
    )


def _not_in_time(why: TidelogError) -> str:
    return f"it did not work within default_api_timeout_ms: {why.happened}"
