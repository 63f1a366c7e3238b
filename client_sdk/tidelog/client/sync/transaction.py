# Written by `make threads` from client_sdk/tidelog/client/aio/transaction.py; do not edit.
"""One transaction of a producer, as the block in which it is made.

Owns its life: begun, then committed, aborted or prepared, once; and the consumer whose offsets it
commits. It must never leave a block with an exception and a transaction that might be committed.
"""

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.messages import Member
from tidelog.client.errors import TransactionError
from tidelog.client.reading.read_in_transaction import ReadInTransaction
from tidelog.client.shared.checked import checked
from tidelog.client.sync.future import SendFuture
from tidelog.client.types.records import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    TopicPartition,
)
from tidelog.client.types.transaction_token import TransactionToken
from tidelog.client.writing.transaction_parts import abort_failed, ended_late, not_in_progress
from tidelog.wire.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.sync.transaction_calls import TransactionCalls

_log = logging.getLogger("tidelog.client")
HASTE_S: Final = 5.0
"""How long a block that is left by Ctrl-C waits for its abort."""


class AddOffsets(Protocol):
    """Makes offsets part of the producer's transaction."""

    def __call__(
        self, member: Member, offsets: tuple[OffsetToCommit, ...], timeout: float | None
    ) -> None: ...


class Transaction:
    """`with producer.transaction() as t: t.send("topic", b"value")`

    The end of the block commits, an exception aborts and goes on. Sending by the producer itself
    adds to the transaction as well.
    """

    def __init__(
        self,
        producer: "TransactionCalls",
        reading: ReadInTransaction | None,
        *,
        begin: Callable[[], None],
        add_offsets: AddOffsets,
        is_open: Callable[[], bool],
        is_to_abort: Callable[[], bool],
        is_undecided: Callable[[], bool],
    ) -> None:
        self._producer = producer
        self._reading = reading
        self._begin = begin
        self._add_offsets = add_offsets
        self._is_open = is_open
        self._is_to_abort = is_to_abort
        self._is_undecided = is_undecided
        self._offsets: tuple[OffsetToCommit, ...] = ()
        """Of what was read, as they were sent."""
        self._has_begun = False
        self._has_left = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether it is known to be committed or aborted, or is prepared."""
        return self._is_over

    def __enter__(self) -> Self:
        if self._has_begun:
            raise not_in_progress("begin a transaction", is_over=True)
        self._begin()
        self._has_begun = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_left = True
        if self._is_over:
            return
        if error is not None:
            in_haste = not isinstance(error, Exception)
            self._abort_after(error, HASTE_S if in_haste else None)
            return
        try:
            self.commit()
        except BaseException as failure:
            # After an end of unknown outcome nothing is aborted: it may be committed already.
            if self._is_to_abort():
                in_haste = not isinstance(failure, Exception)
                self._abort_after(failure, HASTE_S if in_haste else None)
            raise

    def _abort_after(self, error: BaseException, timeout: float | None) -> None:
        """Both are said where the abort fails too."""
        if isinstance(error, TidelogError) and error.fatal:
            self._is_over = True
            return
        try:
            self.abort(timeout)
        except TidelogError as failure:
            text = abort_failed(failure)
            error.add_note(text)
            _log.warning(text)

    def finish(self) -> None:
        """Come to the end that its block did not come to, before another block begins.

        Raises where that end is not what was told, or where the consumer went back: whoever has
        polled meanwhile has records in hand that are delivered again.
        """
        is_unknown = self._is_undecided()
        if self._is_over or not self._has_left or not (is_unknown or self._is_to_abort()):
            return
        if is_unknown:
            try:
                self.commit()
            except TransactionError as error:
                if not self.is_over and not error.abort_required:
                    raise
            else:
                return
        if not self.is_over:
            self.abort()
        if self._reading is not None or is_unknown:
            raise ended_late()

    # What is in it.

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """As the producer's send(). Its future tells that the record is stored, not that it counts:
        that only the end of the transaction tells.
        """
        self._check_in_progress("send a record in a transaction")
        return self._producer.send(topic, value, key, headers, partition, timestamp_ms)

    @checked
    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """As the producer's send_offsets_to_transaction()."""
        self._check_in_progress("send offsets to a transaction")
        self._producer.send_offsets_to_transaction(offsets, group_metadata, timeout)

    # Its end.

    @checked
    def commit(self, timeout: float | None = None) -> None:
        """Before the block's end, or once more after an end of unknown outcome."""
        self._check_in_progress("commit a transaction")
        self._add_read(timeout)
        try:
            self._producer.commit_transaction(timeout)
        except TransactionError as error:
            self._note_decided(error)
            raise
        self._end(is_committed=True)

    @checked
    def abort(self, timeout: float | None = None) -> None:
        """Nothing of it counts; the block goes on without it."""
        self._check_in_progress("abort a transaction")
        try:
            self._producer.abort_transaction(timeout)
        except TransactionError as error:
            self._note_decided(error)
            raise
        self._end(is_committed=False)

    @checked
    def prepare(self, timeout: float | None = None) -> TransactionToken:
        """The first half of a commit in two phases; store the token with the other half, then
        `producer.complete(token)`, or `abandon` it.
        """
        self._check_in_progress("prepare a transaction")
        self._add_read(timeout)
        token = self._producer.prepare_transaction(timeout)
        self._end(is_committed=True)
        return token

    # Inside.

    def _check_in_progress(self, tried: str) -> None:
        if self._is_over or not self._has_begun:
            raise not_in_progress(tried, is_over=self._is_over)

    def _add_read(self, timeout: float | None) -> None:
        """The offsets of what the consumer delivered."""
        if self._reading is None or not self._is_open():
            return
        self._offsets = self._reading.offsets()
        self._add_offsets(self._reading.member(), self._offsets, timeout)

    def _note_decided(self, error: TransactionError) -> None:
        """It ended in the other way, by an earlier call whose answer was lost."""
        if error.decided is not None:
            self._end(is_committed=error.decided == "commit")

    def _end(self, *, is_committed: bool) -> None:
        self._is_over = True
        if self._reading is None:
            return
        if is_committed:
            self._reading.settle(self._offsets)
        else:
            self._reading.rewind()
