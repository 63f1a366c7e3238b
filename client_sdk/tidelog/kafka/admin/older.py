"""What scripts written for kafka-python 2 call: names that version 3 no longer has.

Owns the older names and the tuples that they answer with. What is done is the newer calls', so that
there is one way to do it.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tidelog.client import OffsetAndMetadata, TopicPartition
from tidelog.kafka import errors
from tidelog.kafka.admin.base import listed
from tidelog.kafka.admin.groups import GroupCalls
from tidelog.kafka.errors import KafkaError
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.translation import translated, translating
from tidelog.kafka.structs import GroupInformation, MemberInformation
from tidelog.wire.errors import TidelogError

_CONSUMER: Final = "consumer"


class MemberMetadata(NamedTuple):
    """What a member subscribes to."""

    version: int
    topics: list[str]
    user_data: bytes


class MemberAssignment(NamedTuple):
    """What a member owns."""

    version: int
    assignment: list[tuple[str, list[int]]]
    user_data: bytes

    def partitions(self) -> list[TopicPartition]:
        """The same as partitions."""
        return [
            TopicPartition(topic, number)
            for topic, numbers in self.assignment
            for number in numbers
        ]


class OlderCalls(GroupCalls):
    """Groups by the names and in the forms of kafka-python 2.

    `group_coordinator_id` is taken for its sake: any broker knows the coordinator.
    """

    @checked
    def list_consumer_groups(
        self, broker_ids: Iterable[int] | None = None
    ) -> list[tuple[str, str]]:
        """All groups, each with its protocol's type."""
        del broker_ids
        return [(each["group_id"], each["protocol_type"]) for each in self.list_groups()]

    @checked
    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupInformation]:
        """Members and what they own; as in version 2, a group that is not there is told `Dead`."""
        del group_coordinator_id, include_authorized_operations
        found = self.describe_groups(listed(group_ids, "group_ids"))
        return [_information(group) for group in found.values()]

    @checked
    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; of partitions that are named and have nothing: -1."""
        del group_coordinator_id
        names = None if partitions is None else listed(partitions, "partitions")
        found = self.list_group_offsets({group_id: names})[group_id]
        nothing = OffsetAndMetadata(-1, "", -1)
        return found if names is None else {name: found.get(name, nothing) for name in names}

    @checked
    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, type[KafkaError]]]:
        """Delete groups without members; the class of each one's error, NoError if it is gone."""
        del group_coordinator_id
        with translating():
            found = self._client.try_delete_groups(listed(group_ids, "group_ids"))
        return [(name, _class_of(error)) for name, error in found.items()]


def _class_of(error: TidelogError | None) -> type[KafkaError]:
    return errors.NoError if error is None else type(translated(error))


def _information(group: dict[str, Any]) -> GroupInformation:
    return GroupInformation(
        0,
        group["group_id"],
        group["group_state"],
        _CONSUMER if group["error"] is None else "",
        group["protocol_data"],
        [_member(each) for each in group["members"]],
        [],
    )


def _member(member: dict[str, Any]) -> MemberInformation:
    owned = member["member_assignment"]["assigned_partitions"]
    return MemberInformation(
        member["member_id"],
        member["client_id"],
        member["client_host"],
        MemberMetadata(0, member["member_metadata"]["topics"], b""),
        MemberAssignment(0, [(each["topic"], each["partitions"]) for each in owned], b""),
    )
