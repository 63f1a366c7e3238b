"""The calls of a producer about its transactions.

Owns what is checked before a call, and what it asks for. How a call waits is the producer's.
"""

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from tidelog.client.aio.cluster_calls import AsyncClusterCalls
from tidelog.client.aio.group_consumer import AsyncGroupConsumer
from tidelog.client.aio.send_future import AsyncSendFuture
from tidelog.client.aio.transaction import AsyncTransaction
from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.messages import (
    BeginWanted,
    Call,
    DecideWanted,
    EndWanted,
    InitializeWanted,
    Member,
    OffsetsWanted,
    PrepareWanted,
    Token,
)
from tidelog.client.engine.transaction.phases import Decision, Identity
from tidelog.client.reading.group_options import checked_offsets
from tidelog.client.reading.read_in_transaction import member_of
from tidelog.client.shared.checked import checked
from tidelog.client.types.records import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    TopicPartition,
)
from tidelog.client.types.transaction_token import TransactionToken
from tidelog.client.writing.producer_base import ProducerBase
from tidelog.client.writing.transaction_parts import MakeCall, no_consumer
from tidelog.wire.ids import LeaderEpoch, Offset, TopicId


class AsyncTransactionCalls(ProducerBase):
    """The calls of a producer about its transactions, one at a time.

    Each waits up to `timeout` seconds, by default max_block_ms.
    """

    _block: AsyncTransaction | None = None
    """The last one that began."""

    @checked
    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take the transactional id over: any older producer of that id is fenced, and what it had
        open is aborted. Once, before the first transaction; `transaction()` does it by itself.
        """
        self._check_transactional("initialize transactions")
        await self._transact(InitializeWanted, timeout)

    @checked
    async def begin_transaction(self, timeout: float | None = None) -> None:
        """What is sent from here on belongs together. Asks nobody, as a rule."""
        self._check_transactional("begin a transaction")
        await self._transact(BeginWanted, timeout)

    @checked
    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Add a group's offsets to the transaction: they count once it is committed.

        `group_metadata` is what `consumer.group_metadata()` tells; a group's name alone is for
        readers that are no members.
        """
        tried = "send offsets to a transaction"
        self._check_transactional(tried)
        if isinstance(group_metadata, str):
            group_metadata = ConsumerGroupMetadata(group_metadata, -1, "")
        until = time.monotonic() + self._limit_s(timeout)
        wanted: list[OffsetToCommit] = []
        for name, at in checked_offsets(offsets).items():
            left_ms = max(1, int((until - time.monotonic()) * 1000))
            topic = await self._cluster().topic(name.topic, left_ms, tried=tried)
            wanted.append(
                OffsetToCommit(
                    topic_partition=name,
                    topic_id=TopicId(topic.topic_id),
                    committed_offset=Offset(at.offset),
                    leader_epoch=LeaderEpoch(at.leader_epoch),
                    metadata=at.metadata,
                )
            )
        left_s = max(0.0, until - time.monotonic())
        await self._add_offsets(member_of(group_metadata), tuple(wanted), left_s)

    @checked
    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send everything appended, and make it count. Returns when that is decided for good;
        readers of committed records see it a moment later.
        """
        self._check_transactional("commit a transaction")
        await self._end_transaction(Decision.COMMIT, timeout)

    @checked
    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Nothing of the transaction counts; records that are not acknowledged yet fail."""
        self._check_transactional("abort a transaction")
        await self._end_transaction(Decision.ABORT, timeout)

    @checked
    async def prepare_transaction(self, timeout: float | None = None) -> TransactionToken:
        """The first half of a commit in two phases: nothing is added to the transaction any more,
        and it stands, without a timeout, until somebody completes or abandons its token.
        """
        self._check_transactional("prepare a transaction")
        token = await self._transact(PrepareWanted, timeout, is_last=True)
        assert token is not None, "a prepared transaction has a token"
        identity = token.identity
        return TransactionToken(
            token.transactional_id, identity.producer_id, identity.producer_epoch
        )

    @checked
    async def complete(self, token: TransactionToken | str, timeout: float | None = None) -> None:
        """Commit a prepared transaction, this producer's or another one's. Any producer may, with
        or without a transactional id; done twice it comes to the same.
        """
        await self._decide(token, Decision.COMMIT, timeout)

    @checked
    async def abandon(self, token: TransactionToken | str, timeout: float | None = None) -> None:
        """Abort a prepared transaction, as `complete` commits one."""
        await self._decide(token, Decision.ABORT, timeout)

    @checked
    def transaction(self, consumer: AsyncGroupConsumer | None = None) -> "AsyncTransaction":
        """A transaction, for one block: its end commits, an exception aborts.

        With a consumer the offsets of what it delivered are part of the transaction, and after an
        abort it delivers that again.
        """
        self._check_transactional("make a transaction")
        if consumer is not None and not hasattr(consumer, "getmany"):
            raise no_consumer(consumer, "AsyncConsumer")
        block = AsyncTransaction(
            self,
            None if consumer is None else consumer.read_for_transactions(),
            begin=lambda: self._begin(block),
            add_offsets=self._add_offsets,
            is_open=lambda: self._is_open,
            is_to_abort=lambda: self._is_to_abort,
            is_undecided=lambda: self._is_undecided,
        )
        return block

    # Inside.

    @abstractmethod
    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncSendFuture:
        """As the producer has it."""

    @abstractmethod
    async def _transact(
        self, make: MakeCall, timeout: float | None, *, is_last: bool = False
    ) -> Token | None:
        """One call of the core, waited for; `is_last`: nothing is appended behind it."""

    @abstractmethod
    def _cluster(self) -> AsyncClusterCalls:
        """For what is asked of the cluster in the user's own time."""

    async def _begin(self, block: AsyncTransaction) -> None:
        """Of a block: what the block before could not end is ended first, and the id is taken over
        if that was never done."""
        if self._block is not None:
            await self._block.finish()
        if self._is_new:
            await self._transact(InitializeWanted, None)
        await self._transact(BeginWanted, None)
        self._block = block

    async def _add_offsets(
        self, member: Member, offsets: tuple[OffsetToCommit, ...], timeout: float | None
    ) -> None:
        """As send_offsets_to_transaction(), with everything known."""

        def make(*, call: int, deadline_ns: int) -> Call:
            return OffsetsWanted(call=call, deadline_ns=deadline_ns, member=member, offsets=offsets)

        await self._transact(make, timeout)

    async def _end_transaction(self, decision: Decision, timeout: float | None) -> None:
        def make(*, call: int, deadline_ns: int) -> Call:
            return EndWanted(call=call, deadline_ns=deadline_ns, decision=decision)

        await self._transact(make, timeout, is_last=True)

    async def _decide(
        self, token: TransactionToken | str, decision: Decision, timeout: float | None
    ) -> None:
        found = TransactionToken.parse(token) if isinstance(token, str) else token
        identity = Identity(found.producer_id, found.producer_epoch)
        wanted = Token(transactional_id=found.transactional_id, identity=identity)

        def make(*, call: int, deadline_ns: int) -> Call:
            return DecideWanted(call=call, deadline_ns=deadline_ns, token=wanted, decision=decision)

        await self._transact(make, timeout)
