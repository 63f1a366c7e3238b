"""Groups, as `sync.admin_groups` for threads.

Any broker answers and asks the coordinators itself; only committed offsets of a group are read from
its own coordinator.
"""

import asyncio
import functools
import time
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tidelog.client.aio.admin.offsets import AsyncOffsetCalls
from tidelog.client.engine.group import admin_calls as group_calls
from tidelog.client.engine.group.admin_calls import GroupSpecs, Outcomes, ResetTo
from tidelog.client.shared import group_plans
from tidelog.client.shared.checked import checked
from tidelog.client.shared.group_plans import Plan, Settling
from tidelog.client.sync.admin.base import all_or_raise
from tidelog.client.types.groups import (
    GroupDescription,
    GroupList,
    GroupListing,
    GroupState,
    GroupType,
    MemberToRemove,
)
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.client.wire import groups as wire_groups
from tidelog.client.wire import groups_admin as wire_groups_admin
from tidelog.contract.groups import FETCH_OFFSETS
from tidelog.wire.errors import TidelogError

T = TypeVar("T")


class AsyncGroupCalls(AsyncOffsetCalls):
    """List, describe, delete; offsets of groups and their members."""

    @checked
    async def list_groups(
        self,
        states_filter: Iterable[GroupState] = (),
        types_filter: Iterable[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """All groups by name, or those of some states and types. While a coordinator cannot be
        asked its groups would be missing: then they are asked again, and it raises in the end.
        """
        states, types = list(states_filter), list(types_filter)

        async def attempt(left_ms: int) -> list[GroupListing]:
            found = await self.try_list_groups(states, types, left_ms)
            group_calls.check_complete(found)
            return list(found.groups)

        return await self._calls.until(self._limit_ms(timeout_ms), attempt, doubt=None)

    @checked
    async def try_list_groups(
        self,
        states_filter: Iterable[GroupState] = (),
        types_filter: Iterable[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> GroupList:
        """The groups of all coordinators that answer, and how many did not."""
        pages = group_plans.Pages(states_filter, types_filter, self._limit_ms(timeout_ms))
        while not pages.is_complete:
            data = await self._ask(
                "list groups", wire_groups_admin.LIST_GROUPS, pages.next_request(), pages.left_ms
            )
            pages.take(data)
        return pages.all()

    @checked
    async def describe_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> list[GroupDescription]:
        """Members, what they own, how far each partition was read. The first group that could not
        be described raises.
        """
        return all_or_raise((await self.try_describe_groups(group_ids, timeout_ms)).values())

    @checked
    async def try_describe_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, GroupDescription | TidelogError]:
        """The same with each group's own outcome."""
        outcomes = Outcomes[GroupDescription](group_ids)
        await self._learn_brokers("describe groups", self._limit_ms(timeout_ms))
        names = await self._group_topics(self._limit_ms(timeout_ms))
        return await self._settled(group_plans.describe(outcomes, names), timeout_ms)

    @checked
    async def delete_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Delete groups with their offsets; refused while a group has members. The first that
        could not be deleted raises, the others are deleted.
        """
        all_or_raise((await self.try_delete_groups(group_ids, timeout_ms, validate_only)).values())

    @checked
    async def try_delete_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[str, TidelogError | None]:
        """The same with each group's own outcome; None: it is gone."""
        plan = group_plans.delete(group_ids, validate_only=validate_only)
        return await self._settled(plan, timeout_ms)

    @checked
    async def list_group_offsets(
        self,
        group_specs: GroupSpecs,
        timeout_ms: int | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed; a group that committed nothing has nothing. Partitions of
        deleted topics are left out.
        """
        tried = "list group offsets"
        specs = group_calls.group_specs(group_specs)
        limit_ms = self._limit_ms(timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        await self._learn_brokers(tried, limit_ms)
        names = await self._group_topics(limit_ms)
        found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for group, wanted in specs.items():
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            read = functools.partial(self._read, group)
            offsets = await self._calls.until(left_ms, read, doubt=None)
            found[group] = group_calls.named_offsets(offsets, names, wanted)
        return found

    @checked
    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, int]:
        """Set committed offsets, all or none; refused while the group has members. The answer is
        what was there before; -1: nothing.
        """
        tried = f"alter offsets of group {group_id}"
        wanted = group_calls.offset_specs(offsets)
        if not wanted:
            return {}
        limit_ms = self._limit_ms(timeout_ms)
        places = await self._group_places(wanted, limit_ms, tried)
        placed = [(places[name], offset) for name, offset in wanted.items()]
        plan = group_plans.alter_offsets(tried, group_id, placed, validate_only=validate_only)
        await self._settled(plan, limit_ms)
        answers = group_calls.one(plan.outcomes)
        results = group_calls.of_partitions(tried, wanted, answers)
        return dict(zip(wanted, all_or_raise(results), strict=True))

    @checked
    async def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, ResetTo],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Set committed offsets to `earliest`, `latest`, `max_timestamp`, an OffsetTimestamp or an
        offset, within what each partition holds. The answer is what is set.
        """
        specs = {TopicPartition(*name): to for name, to in offset_specs.items()}
        starts = await self.list_partition_offsets(dict.fromkeys(specs, "earliest"), timeout_ms)
        ends = await self.list_partition_offsets(dict.fromkeys(specs, "latest"), timeout_ms)
        found = await self.list_partition_offsets(group_calls.looked_up(specs), timeout_ms)
        offsets = group_calls.reset_offsets(specs, starts, ends, found)
        await self.alter_group_offsets(group_id, offsets, timeout_ms, validate_only)
        return offsets

    @checked
    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """Forget committed offsets of partitions that no member subscribes to. The first that was
        refused raises, the others are forgotten.
        """
        outcomes = await self.try_delete_group_offsets(
            group_id, partitions, timeout_ms, validate_only
        )
        all_or_raise(outcomes.values())

    @checked
    async def try_delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, TidelogError | None]:
        """The same with each partition's own outcome; None: it is forgotten."""
        tried = f"delete offsets of group {group_id}"
        names = group_plans.unique(partitions)
        if not names:
            return {}
        limit_ms = self._limit_ms(timeout_ms)
        places = await self._group_places(names, limit_ms, tried)
        wanted = [places[name] for name in names]
        plan = group_plans.delete_offsets(tried, group_id, wanted, validate_only=validate_only)
        await self._settled(plan, limit_ms)
        answers = group_calls.one(plan.outcomes)
        results = group_calls.of_partitions(tried, names, answers)
        return dict(zip(names, results, strict=True))

    @checked
    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        timeout_ms: int | None = None,
    ) -> list[str]:
        """Make members leave, or all of them; ids of those that were members. A living one joins
        again.
        """
        plan = group_plans.remove_members(group_id, members)
        await self._settled(plan, timeout_ms)
        return group_calls.one(plan.outcomes)

    # Inside.

    async def _settled(self, plan: Plan[T], timeout_ms: int | None) -> dict[str, T | TidelogError]:
        """Every name with an answer that stays, or with what there was when the time was over."""
        settling = Settling(plan, self._limit_ms(timeout_ms))
        while (request := settling.next_request()) is not None:
            try:
                data = await self._ask(
                    plan.tried,
                    plan.method,
                    request,
                    settling.left_ms,
                    may_repeat=plan.outcomes.may_repeat,
                    validate_only=plan.validate_only,
                    doubt=settling.doubt,
                )
                settling.take(data)
            except TidelogError as error:
                settling.fail(error)
            if pause := settling.pause_s(self._calls.delay_seconds):
                await asyncio.sleep(pause)
        return plan.outcomes.all()

    async def _group_topics(self, timeout_ms: int) -> dict[bytes, str]:
        """Names of topics by id."""
        await self._calls.refresh((), timeout_ms, all_topics=True)
        topics = self._calls.metadata.topics
        return {topic.topic_id: topic.name for topic in topics.values()}

    async def _group_places(
        self, names: Iterable[TopicPartition], timeout_ms: int, tried: str
    ) -> dict[TopicPartition, group_calls.Place]:
        """Topic ids as they are now; a partition that is not there is refused."""
        await self._learn_brokers(tried, timeout_ms)
        wanted = list(names)
        await self._calls.refresh({name.topic for name in wanted}, timeout_ms)
        for topic in dict.fromkeys(name.topic for name in wanted):
            await self._calls.topic(topic, timeout_ms, tried=tried)
        return group_calls.places(self._calls.metadata, wanted, tried=tried)

    async def _read(
        self, group: str, timeout_ms: int
    ) -> dict[group_calls.Place, OffsetAndMetadata]:
        """From the group's coordinator, looked up anew."""
        data = await self._ask(
            f"find the coordinator of group {group}",
            wire_groups.FIND_COORDINATORS,
            wire_groups.find_coordinators_request([group]),
            timeout_ms,
        )
        (address,) = all_or_raise(wire_groups_admin.read_coordinators(data))
        answer = await self._connections.call(
            address,
            FETCH_OFFSETS,
            wire_groups_admin.fetch_offsets_request(group),
            timeout_ms,
        )
        return wire_groups_admin.read_offsets(answer)
