"""What one stream of the easy path does. Pure; the package's head tells the theory.

Owns the partitions of the stream, credit and deadlines. It must never send a record of a partition
that it does not own, nor give one up while the client may still acknowledge what it was sent.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final

from tidelog.broker.groups.subscription.core import invariants, limits
from tidelog.broker.groups.subscription.core.commits import (
    NEVER_MS,
    Commits,
    Refusal,
    Waiting,
    deleted,
    silent,
    stale,
)
from tidelog.broker.groups.subscription.core.membership import Membership
from tidelog.broker.groups.subscription.core.messages import (
    Begin,
    Bounds,
    ChangeReads,
    Effect,
    EndStream,
    FindPositions,
    Position,
    SendAcknowledged,
    SendAssignment,
    SendCommit,
    SendHeartbeat,
    SendRecords,
    StartAt,
)
from tidelog.broker.groups.subscription.core.partition import Partition
from tidelog.wire.batch import DecodedRecord
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_OFFSET, Offset, PartitionKey, TopicId
from tidelog.wire.refusals import invalid

_LOST: Final = (ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH)


class Subscription:
    """Each method is one input; what it returns is to be done in that order."""

    def __init__(self, begin: Begin, member_id: str, now_ms: int) -> None:
        self._begin: Final = begin
        self._member = Membership(begin, member_id, now_ms) if begin.group else None
        self._commits = Commits(begin.group, member_id)
        self._partitions: dict[PartitionKey, Partition] = {}
        """Owned, those to be given up included; whose turn it is stands first.

        A read takes them in this order and may have no room for all: one that was read goes behind
        the others as soon as all that it brought is sent.
        """
        self._credit = begin.credit_records
        self._find_due_ms = NEVER_MS
        self._ready_due_ms = now_ms + limits.NOT_READY_MS
        """Until when the client has to be told what it reads."""
        self._missing: TidelogError | None = None
        """Why it could not be told so far."""
        self._has_answer = False
        """It is known which partitions there are, be it none."""
        self._announced: dict[PartitionKey, Position] | None = None
        """What the client was told last; None: nothing yet."""
        self._was_idle = False
        self._deleted: dict[str, None] = {}
        """Names of topics that were deleted under the stream and not made again, newest last."""
        self._is_finishing = False
        """The client says nothing more: what it acknowledged is stored, nothing more is sent."""
        self._is_over = False

    # -- what is to be read ----------------------------------------------------------------------

    @property
    def isolation(self) -> IsolationLevel:
        """Which records the client may see."""
        return self._begin.isolation

    @property
    def may_read(self) -> bool:
        """Whether a read may begin: what it brings can be sent, or buffered."""
        buffered = sum(each.buffered_bytes for each in self._partitions.values())
        return self._credit > 0 and buffered < limits.BUFFER_BYTES_MAX

    def readable(self) -> dict[PartitionKey, int]:
        """From where which partitions are read; a read from elsewhere has become void."""
        if self._is_over or self._is_finishing:
            return {}
        return {
            key: each.next_read
            for key, each in self._partitions.items()
            if each.is_ready and not each.is_leaving and not each.buffer
        }

    def finish(self) -> list[Effect]:
        """The client has ended its sending: it could acknowledge nothing more."""
        self._is_finishing = True
        return [ChangeReads()]

    @property
    def is_settled(self) -> bool:
        """Whether no acknowledgement waits to be stored."""
        return self._is_over or not self._commits

    def departure(self) -> Heartbeat | None:
        """What to tell the coordinator at the end; None: it knows of nothing."""
        return None if self._member is None else self._member.departure()

    def next_deadline_ms(self) -> int:
        """When `tick` is due."""
        due = min(self._find_due_ms, self._commits.next_deadline_ms(), self._client_due_ms())
        due = min(due, self._ready_due_ms)
        return due if self._member is None else min(due, self._member.next_deadline_ms())

    def tick(self, now_ms: int) -> list[Effect]:
        """Heartbeats, tries again, a client that takes too long."""
        if self._is_over:
            return []
        if now_ms >= self._client_due_ms():
            return self._end(self._too_slow())
        waiting = len(self._commits)
        effects: list[Effect] = list(self._commits.take_late(now_ms))
        if len(self._commits) < waiting and not all(
            each.is_ready for each in self._partitions.values()
        ):
            # One of them may have said where reading begins: nobody else would ask about it again.
            self._find_due_ms = min(self._find_due_ms, now_ms + limits.RETRY_MS)
        if now_ms >= self._ready_due_ms:
            return effects + self._end(self._not_ready())
        member = self._member
        if member is not None and member.is_over(now_ms):
            effects += self._lose(now_ms, silent)
        if member is not None and member.is_due(now_ms):
            effects.append(SendHeartbeat(member.heartbeat(self._partitions, now_ms)))
        if now_ms >= self._find_due_ms:
            effects += self._find()
        return effects + self._commit(now_ms)

    # -- the group -------------------------------------------------------------------------------

    def on_heartbeat(
        self, sent: Heartbeat, outcome: HeartbeatAnswer | TidelogError, now_ms: int
    ) -> list[Effect]:
        """The coordinator has answered, or could not be asked."""
        member = self._member
        assert member is not None, "without a group there are no heartbeats"
        if isinstance(outcome, TidelogError):
            member.fail(now_ms)
            if outcome.code in _LOST:
                return self._lose(now_ms) + self.tick(now_ms)
            self._missing = outcome
            return [] if outcome.retriable else self._end(outcome)
        if sent.member_epoch != member.epoch:
            # It was lost while this one was under way.
            member.fail(now_ms)
            return []
        member.take(outcome, now_ms)
        if member.is_over(now_ms):
            # The answer took longer than the session that it tells of.
            return self._lose(now_ms, silent) + self.tick(now_ms)
        if outcome.assignment is None:
            return self._announce() + self._commit(now_ms)
        self._has_answer = True
        wanted = {each.key: each.topic_name for each in outcome.assignment}
        effects = self._assign(wanted, now_ms) + self._announce() + self._commit(now_ms)
        # Rare enough for production: what is read and committed from now on stands on it.
        invariants.check(self)
        return effects

    def on_topics(self, partitions: Mapping[PartitionKey, str], now_ms: int) -> list[Effect]:
        """Without a group: all partitions of the topics, with their names."""
        assert self._member is None, "a member is given its partitions"
        self._has_answer = True
        effects = self._assign(partitions, now_ms) + self._announce()
        invariants.check(self)
        return effects

    def _assign(self, wanted: Mapping[PartitionKey, str], now_ms: int) -> list[Effect]:
        for key, topic in wanted.items():
            partition = self._partitions.get(key)
            if partition is None:
                self._deleted.pop(topic, None)
                self._partitions[key] = Partition(key=key, topic=topic)
                self._find_due_ms = now_ms
            elif partition.is_leaving:
                # It stays after all; what was read ahead of the client is read again.
                partition.is_leaving = False
                partition.next_read = partition.sent_end
        for key, partition in list(self._partitions.items()):
            if key not in wanted and not partition.is_leaving:
                partition.stop()
        self._give_up_done(now_ms)
        effects: list[Effect] = [ChangeReads()]
        return effects + (self._find() if now_ms >= self._find_due_ms else [])

    def on_deleted(self, living: Container[TopicId], now_ms: int) -> list[Effect]:
        """These topics are there; what was read of others cannot be acknowledged any more."""
        gone = {key: each for key, each in self._partitions.items() if key.topic_id not in living}
        for key, partition in gone.items():
            del self._partitions[key]
            self._deleted.pop(partition.topic, None)
            self._deleted[partition.topic] = None
            if len(self._deleted) > limits.DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]
        if not gone:
            return []
        self._commits.forget(gone)
        if self._member is not None:
            self._member.hurry(now_ms)
        return [ChangeReads(), *self._announce(), *self._commit(now_ms)]

    def _give_up_done(self, now_ms: int) -> None:
        done = [key for key, each in self._partitions.items() if each.is_leaving and each.is_done]
        for key in done:
            del self._partitions[key]
        if done and self._member is not None:
            self._member.hurry(now_ms)

    def _lose(self, now_ms: int, refusal: Refusal = stale) -> list[Effect]:
        """Nothing is owned any more; what waits for a commit does not count."""
        assert self._member is not None, "only a member can be lost"
        self._member.lose(now_ms)
        self._partitions.clear()
        self._find_due_ms = NEVER_MS
        effects = [*self._commits.refuse_all(refusal), ChangeReads(), *self._announce()]
        self._ready_due_ms, self._missing = now_ms + limits.NOT_READY_MS, None
        invariants.check(self)
        return effects

    def _announce(self) -> list[Effect]:
        """Tell the client what it reads, if that is something else than what it was told."""
        current = {
            key: Position(each.topic, key.partition, each.acknowledged)
            for key, each in sorted(self._partitions.items())
            if each.is_ready and not each.is_leaving
        }
        is_member = self._member is None or self._member.is_member
        is_waiting = len(self._partitions) > 0 and not current
        if is_member and self._has_answer and not is_waiting:
            self._ready_due_ms = NEVER_MS
        is_idle = self._member is not None and self._member.is_idle
        before = self._announced
        if before is None and (not self._has_answer or is_waiting):
            return []
        if before is not None and before.keys() == current.keys() and is_idle == self._was_idle:
            return []
        self._announced, self._was_idle = current, is_idle
        gone = (
            [] if before is None else [each for key, each in before.items() if key not in current]
        )
        return [
            SendAssignment(assigned=tuple(current.values()), revoked=tuple(gone), is_idle=is_idle)
        ]

    # -- where to begin --------------------------------------------------------------------------

    def _find(self) -> list[Effect]:
        self._find_due_ms = NEVER_MS
        keys = tuple(
            key
            for key, each in self._partitions.items()
            if not (each.is_ready or each.is_finding or each.is_leaving)
        )
        if not keys:
            return []
        for key in keys:
            self._partitions[key].is_finding = True
        member = self._member
        request = None
        if member is not None:
            request = FetchOffsets(
                group=self._begin.group,
                keys=keys,
                member_id=member.member_id,
                member_epoch=member.epoch,
                require_stable=True,
            )
        return [FindPositions(keys, request)]

    def on_positions(
        self,
        keys: Sequence[PartitionKey],
        found: Mapping[PartitionKey, Bounds | TidelogError] | TidelogError,
        now_ms: int,
    ) -> list[Effect]:
        """What is committed and what the logs hold; of some it may not be known yet."""
        uncommitted = Waiting(correlation_id=None, offsets={}, topics={})
        for key in keys:
            partition = self._partitions.get(key)
            if partition is None or not partition.is_finding:
                continue
            partition.is_finding = False
            bounds = found if isinstance(found, TidelogError) else found[key]
            if isinstance(bounds, TidelogError):
                if not bounds.retriable and bounds.code not in _LOST:
                    return self._end(bounds)
                if self._is_undecided_too_long(partition, bounds, now_ms):
                    return self._end(self._undecided(partition, bounds))
                self._find_due_ms, self._missing = now_ms + limits.RETRY_MS, bounds
                continue
            partition.undecided_since_ms = -1
            start = self._start(partition, bounds)
            if start is None:
                return self._end(self._no_offset(partition))
            partition.begin_at(start)
            partition.needs_reset = False
            if self._member is not None and start != bounds.committed_offset:
                uncommitted.offsets[key] = start
                uncommitted.topics[key] = partition.topic
            else:
                partition.is_ready = True
        if uncommitted.offsets:
            self._commits.add(uncommitted, now_ms)
        return [ChangeReads(), *self._announce(), *self._commit(now_ms)]

    def _start(self, partition: Partition, bounds: Bounds) -> Offset | None:
        """Where reading begins; None: nowhere, by the client's wish.

        What was committed and is not in the log any more is gone on from as near as can be: at the
        log's start if that is above, at its end if that is below. To begin as if nothing had been
        committed would pass over records that nobody has seen.
        """
        first, end = bounds.log_start_offset, bounds.high_watermark
        position = bounds.committed_offset
        if position == NO_OFFSET and partition.needs_reset:
            position = partition.next_read
        is_held = first <= position <= end
        match self._begin.start_at:
            case StartAt.NONE:
                return position if is_held else None
            case StartAt.EARLIEST if position == NO_OFFSET:
                return first
            case StartAt.LATEST if position == NO_OFFSET:
                # A transaction that is open began before now, and its records come from now on.
                is_committed_only = self.isolation is IsolationLevel.READ_COMMITTED
                return bounds.last_stable_offset if is_committed_only else end
            case _:
                return min(max(position, first), end)

    # -- records ---------------------------------------------------------------------------------

    def on_records(
        self,
        key: PartitionKey,
        fetch_offset: int,
        records: list[DecodedRecord],
        next_offset: Offset,
        high_watermark: Offset,
        last_stable_offset: Offset,
        now_ms: int,
    ) -> list[Effect]:
        """A read from `fetch_offset` on has brought these."""
        partition = self._partitions.get(key)
        is_current = partition is not None and partition.is_ready and not partition.is_leaving
        if partition is None or not is_current or partition.next_read != fetch_offset:
            return []
        partition.take(records, next_offset, high_watermark, last_stable_offset)
        if records:
            return self._deliver(now_ms)
        self._end_turn(key)
        return [*self._deliver(now_ms), *self._pass_over(now_ms)]

    def on_read_failed(
        self, key: PartitionKey, fetch_offset: int, error: TidelogError, now_ms: int
    ) -> list[Effect]:
        """It cannot be read from there; what another try may mend is not told here."""
        partition = self._partitions.get(key)
        if partition is None or partition.is_leaving or partition.next_read != fetch_offset:
            return []
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._end(self._unreadable(partition, error))
        if not partition.is_done:
            # What was sent is in the log no more: the client's acknowledgements mean nothing.
            partition.unacknowledged.clear()
        partition.is_ready, partition.needs_reset = False, True
        self._find_due_ms = now_ms
        return [*self._find(), *self._announce()]

    def on_credit(self, records: int, now_ms: int) -> list[Effect]:
        """More may be sent."""
        self._credit += records
        if self._credit > limits.CREDIT_MAX:
            return self._end(
                invalid(
                    "grant credit",
                    f"{self._credit} records may be sent, the limit is {limits.CREDIT_MAX}",
                )
            )
        return self._deliver(now_ms)

    def _deliver(self, now_ms: int) -> list[Effect]:
        """Records for the client, partition by partition, as far as credit goes."""
        if self._is_finishing:
            return []
        effects: list[Effect] = []
        unacknowledged = sum(each.unacknowledged_count for each in self._partitions.values())
        for key in list(self._partitions):
            partition = self._partitions[key]
            if not partition.buffer or partition.is_leaving:
                continue
            while partition.buffer:
                count = min(self._credit, limits.UNACKNOWLEDGED_MAX - unacknowledged)
                if count <= 0:
                    return [*effects, ChangeReads()]
                records = partition.send(count, limits.ANSWER_BYTES_MAX, now_ms)
                self._credit -= len(records)
                unacknowledged += len(records)
                effects.append(
                    SendRecords(
                        topic=partition.topic,
                        partition=key.partition,
                        records=records,
                        high_watermark=partition.high_watermark,
                        last_stable_offset=partition.last_stable_offset,
                    )
                )
            self._end_turn(key)
        return [*effects, ChangeReads()]

    def _end_turn(self, key: PartitionKey) -> None:
        """The others come first, to be read and to be sent."""
        self._partitions[key] = self._partitions.pop(key)

    # -- acknowledgements ------------------------------------------------------------------------

    def on_acknowledge(
        self, positions: Sequence[Position], correlation_id: int, now_ms: int
    ) -> list[Effect]:
        """The client has done with records."""
        commits = self._commits
        if len(commits) >= limits.ACKNOWLEDGEMENTS_WAITING_MAX:
            count = limits.ACKNOWLEDGEMENTS_WAITING_MAX
            return self._end(_too_many(f"{count} acknowledgements wait to be stored"))
        if commits.position_count >= limits.POSITIONS_WAITING_MAX:
            count = limits.POSITIONS_WAITING_MAX
            return self._end(_too_many(f"{count} positions wait to be stored"))
        waiting = Waiting(correlation_id=correlation_id, offsets={}, topics={})
        by_name: dict[tuple[str, int], PartitionKey] = {
            (each.topic, key.partition): key for key, each in self._partitions.items()
        }
        for position in positions:
            key = by_name.get((position.topic, position.partition))
            failure = self._objection(key, position)
            if failure is not None:
                waiting.failures.append((position.topic, position.partition, failure))
            else:
                assert key is not None, "what is not owned is refused"
                partition = self._partitions[key]
                partition.claimed = max(partition.claimed, position.next_offset)
                waiting.offsets[key] = position.next_offset
                waiting.topics[key] = position.topic
        if self._member is not None:
            commits.add(waiting, now_ms)
            return self._commit(now_ms)
        # Without a group nothing is stored, so nothing waits either.
        for key, offset in waiting.offsets.items():
            self._partitions[key].acknowledge(offset)
        told = SendAcknowledged(correlation_id=correlation_id, failures=tuple(waiting.failures))
        return [told, *self._deliver(now_ms)]

    def on_answers_left(self) -> list[Effect]:
        """The client acknowledges, and does not take the answers: more of them are not kept."""
        return self._end(
            _too_many(f"{limits.ANSWERS_WAITING_MAX} answers and failures in them wait to be read")
        )

    def _objection(self, key: PartitionKey | None, position: Position) -> TidelogError | None:
        if key is None and position.topic in self._deleted:
            return deleted(position.topic, position.partition)
        if key is None:
            return TidelogError(
                ErrorCode.STALE_ASSIGNMENT,
                tried=f"acknowledge records of {position.topic}-{position.partition}",
                happened="this stream does not own the partition",
            )
        partition = self._partitions[key]
        if not 0 <= position.next_offset <= max(partition.sent_end, partition.acknowledged):
            return TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                tried=f"acknowledge {position.topic}-{position.partition} "
                f"up to {position.next_offset}",
                happened=f"records were sent up to {partition.sent_end}",
            )
        return None

    def _commit(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = list(self._commits.take_answered(self._partitions))
        if self._member is None or not self._member.is_member:
            return effects
        request = self._commits.next_request(self._member.epoch, now_ms)
        return effects if request is None else [*effects, SendCommit(request)]

    def on_committed(
        self, sent: CommitOffsets, outcome: CommitAnswer | TidelogError, now_ms: int
    ) -> list[Effect]:
        """The coordinator has answered the commit that was sent, or could not be asked."""
        assert self._member is not None, "without a group nothing is committed"
        if not self._commits.is_sent(sent):
            return self._commit(now_ms)
        if isinstance(outcome, TidelogError):
            if outcome.code in _LOST:
                return self._lose(now_ms) + self.tick(now_ms)
            if outcome.retriable:
                self._missing = outcome
                self._commits.postpone(outcome, now_ms)
                return []
        told = self._commits.settle(outcome, now_ms, self._on_stored)
        self._give_up_done(now_ms)
        effects: list[Effect] = list(told)
        if not told and not all(each.is_ready for each in self._partitions.values()):
            # Where reading begins was not stored: it is looked up once more.
            self._find_due_ms = now_ms + limits.RETRY_MS
        effects += self._announce()
        effects += self._deliver(now_ms) + self._commit(now_ms) + self.tick(now_ms)
        return effects + self._pass_over(now_ms)

    def _pass_over(self, now_ms: int) -> list[Effect]:
        """Commit what no client acknowledges, because it is sent to none: else the group's lag
        would stay above 0 behind a marker or an aborted transaction until the next record.

        Only while nothing else waits to be stored, so that there is one such commit at a time.
        """
        if self._member is None or self._is_over or self._commits:
            return []
        passed = [each for each in self._partitions.values() if each.has_passed_over]
        if not passed:
            return []
        waiting = Waiting(correlation_id=None, offsets={}, topics={})
        for partition in passed:
            waiting.offsets[partition.key] = partition.pass_over()
            waiting.topics[partition.key] = partition.topic
        self._commits.add(waiting, now_ms)
        return self._commit(now_ms)

    def _on_stored(self, key: PartitionKey, offset: Offset) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            partition.acknowledge(offset)
            if partition.next_read >= 0 and not partition.is_finding:
                partition.is_ready = not partition.needs_reset

    # -- the end ---------------------------------------------------------------------------------

    def _client_due_ms(self) -> int:
        """Until when the client has to acknowledge the oldest records that it has."""
        oldest = (each.oldest_sent_ms() for each in self._partitions.values())
        sent = [each for each in oldest if each is not None]
        return min(sent) + self._begin.acknowledge_timeout_ms if sent else NEVER_MS

    def _end(self, error: TidelogError) -> list[Effect]:
        self._is_over = True
        return [EndStream(error)]

    def _too_slow(self) -> TidelogError:
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried="wait for acknowledgements",
            happened="records were sent and not acknowledged within "
            f"{self._begin.acknowledge_timeout_ms} ms",
            hint="Acknowledge sooner, ask for less credit, or raise acknowledge_timeout_ms.",
        )

    def _not_ready(self) -> TidelogError:
        """What the client waits for; it comes again, perhaps at another broker."""
        missing = self._missing
        group = self._begin.group
        tried = f"subscribe with group `{group}`" if group else "subscribe"
        if missing is None:
            missing = TidelogError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                tried=tried,
                happened="the group's coordinator does not answer",
            )
        return TidelogError(
            missing.code if missing.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried=tried,
            happened=f"not ready to read after {limits.NOT_READY_MS} ms: {missing.happened} "
            f"(while trying to {missing.tried})",
            hint=f"{missing.hint} Then begin again, at any broker.",
        )

    def _unreadable(self, partition: Partition, error: TidelogError) -> TidelogError:
        """Every stream that reads the partition ends so until somebody moves the group past it."""
        way = (
            f"AlterGroupOffsets (`tidelog group reset-offsets`) moves group `{self._begin.group}` "
            "there while it has no members."
            if self._begin.group
            else "FetchRecords reads from there."
        )
        return TidelogError(
            error.code,
            tried=f"read {partition.topic}-{partition.key.partition} from offset "
            f"{partition.next_read}",
            happened=f"{error.happened} (while trying to {error.tried})",
            hint=f"{error.hint} {way}",
            # Whoever has read knows the batch, and not by which name its topic is subscribed.
            go_on_at=error.go_on_at
            and error.go_on_at._replace(topic=partition.topic, partition=partition.key.partition),
        )

    def _is_undecided_too_long(
        self, partition: Partition, error: TidelogError, now_ms: int
    ) -> bool:
        if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            partition.undecided_since_ms = -1
            return False
        if partition.undecided_since_ms < 0:
            partition.undecided_since_ms = now_ms
        return now_ms - partition.undecided_since_ms >= limits.UNDECIDED_MS

    def _undecided(self, partition: Partition, error: TidelogError) -> TidelogError:
        return TidelogError(
            error.code,
            tried=f"begin to read {partition.topic}-{partition.key.partition} "
            f"for group `{self._begin.group}`",
            happened=f"not possible for {limits.UNDECIDED_MS} ms: {error.happened}",
            hint=error.hint,
        )

    def _no_offset(self, partition: Partition) -> TidelogError:
        return TidelogError(
            ErrorCode.NO_OFFSET_FOR_PARTITION,
            tried=f"begin to read {partition.topic}-{partition.key.partition} "
            f"for group `{self._begin.group}`",
            happened="nothing was committed, or it is not in the log any more",
            hint="Set start_at to EARLIEST or LATEST, or set the group's offsets.",
        )


def _too_many(waiting: str) -> TidelogError:
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried="acknowledge records",
        happened=waiting,
        hint="Read the answers, and wait for them before sending more.",
    )
