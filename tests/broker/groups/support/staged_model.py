"""Transactions, plain commits, failovers and compaction around one core, as hypothesis draws them.

What must be true after every step: a core that loads the log is the live one (the house checks it);
what counts for a partition is what the order of fold and plain commits makes it, and a transaction
counts whole or not at all; nothing acknowledged is lost.
"""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.groups.support.house import House, Marker, Stored, key, persistent, topic
from tidelog.broker.groups.state.records import OffsetValue, decode_record
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import (
    CommitAnswer,
    CommitOffsets,
    FetchOffsets,
    FetchOffsetsAnswer,
    OffsetToCommit,
    SendOffsets,
    SendOffsetsAnswer,
    StoredOffset,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey, ProducerEpoch, ProducerId

KEYS = tuple(key("a", number) for number in range(3))
PRODUCERS = (7, 8)
GROUPS = ("g", "h")
PARTITIONS = st.sets(st.integers(0, 2), min_size=1)


class Open(msgspec.Struct):
    """A transaction of the plan."""

    epoch: int = 0
    acknowledged: dict[tuple[str, PartitionKey], int] = msgspec.field(default_factory=dict)
    """What was answered, hence counts if it is committed."""
    waiting: dict[int, tuple[str, dict[PartitionKey, int]]] = msgspec.field(default_factory=dict)
    sent: dict[int, tuple[str, tuple[PartitionKey, ...]]] = msgspec.field(default_factory=dict)
    """Where each number belongs, acknowledged or not; no two requests send the same."""
    end: Decision | None = None
    """Its marker is on its way; the next one begins when it is answered."""


class StagedModel(RuleBasedStateMachine):
    """Groups `g` and `h`, three partitions, two producers."""

    @initialize()
    def begin(self) -> None:
        self.house = House(topic("a", 3))
        self.producers = {each: Open() for each in PRODUCERS}
        self.offset = 0
        self.plain: dict[int, tuple[str, dict[PartitionKey, int]]] = {}
        self.ends: dict[int, int] = {}
        """Producers by the requests of their markers."""
        self.counted: set[int] = set()
        """Every offset that ever was an ordinary record."""
        self.never: set[int] = set()
        """Offsets of aborted transactions."""

    def _offsets(self, which: set[int]) -> dict[PartitionKey, int]:
        self.offset += 1
        return {KEYS[each]: self.offset for each in sorted(which)}

    @rule(which=PARTITIONS, group=st.sampled_from(GROUPS))
    def commit_plain(self, which: set[int], group: str) -> None:
        offsets = self._offsets(which)
        request = CommitOffsets(group=group, offsets=told(offsets))
        self.plain[self.house.send(request)] = (group, offsets)
        self._read()

    @rule(which=PARTITIONS, group=st.sampled_from(GROUPS), producer=st.sampled_from(PRODUCERS))
    def send(self, which: set[int], group: str, producer: int) -> None:
        """Also while the transaction is being ended: such an offset is late, and refused."""
        transaction = self.producers[producer]
        offsets = self._offsets(which)
        transaction.sent[self.offset] = (group, tuple(offsets))
        asked = self.house.send(sending(producer, transaction.epoch, group, offsets))
        transaction.waiting[asked] = (group, offsets)
        self._read()

    @rule(producer=st.sampled_from(PRODUCERS), decision=st.sampled_from(list(Decision)))
    def end(self, producer: int, decision: Decision) -> None:
        """The producer ends it once all that it sent was answered; a timeout's abort any time."""
        transaction = self.producers[producer]
        if transaction.end is not None or (transaction.waiting and decision is Decision.COMMIT):
            return
        transaction.end = decision
        self.house.end(identity(producer, transaction.epoch + 1), decision)
        self._tell_again(producer)

    def _tell_again(self, producer: int) -> None:
        """As a coordinator that has no answer yet does."""
        transaction = self.producers[producer]
        assert transaction.end is not None, "it is being ended"
        is_there = any(
            isinstance(each, Marker) and each.end == identity(producer, transaction.epoch + 1)
            for each in self.house.log[: self.house.committed_end]
        )
        if is_there:
            marker = Marker(identity(producer, transaction.epoch + 1), transaction.end)
            self.ends[self.house.tell_end(marker)] = producer
        self._read()

    @precondition(lambda self: any(each.end for each in self.producers.values()))
    @rule()
    def tell_again(self) -> None:
        for producer, transaction in self.producers.items():
            if transaction.end is not None:
                self._tell_again(producer)

    @rule(producer=st.sampled_from(PRODUCERS))
    def tell_an_old_end_again(self, producer: int) -> None:
        """A marker of the transaction before, delayed: it ends nothing."""
        epoch = self.producers[producer].epoch
        if epoch > 0:
            self.house.tell_end(Marker(identity(producer, epoch), Decision.COMMIT))

    @rule(is_slow=st.booleans())
    def slow_log(self, is_slow: bool) -> None:
        self.house.is_auto = not is_slow

    @rule(is_slow=st.booleans())
    def slow_verification(self, is_slow: bool) -> None:
        self.house.is_verified = not is_slow

    @precondition(lambda self: self.house.verifying)
    @rule(is_refused=st.booleans())
    def verify(self, is_refused: bool) -> None:
        error = TidelogError(ErrorCode.TRANSACTION_ABORTED, tried="add", happened="it is over")
        self.house.verify(error if is_refused else None)
        self._read()

    @rule(count=st.integers(1, 3))
    def commit_appends(self, count: int) -> None:
        self.house.commit(min(count, len(self.house.ends)))
        self._read()

    @rule(surviving=st.integers(0, 4))
    def fail_over(self, surviving: int) -> None:
        self.house.fail_over(min(surviving, len(self.house.ends)))
        for transaction in self.producers.values():
            transaction.waiting.clear()
        self.plain.clear()
        self.ends.clear()
        # A marker that was not committed is gone; its coordinator has it written again.
        for producer, transaction in self.producers.items():
            end = identity(producer, transaction.epoch + 1)
            is_kept = self.house.last_epoch.get(producer, 0) >= end.producer_epoch
            if transaction.end is not None and not is_kept:
                self.house.end(end, transaction.end)
        self._read()

    @rule(share=st.integers(0, 10), drops_tombstones=st.booleans())
    def compact(self, share: int, drops_tombstones: bool) -> None:
        end = len(self.house.log) * share // 10
        self.house.compact(end, drops_tombstones=drops_tombstones)
        assert persistent(self.house.rebuilt().groups) == persistent(self.house.core.groups)

    def _read(self) -> None:
        answers = self.house.answers
        for record in self.house.records():
            decoded = decode_record(record.key, record.value)
            if decoded is not None and isinstance(decoded[1], OffsetValue):
                self.counted.add(decoded[1].committed_offset)
        for transaction in self.producers.values():
            for asked in [each for each in transaction.waiting if each in answers]:
                group, offsets = transaction.waiting.pop(asked)
                if isinstance(answers.pop(asked), SendOffsetsAnswer):
                    transaction.acknowledged.update(
                        {(group, at): offset for at, offset in offsets.items()}
                    )
        for asked in [each for each in self.plain if each in answers]:
            group, offsets = self.plain.pop(asked)
            answer = answers.pop(asked)
            assert isinstance(answer, CommitAnswer | TidelogError)
        for asked in [each for each in self.ends if each in answers]:
            producer = self.ends.pop(asked)
            if not isinstance(answers.pop(asked), TidelogError):
                self._on_ended(producer)

    def _on_ended(self, producer: int) -> None:
        """All that a committed transaction was answered for has counted, and shows unless another
        one was committed behind it."""
        transaction = self.producers[producer]
        if transaction.end is None:
            return
        for (group, at), offset in transaction.acknowledged.items():
            if transaction.end is Decision.COMMIT:
                # A later one that was not answered may stand in its place.
                counted = [
                    each
                    for each, (its_group, keys) in transaction.sent.items()
                    if its_group == group and at in keys and each >= offset and each in self.counted
                ]
                assert counted, f"{at} of `{group}`: {offset} never counted"
                assert at in self.house.core.groups[group].offsets, f"{at} of `{group}` is gone"
        if transaction.end is Decision.ABORT:
            self.never.update(transaction.sent)
        self.producers[producer] = Open(epoch=transaction.epoch + 1)

    @invariant()
    def nothing_of_an_aborted_transaction_counts(self) -> None:
        assert not self.never & self.counted, f"{self.never & self.counted} were aborted"

    def teardown(self) -> None:
        """Calm: every transaction is ended, and nothing is left of any."""
        if not hasattr(self, "house"):
            return
        house = self.house
        house.is_auto = house.is_verified = True
        while house.verifying:
            house.verify()
        house.commit(len(house.ends))
        self._read()
        for producer in PRODUCERS:
            if self.producers[producer].end is None:
                self.end(producer, Decision.COMMIT)
            else:
                self._tell_again(producer)
        for name in GROUPS:
            group = house.core.groups.get(name)
            assert group is None or not group.staged, f"`{name}` holds something"
            answer = house.ask(FetchOffsets(group=name, require_stable=True), FetchOffsetsAnswer)
            assert all(isinstance(found, StoredOffset) for _, found in answer.offsets)
        for drops_tombstones in (False, True):
            house.compact(len(house.log), drops_tombstones=drops_tombstones)
            assert persistent(house.rebuilt().groups) == persistent(house.core.groups)
        left = [each for each in house.log if isinstance(each, Stored) and each.producer]
        assert not left, "what was folded leaves nothing in a compacted log"


def identity(producer: int, epoch: int) -> Identity:
    return Identity(ProducerId(producer), ProducerEpoch(epoch))


def told(offsets: dict[PartitionKey, int]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(key=each, committed_offset=Offset(offset), leader_epoch=LeaderEpoch(0))
        for each, offset in offsets.items()
    )


def sending(producer: int, epoch: int, group: str, offsets: dict[PartitionKey, int]) -> SendOffsets:
    return SendOffsets(
        transactional_id=f"t{producer}",
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        group=group,
        offsets=told(offsets),
    )
