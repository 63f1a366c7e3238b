"""What the admin client asks about groups, and when once more: the same for both drivers.

Owns requests, their reading, pages, and the repetition until every group has an answer that stays.
It must never wait nor call anybody: a driver performs each step.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from tidelog.client.engine.cluster.tries import Doubt
from tidelog.client.engine.group import admin_calls as group_calls
from tidelog.client.engine.group.admin_calls import Outcomes, Place
from tidelog.client.shared.asking import doubt_of, only_reads
from tidelog.client.types.groups import (
    GroupDescription,
    GroupList,
    GroupListing,
    GroupState,
    GroupType,
    MemberToRemove,
)
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.client.wire import groups_admin as wire_groups_admin
from tidelog.wire.errors import TidelogError

T = TypeVar("T")


class Plan(Generic[T]):
    """One call about several groups, each with an outcome of its own."""

    def __init__(
        self,
        tried: str,
        method: str,
        outcomes: Outcomes[T],
        make_request: Callable[[list[str]], bytes],
        read: Callable[[bytes], Sequence[T | TidelogError]],
        *,
        validate_only: bool = False,
    ) -> None:
        self.tried = tried
        self.method = method
        self.outcomes = outcomes
        self.make_request = make_request
        self.read = read
        self.validate_only = validate_only

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.validate_only or only_reads(self.method)

    def doubt(self) -> Doubt | None:
        """Whether a request of it may have been done although it failed; None: it only reads."""
        return doubt_of(
            self.tried,
            self.method,
            may_repeat=self.outcomes.may_repeat,
            validate_only=self.validate_only,
        )


class Settling(Generic[T]):
    """Asks until every name has an answer that stays, or the time is over."""

    def __init__(
        self, plan: Plan[T], limit_ms: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._plan = plan
        self._clock = clock or time.monotonic
        self._deadline = self._clock() + limit_ms / 1000
        self.doubt = plan.doubt()
        """Of the request under way, and of those before it where it is repeated."""
        self._asked: list[str] = []
        self._tries = 0
        self._is_done = True
        """Whether the last answer left nothing to be asked again."""
        self._is_over = False

    def next_request(self) -> bytes | None:
        """What to ask now; None: nothing more."""
        self._asked = [] if self._is_over else self._plan.outcomes.missing()
        if not self._plan.outcomes.may_repeat:
            self.doubt = self._plan.doubt()
        return self._plan.make_request(self._asked) if self._asked else None

    @property
    def left_ms(self) -> int:
        """How long the next answer may take."""
        return max(1, int((self._deadline - self._clock()) * 1000))

    def take(self, data: bytes) -> None:
        """The answer."""
        self._is_done = self._plan.outcomes.take(self._asked, self._plan.read(data), self.doubt)

    def fail(self, error: TidelogError) -> None:
        """There is none."""
        self._is_done = self._plan.outcomes.fail(self._asked, error, reads=self._plan.reads)

    def pause_s(self, delay_seconds: Callable[[int], float]) -> float:
        """How long to wait before the next request."""
        if self._is_done:
            return 0.0
        self._tries += 1
        delay = delay_seconds(self._tries)
        self._is_over = self._clock() + delay >= self._deadline
        return 0.0 if self._is_over else delay


class Pages:
    """Groups, page by page."""

    def __init__(
        self, states: Iterable[GroupState], types: Iterable[GroupType], limit_ms: int
    ) -> None:
        self._states, self._types = list(states), list(types)
        self._deadline = time.monotonic() + limit_ms / 1000
        self._groups: list[GroupListing] = []
        self._missing = 0
        self._after_name = ""
        self.is_complete = False

    def next_request(self) -> bytes:
        """The page behind the last one."""
        return wire_groups_admin.list_groups_request(
            self._states, self._types, after_name=self._after_name
        )

    @property
    def left_ms(self) -> int:
        """How long the next page may take."""
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    def take(self, data: bytes) -> None:
        """A page."""
        page, self._after_name = wire_groups_admin.read_groups(data)
        self._groups += page.groups
        self._missing = max(self._missing, page.missing_coordinators)
        self.is_complete = not self._after_name

    def all(self) -> GroupList:
        """Those of all pages."""
        return GroupList(groups=tuple(self._groups), missing_coordinators=self._missing)


def describe(
    outcomes: Outcomes[GroupDescription], names: Mapping[bytes, str]
) -> Plan[GroupDescription]:
    """`names`: of topics, by id."""
    return Plan(
        "describe groups",
        wire_groups_admin.DESCRIBE_GROUPS,
        outcomes,
        wire_groups_admin.describe_groups_request,
        lambda data: wire_groups_admin.read_descriptions(data, names),
    )


def delete(group_ids: Iterable[str], *, validate_only: bool) -> Plan[None]:
    """Groups with their offsets."""
    return Plan(
        "delete groups",
        wire_groups_admin.DELETE_GROUPS,
        Outcomes[None](group_ids, may_repeat=False),
        lambda names: wire_groups_admin.delete_groups_request(names, validate_only=validate_only),
        wire_groups_admin.read_deleted_groups,
        validate_only=validate_only,
    )


def alter_offsets(
    tried: str,
    group_id: str,
    offsets: Sequence[tuple[Place, OffsetAndMetadata]],
    *,
    validate_only: bool,
) -> Plan[list[int | TidelogError]]:
    """All or none."""
    request = wire_groups_admin.alter_offsets_request(
        group_id, offsets, validate_only=validate_only
    )
    return Plan(
        tried,
        wire_groups_admin.ALTER_OFFSETS,
        Outcomes[list[int | TidelogError]]([group_id]),
        lambda _: request,
        wire_groups_admin.read_altered_offsets,
        validate_only=validate_only,
    )


def delete_offsets(
    tried: str, group_id: str, places: Sequence[Place], *, validate_only: bool
) -> Plan[list[TidelogError | None]]:
    """Each partition by itself."""
    request = wire_groups_admin.delete_offsets_request(
        group_id, places, validate_only=validate_only
    )
    return Plan(
        tried,
        wire_groups_admin.DELETE_OFFSETS,
        Outcomes[list[TidelogError | None]]([group_id]),
        lambda _: request,
        wire_groups_admin.read_deleted_offsets,
        validate_only=validate_only,
    )


def remove_members(group_id: str, members: Iterable[MemberToRemove] | None) -> Plan[list[str]]:
    """None: all of them."""
    request = wire_groups_admin.remove_members_request(
        group_id, group_calls.chosen_members(members)
    )
    return Plan(
        f"remove members of group {group_id}",
        wire_groups_admin.REMOVE_MEMBERS,
        Outcomes[list[str]]([group_id], may_repeat=False),
        lambda _: request,
        wire_groups_admin.read_removed_members,
    )


def unique(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """In their order by topic and number."""
    return sorted({TopicPartition(*each) for each in partitions})
