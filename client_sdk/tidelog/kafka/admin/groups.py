"""Consumer groups, as scripts call KafkaAdminClient.

Owns kafka-python's forms of what is asked and answered. What is done is the client's.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Any, Final, Self

from tidelog.client import OffsetAndMetadata, TopicPartition
from tidelog.client.arguments.kinds import shown
from tidelog.client.types.groups import GroupDescription, GroupListing, MemberDescription
from tidelog.client.types.groups import GroupState as State
from tidelog.client.types.groups import GroupType as Type
from tidelog.client.types.groups import MemberToRemove as Removed
from tidelog.client.types.groups import OffsetTimestamp as AtTime
from tidelog.kafka import errors
from tidelog.kafka.admin.base import SPECIAL, AdminBase
from tidelog.kafka.admin.types import MemberToRemove, OffsetSpec, OffsetTimestamp
from tidelog.kafka.errors import KafkaError
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translated, translating
from tidelog.wire.errors import TidelogError


class NamedText(StrEnum):
    """Text that scripts may give in any case."""

    @classmethod
    def build_from(cls, value: Any, name: str = "") -> Self:
        """From a member, its text or its name; `name` is the argument that it was given as."""
        wanted = value.value if isinstance(value, Enum) else value
        if isinstance(wanted, str):
            squeezed = wanted.replace("-", "").replace("_", "").lower()
            for member in cls:
                if member.value.lower() == squeezed:
                    return member
        raise ValueError(f"{name and name + ': '}Unrecognized {cls.__name__}: {shown(value)}")


class GroupState(NamedText):
    """In what state a group is."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(NamedText):
    """Who divides the partitions."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


STATES: Final[Mapping[State, GroupState]] = {
    State.EMPTY: GroupState.EMPTY,
    State.ASSIGNING: GroupState.ASSIGNING,
    State.RECONCILING: GroupState.RECONCILING,
    State.STABLE: GroupState.STABLE,
    State.UNKNOWN: GroupState.UNKNOWN,
}
TYPES: Final[Mapping[Type, GroupType]] = {
    Type.RECONCILED: GroupType.CONSUMER,
    Type.CLASSIC: GroupType.CLASSIC,
    Type.SHARE: GroupType.SHARE,
    Type.UNKNOWN: GroupType.UNKNOWN,
}
_SPECS: Final[Mapping[int, str]] = {
    OffsetSpec.LATEST: "latest",
    OffsetSpec.EARLIEST: "earliest",
    OffsetSpec.MAX_TIMESTAMP: "max_timestamp",
}
Verdicts = dict[TopicPartition, type[KafkaError]]
"""NoError where it was done."""


class GroupCalls(AdminBase):
    """List, describe, delete; offsets of groups and their members.

    `group_coordinator_id` is taken for kafka-python's sake: any broker knows the coordinator.
    """

    @checked
    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[Any] | None = None,
        types_filter: Iterable[Any] | None = None,
    ) -> list[dict[str, str]]:
        """All groups, whoever coordinates them, or those of some states and types."""
        states = {GroupState.build_from(each, "states_filter") for each in states_filter or ()}
        types = {GroupType.build_from(each, "types_filter") for each in types_filter or ()}
        with translating():
            found = self._client.list_groups()
        return [
            _listed(group)
            for group in found
            if (not states or STATES[group.state] in states)
            and (not types or TYPES[group.group_type] in types)
        ]

    @checked
    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Members and what they own; a group that is not there has an `error`."""
        with translating():
            found = self._client.try_describe_groups(group_ids)
        return {name: _described(name, group) for name, group in found.items()}

    @checked
    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> dict[str, str]:
        """Delete groups without members; `OK` or the name of the error, each."""
        with translating():
            found = self._client.try_delete_groups(group_ids)
        return {
            name: "OK" if error is None else type(translated(error)).__name__
            for name, error in found.items()
        }

    @checked
    def list_group_offsets(
        self, group_specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed, of these partitions or of all."""
        with translating():
            return self._client.list_group_offsets(group_specs)

    @checked
    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> Verdicts:
        """Set committed offsets, all or none; refused while the group has members."""
        try:
            self._client.alter_group_offsets(group_id, offsets)
        except TidelogError as error:
            return dict.fromkeys(offsets, type(translated(error)))
        return dict.fromkeys(offsets, errors.NoError)

    @checked
    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Set committed offsets to an OffsetSpec, an OffsetTimestamp or an offset, within what each
        partition holds; refused while the group has members.
        """
        wanted = {name: _reset_to(name, spec) for name, spec in offset_specs.items()}
        with translating(SPECIAL):
            found = self._client.reset_group_offsets(group_id, wanted)
        return {name: {"error": errors.NoError, "offset": at.offset} for name, at in found.items()}

    @checked
    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
    ) -> Verdicts:
        """Forget committed offsets of partitions that no member subscribes to."""
        with translating():
            found = self._client.try_delete_group_offsets(group_id, partitions)
        return {
            name: errors.NoError if error is None else type(translated(error))
            for name, error in found.items()
        }

    @checked
    def remove_group_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove],
        group_coordinator_id: int | None = None,
    ) -> dict[MemberToRemove, type[KafkaError]]:
        """Make members leave; a living one joins again."""
        wanted = list(members)
        found: dict[MemberToRemove, type[KafkaError]] = {}
        for member in wanted:
            asked = Removed(member.member_id, member.group_instance_id)
            try:
                removed = self._client.remove_group_members(group_id, [asked])
            except TidelogError as error:
                found[member] = type(translated(error))
            else:
                found[member] = errors.NoError if removed else errors.UnknownMemberIdError
        return found


def _listed(group: GroupListing) -> dict[str, str]:
    return {
        "group_id": group.group_id,
        "protocol_type": "consumer",
        "group_state": STATES[group.state].value,
        "group_type": TYPES[group.group_type].value,
    }


def _described(name: str, group: GroupDescription | TidelogError) -> dict[str, Any]:
    if isinstance(group, TidelogError):
        return {
            "group_id": name,
            "error": str(translated(group)),
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    return {
        "group_id": group.group_id,
        "error": None,
        "group_state": STATES[group.state].value,
        "protocol_type": "consumer",
        "protocol_data": group.assignor,
        "members": [_member(each) for each in group.members],
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    assigned: dict[str, list[int]] = {}
    for name in member.assigned:
        assigned.setdefault(name.topic, []).append(name.partition)
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id or None,
        "client_id": member.client_id,
        "client_host": member.address,
        "member_metadata": {"topics": list(member.topics)},
        "member_assignment": {
            "assigned_partitions": [
                {"topic": topic, "partitions": numbers} for topic, numbers in assigned.items()
            ]
        },
    }


def _reset_to(name: TopicPartition, spec: Any) -> Any:
    if isinstance(spec, OffsetSpec):
        return _SPECS[spec]
    if isinstance(spec, OffsetTimestamp):
        return AtTime(spec)
    if isinstance(spec, int) and not isinstance(spec, bool):
        return int(spec)
    raise TypeError(f"offset_specs: Unsupported reset target for {name}: {shown(spec)}")
