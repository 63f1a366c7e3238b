"""`tidelog group describe`: a group, how far each partition was read, and who its members are."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import DELETED, check_known
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import known, table
from tidelog.cli.txn.arguments import moment

if TYPE_CHECKING:
    from tidelog.client import AdminClient, TopicPartition
    from tidelog.client.types.groups import GroupDescription, GroupPartition, MemberDescription

COMMAND: Final = "tidelog group describe"
DESCRIPTION: Final = (
    "Describe consumer groups: state and coordinator; then each partition with the offset where "
    "the group goes on (Committed), where the log begins (Start) and ends (End), how many records "
    "are not read yet (Lag), and who owns it; then offsets that transactions in progress have "
    "sent, for which readers wait; then each member with what it subscribes to and what it owns. "
    "`-`: nothing was committed, nobody owns it, or it is not known at the moment."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing", "one group"),
    (f"{COMMAND} --only-with-lag", "of all groups, what is not read yet"),
    (f"{COMMAND} billing --json", "for programs"),
)
_HEAD: Final = ("Topic", "Partition", "Committed", "Start", "End", "Lag", "Member")
_RIGHT: Final = "Partition Committed Start End Lag"
_HELD_HEAD: Final = ("Topic", "Partition", "Sent", "Transaction", "Producer", "Since")
_MEMBER_HEAD: Final = (
    "Member",
    "Instance",
    "Client",
    "Address",
    "Epoch",
    "LastHeard",
    "Subscribes",
    "Owns",
)


def configure(parser: Parser) -> None:
    """Names, choice and form."""
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    parser.add_argument(
        "--only-with-lag", action="store_true", help="only partitions that have something to read"
    )
    add_json(
        parser,
        "a list of {group, state, type, coordinator, assignor, group_epoch, assignment_epoch, lag, "
        "partitions: [{topic, topic_id, partition, committed_offset, log_start_offset, "
        "high_watermark, lag, member_id, commit_time_ms, metadata, undecided: null or "
        "{transactional_id, producer_id, producer_epoch, offset, since_ms}}], members: [{"
        "member_id, group_instance_id, client_id, address, member_epoch, topics, topic_pattern, "
        "assigned: "
        "[{topic, partition}], target: [{topic, partition}], silence_ms}]}; -1: not known, or "
        "nothing; topic empty: it was deleted",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin, controller_hint(admin):
        found = described(admin, list(dict.fromkeys(arguments.groups)))
    if arguments.only_with_lag:
        found = [behind(each) for each in found]
        if not arguments.groups:
            found = [each for each in found if each.partitions]
    if arguments.json:
        print_json([as_json(each) for each in found])
    elif found:
        print("\n\n".join(as_text(each) for each in found))
    else:
        print("nothing is behind" if arguments.only_with_lag else "there are no groups yet")
    return EXIT_OK


def described(admin: "AdminClient", names: list[str]) -> "list[GroupDescription]":
    """These, or all; one that is not there is told with the name that was probably meant."""
    if names:
        check_known(admin, *names)
    else:
        names = [each.group_id for each in admin.list_groups(timeout_ms=answer_timeout_ms())]
    return admin.describe_groups(names, answer_timeout_ms())


def behind(group: "GroupDescription") -> "GroupDescription":
    """The group with the partitions that have a lag, or of which it is not known."""
    import msgspec

    kept = tuple(each for each in group.partitions if each.lag)
    return msgspec.structs.replace(group, partitions=kept)


def as_text(group: "GroupDescription") -> str:
    """What a person reads."""
    head = "  ".join(
        (
            f"Group: {group.group_id}",
            f"State: {group.state.value}",
            f"Type: {group.group_type.value}",
            f"Coordinator: {known(group.coordinator_id)}",
            f"Assignor: {group.assignor}",
            f"Epoch: {group.group_epoch} (assigned: {group.assignment_epoch})",
            f"Lag: {known(group.lag)}",
        )
    )
    parts = [head]
    if group.partitions:
        rows = [_row(each) for each in group.partitions]
        parts.append(_indented(table(_HEAD, rows, right=_RIGHT)))
    else:
        parts.append("  no partitions")
    held = [each for each in group.partitions if each.undecided is not None]
    if held:
        parts.append(
            _indented(table(_HELD_HEAD, [_held_row(each) for each in held], right="Partition Sent"))
        )
    if group.members:
        rows = [_member_row(each) for each in group.members]
        parts.append(_indented(table(_MEMBER_HEAD, rows, right="Epoch")))
    else:
        parts.append("  no members")
    return "\n".join(parts)


def _row(each: "GroupPartition") -> tuple[object, ...]:
    return (
        each.topic or DELETED,
        each.partition,
        known(each.committed_offset),
        known(each.log_start_offset),
        known(each.high_watermark),
        known(each.lag),
        each.member_id or "-",
    )


def _held_row(each: "GroupPartition") -> tuple[object, ...]:
    """What a reader of the partition would have to wait for."""
    held = each.undecided
    assert held is not None, "only what a transaction holds is told of"
    return (
        each.topic or DELETED,
        each.partition,
        held.offset,
        held.transactional_id,
        f"{held.producer_id}@{held.producer_epoch}",
        moment(held.since_ms),
    )


def _member_row(each: "MemberDescription") -> tuple[object, ...]:
    wants = [*each.topics, *([f"/{each.topic_pattern}/"] if each.topic_pattern else [])]
    owns = shown_partitions(each.assigned)
    if each.assigned != each.target:
        owns += f" (to own: {shown_partitions(each.target)})"
    return (
        each.member_id,
        each.group_instance_id or "-",
        each.client_id or "-",
        each.address or "-",
        each.member_epoch,
        f"{each.silence_ms} ms ago",
        ",".join(wants) or "-",
        owns,
    )


def shown_partitions(partitions: "tuple[TopicPartition, ...]") -> str:
    """`orders:0-2,5 refunds:1`; `-`: none."""
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic or DELETED, []).append(each.partition)
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in by_topic.items()) or "-"


def _ranges(numbers: list[int]) -> str:
    """Runs of neighbours as `first-last`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def as_json(group: "GroupDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "group": group.group_id,
        "state": group.state.value,
        "type": group.group_type.value,
        "coordinator": group.coordinator_id,
        "assignor": group.assignor,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": group.lag,
        "partitions": [
            {
                "topic": each.topic,
                "topic_id": each.topic_id.hex(),
                "partition": each.partition,
                "committed_offset": each.committed_offset,
                "log_start_offset": each.log_start_offset,
                "high_watermark": each.high_watermark,
                "lag": each.lag,
                "member_id": each.member_id,
                "commit_time_ms": each.commit_time_ms,
                "metadata": each.metadata,
                "undecided": _undecided_json(each),
            }
            for each in group.partitions
        ],
        "members": [_member_json(each) for each in group.members],
    }


def _undecided_json(partition: "GroupPartition") -> dict[str, object] | None:
    held = partition.undecided
    if held is None:
        return None
    return {
        "transactional_id": held.transactional_id,
        "producer_id": held.producer_id,
        "producer_epoch": held.producer_epoch,
        "offset": held.offset,
        "since_ms": held.since_ms,
    }


def _member_json(member: "MemberDescription") -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "address": member.address,
        "member_epoch": member.member_epoch,
        "topics": list(member.topics),
        "topic_pattern": member.topic_pattern,
        "assigned": [each._asdict() for each in member.assigned],
        "target": [each._asdict() for each in member.target],
        "silence_ms": member.silence_ms,
    }
