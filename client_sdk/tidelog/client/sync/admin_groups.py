"""Groups, as the admin client calls them.

Any broker answers and asks the coordinators itself; only committed offsets of a group are read from
its own coordinator.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tidelog.client import group_calls, wire_groups_admin
from tidelog.client.group_calls import GroupSpecs, Outcomes, ResetTo
from tidelog.client.group_types import (
    GroupDescription,
    GroupList,
    GroupListing,
    GroupState,
    GroupType,
    MemberToRemove,
)
from tidelog.client.sync.admin_base import all_or_raise
from tidelog.client.sync.admin_offsets import OffsetCalls
from tidelog.client.types import OffsetAndMetadata, TopicPartition
from tidelog.wire.errors import TidelogError

T = TypeVar("T")
Read = Callable[[bytes], Sequence[T | TidelogError]]


class GroupCalls(OffsetCalls):
    """List, describe, delete; offsets of groups and their members."""

    def list_groups(
        self,
        states_filter: Iterable[GroupState] = (),
        types_filter: Iterable[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """All groups by name, or those of some states and types. Raises where a coordinator could
        not be asked, because its groups would be missing.
        """
        found = self.try_list_groups(states_filter, types_filter, timeout_ms)
        group_calls.check_complete(found)
        return list(found.groups)

    def try_list_groups(
        self,
        states_filter: Iterable[GroupState] = (),
        types_filter: Iterable[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> GroupList:
        """The groups of all coordinators that answer, and how many did not."""
        limit_ms = self._limit_ms(timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        states, types = list(states_filter), list(types_filter)
        groups: list[GroupListing] = []
        missing, after_name = 0, ""
        while True:
            request = wire_groups_admin.list_groups_request(states, types, after_name=after_name)
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            data = self._ask("list groups", wire_groups_admin.LIST_GROUPS, request, left_ms)
            page, after_name = wire_groups_admin.read_groups(data)
            groups += page.groups
            missing = max(missing, page.missing_coordinators)
            if not after_name:
                return GroupList(groups=tuple(groups), missing_coordinators=missing)

    def describe_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> list[GroupDescription]:
        """Members, what they own, how far each partition was read. The first group that could not
        be described raises.
        """
        return all_or_raise(self.try_describe_groups(group_ids, timeout_ms).values())

    def try_describe_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None
    ) -> dict[str, GroupDescription | TidelogError]:
        """The same with each group's own outcome."""
        tried = "describe groups"
        outcomes = Outcomes[GroupDescription](group_ids)
        self._learn_brokers(tried, self._limit_ms(timeout_ms))
        names = self._group_topics(self._limit_ms(timeout_ms))
        return self._settled(
            tried,
            wire_groups_admin.DESCRIBE_GROUPS,
            outcomes,
            wire_groups_admin.describe_groups_request,
            lambda data: wire_groups_admin.read_descriptions(data, names),
            timeout_ms,
        )

    def delete_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, validate_only: bool = False
    ) -> None:
        """Delete groups with their offsets; refused while a group has members. The first that
        could not be deleted raises, the others are deleted.
        """
        all_or_raise(self.try_delete_groups(group_ids, timeout_ms, validate_only).values())

    def try_delete_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, validate_only: bool = False
    ) -> dict[str, TidelogError | None]:
        """The same with each group's own outcome; None: it is gone."""
        return self._settled(
            "delete groups",
            wire_groups_admin.DELETE_GROUPS,
            Outcomes[None](group_ids, may_repeat=False),
            lambda names: wire_groups_admin.delete_groups_request(
                names, validate_only=validate_only
            ),
            wire_groups_admin.read_deleted_groups,
            timeout_ms,
        )

    def list_group_offsets(
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
        self._learn_brokers(tried, limit_ms)
        names = self._group_topics(limit_ms)
        found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for group, wanted in specs.items():
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            read = functools.partial(self._read, group)
            offsets = self._calls.until(left_ms, read)
            found[group] = group_calls.named_offsets(offsets, names, wanted)
        return found

    def alter_group_offsets(
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
        places = self._group_places(wanted, limit_ms, tried)
        request = wire_groups_admin.alter_offsets_request(
            group_id,
            [(places[name], offset) for name, offset in wanted.items()],
            validate_only=validate_only,
        )
        outcomes = Outcomes[list[int | TidelogError]]([group_id])
        self._settled(
            tried,
            wire_groups_admin.ALTER_OFFSETS,
            outcomes,
            lambda _: request,
            wire_groups_admin.read_altered_offsets,
            limit_ms,
        )
        answers = group_calls.one(outcomes)
        results = group_calls.of_partitions(tried, wanted, answers)
        return dict(zip(wanted, all_or_raise(results), strict=True))

    def reset_group_offsets(
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
        starts = self.list_partition_offsets(dict.fromkeys(specs, "earliest"), timeout_ms)
        ends = self.list_partition_offsets(dict.fromkeys(specs, "latest"), timeout_ms)
        found = self.list_partition_offsets(group_calls.looked_up(specs), timeout_ms)
        offsets = group_calls.reset_offsets(specs, starts, ends, found)
        self.alter_group_offsets(group_id, offsets, timeout_ms, validate_only)
        return offsets

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """Forget committed offsets of partitions that no member subscribes to. The first that was
        refused raises, the others are forgotten.
        """
        outcomes = self.try_delete_group_offsets(group_id, partitions, timeout_ms, validate_only)
        all_or_raise(outcomes.values())

    def try_delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> dict[TopicPartition, TidelogError | None]:
        """The same with each partition's own outcome; None: it is forgotten."""
        tried = f"delete offsets of group {group_id}"
        names = sorted({TopicPartition(*each) for each in partitions})
        if not names:
            return {}
        limit_ms = self._limit_ms(timeout_ms)
        places = self._group_places(names, limit_ms, tried)
        request = wire_groups_admin.delete_offsets_request(
            group_id, [places[name] for name in names], validate_only=validate_only
        )
        outcomes = Outcomes[list[TidelogError | None]]([group_id])
        self._settled(
            tried,
            wire_groups_admin.DELETE_OFFSETS,
            outcomes,
            lambda _: request,
            wire_groups_admin.read_deleted_offsets,
            limit_ms,
        )
        answers = group_calls.one(outcomes)
        results = group_calls.of_partitions(tried, names, answers)
        return dict(zip(names, results, strict=True))

    def remove_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        timeout_ms: int | None = None,
    ) -> list[str]:
        """Make members leave, or all of them; ids of those that were members. A living one joins
        again.
        """
        request = wire_groups_admin.remove_members_request(
            group_id, group_calls.chosen_members(members)
        )
        outcomes = Outcomes[list[str]]([group_id], may_repeat=False)
        self._settled(
            f"remove members of group {group_id}",
            wire_groups_admin.REMOVE_MEMBERS,
            outcomes,
            lambda _: request,
            wire_groups_admin.read_removed_members,
            timeout_ms,
        )
        return group_calls.one(outcomes)

    # Inside.

    def _settled(
        self,
        tried: str,
        method: str,
        outcomes: Outcomes[T],
        make_request: Callable[[list[str]], bytes],
        read: Read[T],
        timeout_ms: int | None,
    ) -> dict[str, T | TidelogError]:
        """Ask until every name has an answer that stays, or the time is over."""
        limit_ms = self._limit_ms(timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        tries = 0
        while asked := outcomes.missing():
            left_ms = max(1, int((deadline - time.monotonic()) * 1000))
            try:
                data = self._ask(
                    tried, method, make_request(asked), left_ms, may_repeat=outcomes.may_repeat
                )
                is_done = outcomes.take(asked, read(data))
            except TidelogError as error:
                is_done = outcomes.fail(asked, error)
            if is_done:
                continue
            tries += 1
            delay = self._calls.delay_seconds(tries)
            if time.monotonic() + delay >= deadline:
                break
            time.sleep(delay)
        return outcomes.all()

    def _group_topics(self, timeout_ms: int) -> dict[bytes, str]:
        """Names of topics by id."""
        self._calls.refresh((), timeout_ms, all_topics=True)
        topics = self._calls.metadata.topics
        return {topic.topic_id: topic.name for topic in topics.values()}

    def _group_places(
        self, names: Iterable[TopicPartition], timeout_ms: int, tried: str
    ) -> dict[TopicPartition, group_calls.Place]:
        """Topic ids as they are now; a partition that is not there is refused."""
        self._learn_brokers(tried, timeout_ms)
        wanted = list(names)
        self._calls.refresh({name.topic for name in wanted}, timeout_ms)
        for topic in dict.fromkeys(name.topic for name in wanted):
            self._calls.topic(topic, timeout_ms, tried=tried)
        return group_calls.places(self._calls.metadata, wanted, tried=tried)

    def _read(self, group: str, timeout_ms: int) -> dict[group_calls.Place, OffsetAndMetadata]:
        """From the group's coordinator, looked up anew."""
        data = self._ask(
            f"find the coordinator of group {group}",
            wire_groups_admin.FIND_COORDINATORS,
            wire_groups_admin.find_coordinators_request([group]),
            timeout_ms,
        )
        (address,) = all_or_raise(wire_groups_admin.read_coordinators(data))
        answer = self._connections.call(
            address,
            wire_groups_admin.FETCH_OFFSETS,
            wire_groups_admin.fetch_offsets_request(group),
            timeout_ms,
        )
        return wire_groups_admin.read_offsets(answer)
