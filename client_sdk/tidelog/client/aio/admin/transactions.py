"""Transactions, as the admin client calls them.

Any broker answers and asks coordinators and leaders itself; only a decision goes to the coordinator
of the transactional id.
"""

from collections.abc import Iterable

from tidelog.client.aio.admin.groups import AsyncGroupCalls
from tidelog.client.engine.group import admin_calls as group_calls
from tidelog.client.engine.group.admin_calls import Outcomes
from tidelog.client.shared import transaction_plans as plans
from tidelog.client.shared.checked import checked
from tidelog.client.shared.group_plans import unique
from tidelog.client.shared.portions import portions
from tidelog.client.shared.transaction_plans import Decision
from tidelog.client.sync.admin.base import all_or_raise
from tidelog.client.types.records import TopicPartition
from tidelog.client.types.transactions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionList,
    TransactionListing,
    TransactionState,
)
from tidelog.client.wire import groups as wire_groups
from tidelog.client.wire import groups_admin as wire_groups_admin
from tidelog.client.wire import transactions_admin as wire
from tidelog.wire.errors import TidelogError


class AsyncTransactionCalls(AsyncGroupCalls):
    """List, describe, abort, decide; what hangs at partitions."""

    @checked
    async def list_transactions(
        self,
        states_filter: Iterable[TransactionState] = (),
        older_than_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, those of some states, or those in progress for longer than that.
        While a coordinator cannot be asked its ids would be missing: then they are asked again, and
        it raises in the end.
        """
        states = list(states_filter)

        async def attempt(left_ms: int) -> list[TransactionListing]:
            found = await self.try_list_transactions(states, older_than_ms, left_ms)
            plans.check_complete(found)
            return list(found.transactions)

        return await self._calls.until(self._limit_ms(timeout_ms), attempt, doubt=None)

    @checked
    async def try_list_transactions(
        self,
        states_filter: Iterable[TransactionState] = (),
        older_than_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> TransactionList:
        """The ids of all coordinators that answer, and how many did not."""
        pages = plans.TransactionPages(states_filter, older_than_ms, self._limit_ms(timeout_ms))
        while not pages.is_complete:
            data = await self._ask(
                "list transactions", wire.LIST_TRANSACTIONS, pages.next_request(), pages.left_ms
            )
            pages.take(data)
        return pages.all()

    @checked
    async def describe_transactions(
        self, transactional_ids: Iterable[str], timeout_ms: int | None = None
    ) -> list[TransactionDescription]:
        """State, age and partitions. The first id that could not be described raises."""
        found = await self.try_describe_transactions(transactional_ids, timeout_ms)
        return all_or_raise(found.values())

    @checked
    async def try_describe_transactions(
        self, transactional_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription | TidelogError]:
        """The same with each id's own outcome."""
        outcomes = Outcomes[TransactionDescription](transactional_ids)
        limit_ms = self._limit_ms(timeout_ms)
        await self._learn_brokers("describe transactions", limit_ms)
        names = await self._group_topics(limit_ms)
        return await self._settled(plans.describe(outcomes, names), limit_ms)

    @checked
    async def abort_transaction(
        self, transactional_id: str, timeout_ms: int | None = None, validate_only: bool = False
    ) -> bool:
        """Abort what is in progress under an id, also what is prepared; whether anything was. Its
        producer is told TransactionAborted, and goes on with a new transaction.
        """
        plan = plans.abort(transactional_id, validate_only=validate_only)
        await self._settled(plan, timeout_ms)
        return group_calls.one(plan.outcomes)

    @checked
    async def decide_prepared_transaction(
        self, transactional_id: str, decision: Decision, timeout_ms: int | None = None
    ) -> None:
        """Commit or abort the prepared transaction of an id, where whoever prepared it does not.
        Anything that is not prepared is refused.
        """
        limit_ms = self._limit_ms(timeout_ms)
        (found,) = await self.describe_transactions([transactional_id], limit_ms)
        plans.check_prepared(found)
        request = wire.decide_prepared_request(found, decision)

        async def attempt(left_ms: int) -> None:
            data = await self._ask(
                f"find the coordinator of transaction {transactional_id}",
                wire_groups.FIND_COORDINATORS,
                wire.find_coordinator_request(transactional_id),
                left_ms,
            )
            (address,) = all_or_raise(wire_groups_admin.read_coordinators(data))
            await self._connections.call(address, wire.DECIDE_PREPARED, request, left_ms)

        # Decided once more the same way, it is a success.
        await self._calls.until(limit_ms, attempt, doubt=None)

    @checked
    async def describe_producers(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """The producers that partitions remember, with their open transactions. The first partition
        whose leader has no answer in time raises.
        """
        names = unique(partitions)

        async def attempt(
            left_ms: int,
        ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
            found = await self.try_describe_producers(names, left_ms)
            return dict(zip(found, all_or_raise(found.values()), strict=True))

        return await self._calls.until(self._limit_ms(timeout_ms), attempt, doubt=None)

    @checked
    async def try_describe_producers(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...] | TidelogError]:
        """The same with each partition's own outcome, asked once."""
        tried = "describe producers"
        names = unique(partitions)
        limit_ms = self._limit_ms(timeout_ms)
        places = await self._group_places(names, limit_ms, tried)
        results: list[tuple[ProducerDescription, ...] | TidelogError] = []
        for _, request in portions(
            wire.DESCRIBE_PRODUCERS,
            [places[name] for name in names],
            wire.describe_producers_request,
            lambda part: len(part) <= wire.PARTITIONS_A_REQUEST,
        ):
            data = await self._ask(tried, wire.DESCRIBE_PRODUCERS, request, limit_ms)
            results += wire.read_producers(data)
        return dict(zip(names, group_calls.of_partitions(tried, names, results), strict=True))

    @checked
    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        older_than_ms: int = plans.HANGING_AFTER_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Open transactions of partitions (None: of all) that no coordinator will ever end: readers
        of committed records wait at them for ever. There should be none.
        """
        limit_ms = self._limit_ms(timeout_ms)
        if partitions is None:
            await self._learn_brokers("find hanging transactions", limit_ms)
            await self._calls.refresh((), limit_ms, all_topics=True)
            names = plans.every_partition(self._calls.metadata)
        else:
            names = unique(partitions)
        if not names:
            return []
        producers = await self.describe_producers(names, limit_ms)
        found = plans.suspects(producers, older_than_ms)
        if not found:
            return []
        in_progress = await self.list_transactions(plans.IN_PROGRESS, 0, limit_ms)
        found = plans.nobodys(found, in_progress)
        if not found:
            return []
        again = await self.describe_producers({each.partition for each in found}, limit_ms)
        return plans.still_open(found, again)

    @checked
    async def abort_hanging_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        transaction_start_offset: int,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """End a hanging transaction on one partition: its records there count as aborted. Refused
        while a coordinator has one of this producer in progress, or could not be asked.
        """
        tried = f"abort a hanging transaction of {partition.topic}-{partition.partition}"
        limit_ms = self._limit_ms(timeout_ms)
        places = await self._group_places([partition], limit_ms, tried)
        request = wire.abort_hanging_request(
            places[partition],
            producer_id,
            transaction_start_offset,
            validate_only=validate_only,
        )
        await self._ask(tried, wire.ABORT_HANGING, request, limit_ms, validate_only=validate_only)
