"""How answers and records of groups read in a script."""

import msgspec

from tidelog.broker.groups.state.answers import (
    AlterOffsetsAnswer,
    DeleteOffsetsAnswer,
    DescribeGroupAnswer,
    ListGroupsAnswer,
    RemoveMembersAnswer,
    Response,
)
from tidelog.broker.groups.state.messages import StoredRecord
from tidelog.broker.groups.state.records import decode_record
from tidelog.wire.calls.groups import (
    CommitAnswer,
    FetchOffsetsAnswer,
    HeartbeatAnswer,
    StoredOffset,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


def partition(key: PartitionKey) -> str:
    """A topic's id is its name here."""
    return f"{key.topic_id.rstrip(bytes(1)).decode()}{key.partition}"


def answer(name: str, result: Response | TidelogError) -> list[str]:
    """Lines for one answer."""
    match result:
        case TidelogError():
            return [f"{name} refused {result.code.name}: {result.happened}".strip()]
        case HeartbeatAnswer():
            return [_heartbeat(name, result)]
        case CommitAnswer() | DeleteOffsetsAnswer():
            return [f"{name} {_errors(result.errors)}".strip()]
        case FetchOffsetsAnswer():
            found = [f"{partition(key)}={_stored(stored)}" for key, stored in result.offsets]
            return [" ".join(["offsets", *found])]
        case AlterOffsetsAnswer():
            return [" ".join(["before", *(_stored(each) for each in result.results)])]
        case ListGroupsAnswer():
            return [f"{each.group} {each.state.name} {each.member_count}" for each in result.groups]
        case RemoveMembersAnswer():
            return [" ".join(["removed", *result.removed_member_ids])]
        case DescribeGroupAnswer():
            return _description(result)
        case _:
            return [type(result).__name__]


def _heartbeat(name: str, result: HeartbeatAnswer) -> str:
    if result.member_epoch < 0:
        return f"{name}@{result.member_epoch}"
    assignment = "as before"
    if result.assignment is not None:
        owned = [
            f"{partition(each.key)}@{each.partition_assignment_epoch}" for each in result.assignment
        ]
        assignment = " ".join(["owns", *(owned or ["nothing"])])
    idle = " idle" if result.is_idle else ""
    return (
        f"{name}@{result.member_epoch} of {result.assignment_epoch}/{result.group_epoch} "
        f"{assignment}{idle}, next in {result.heartbeat_interval_ms}"
    )


def _errors(errors: tuple[TidelogError | None, ...]) -> str:
    return " ".join(each.code.name if each else "done" for each in errors)


def _stored(stored: StoredOffset | TidelogError | None) -> str:
    if isinstance(stored, TidelogError):
        return stored.code.name
    return str(stored.committed_offset) if stored else "none"


def _description(result: DescribeGroupAnswer) -> list[str]:
    epochs = f"{result.assignment_epoch}/{result.group_epoch}"
    lines = [f"{result.group} {result.state.name} {epochs} assignor {result.assignor}"]
    for member in result.members:
        owned = " ".join(
            f"{partition(each.key)}@{each.partition_assignment_epoch}" for each in member.assigned
        )
        target = " ".join(partition(each) for each in member.target)
        static = f" as {member.group_instance_id}" if member.group_instance_id else ""
        lines.append(
            f"  {member.member_id}{static} @{member.member_epoch} owns [{owned}] target [{target}] "
            f"silent {member.silence_ms}"
        )
    lines += [
        f"  {each.topic_name or '?'}{each.key.partition} {_stored(each.stored)} "
        f"{each.member_id or '-'}"
        for each in result.partitions
    ]
    return lines


def records(log: list[StoredRecord]) -> list[str]:
    """The last value of each key, as compaction keeps it."""
    last = {record.key: record.value for record in log}
    lines = []
    for key, value in last.items():
        decoded = decode_record(key, value)
        if decoded is not None and decoded[1] is not None:
            where = " ".join(
                str(each) for each in msgspec.structs.astuple(decoded[0]) if isinstance(each, str)
            )
            lines.append(f"{type(decoded[0]).__name__} {where}")
    return lines
