"""What a consumer has to do with a transaction that commits its offsets.

Owns what was delivered and belongs to no committed transaction yet: it is committed with the next
one, or is delivered again. It must never let offsets count for partitions whose records went to
somebody else meanwhile, nor wait for anybody.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.messages import Member
from tidelog.client.errors import NextStep, TransactionError
from tidelog.client.reading.group_side import GroupSide
from tidelog.client.types.records import ConsumerGroupMetadata, TopicPartition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, TopicId


class ReadInTransaction:
    """A consumer whose offsets a transaction commits; whoever polls it calls this."""

    def __init__(
        self,
        group: GroupSide,
        *,
        entering: Callable[[str], AbstractContextManager[object]],
        note_position: Callable[[], None],
        seek: Callable[[TopicPartition, int], None],
        is_closed: Callable[[], bool],
    ) -> None:
        self._group = group
        self._entering = entering
        self._note_position = note_position
        self._seek = seek
        self._is_closed = is_closed

    def member(self) -> Member:
        """On whose behalf the offsets are sent, as of now."""
        return member_of(self._group.metadata())

    def offsets(self) -> tuple[OffsetToCommit, ...]:
        """Everything that was delivered since the last transaction that counts."""
        with self._entering("send offsets to a transaction"):
            self._note_position()
            self._check_held()
            undone = self._group.offsets.undone()
            found = self._group.offsets.positions(undone)
            return tuple(
                OffsetToCommit(
                    topic_partition=name,
                    topic_id=TopicId(self._group.offsets.id_of(name)),
                    committed_offset=Offset(at.offset),
                    leader_epoch=LeaderEpoch(at.leader_epoch),
                    metadata=at.metadata,
                )
                for name, at in found.items()
            )

    def settle(self, offsets: tuple[OffsetToCommit, ...]) -> None:
        """The transaction is committed, with these offsets."""
        at = {each.topic_partition: int(each.committed_offset) for each in offsets}
        self._group.offsets.settle_undone(at)

    def rewind(self) -> None:
        """The transaction is aborted: what was delivered is delivered again."""
        if self._is_closed():
            return
        with self._entering("deliver again what an aborted transaction had read"):
            self._note_position()
            for name, offset in self._group.offsets.undone().items():
                self._seek(name, offset)
            self._group.offsets.lost_undone.clear()

    def _check_held(self) -> None:
        """What of a lost partition was delivered its new owner reads too."""
        lost = self._group.offsets.lost_undone
        if not lost:
            return
        named = ", ".join(f"{name[0]}-{name[1]}" for name in sorted(lost))
        raise TransactionError(
            ErrorCode.STALE_ASSIGNMENT,
            tried=f"send offsets of group {self._group.settings.group!r} to a transaction",
            happened=f"{named} went to another member with records that this transaction has "
            "read: they are delivered to that one again",
            hint="Abort the transaction and begin again.",
            next_step=NextStep.ABORT,
        )


def member_of(metadata: ConsumerGroupMetadata) -> Member:
    """As the contract has it."""
    return Member(
        group=metadata.group_id,
        member_id=metadata.member_id,
        member_epoch=metadata.member_epoch if metadata.member_id else -1,
    )


def group_for_transactions(group: GroupSide | None, *, commits_itself: bool) -> GroupSide:
    """Only a consumer in a group, which commits nothing by itself, will do."""
    tried = "begin a transaction with a consumer"
    if group is None:
        raise TransactionError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened="the consumer has no group, so nobody keeps its offsets",
            hint="make the consumer with a group_id",
        )
    if commits_itself:
        raise TransactionError(
            ErrorCode.INVALID_ARGUMENT,
            tried=tried,
            happened="the consumer commits by itself what it has delivered, whatever becomes of "
            "the transaction",
            hint="make the consumer with enable_auto_commit=False",
        )
    return group
