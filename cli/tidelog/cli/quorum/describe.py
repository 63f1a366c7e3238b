"""`tidelog quorum describe`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, print_json, quorum_hint
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import table

if TYPE_CHECKING:
    from tidelog.client.types.admin import QuorumDescription, QuorumMember, QuorumMemberStatus

DESCRIPTION: Final = (
    "Describe the metadata quorum as its leader sees it: who leads in which term, the last and "
    "the last committed entry, and of each voter and learner the last entry that it has fsynced "
    "(Match), how many it lacks (Lag), and when the leader heard of it. Below them the nodes that "
    "read the metadata without a vote."
)
EXAMPLES: Final = (
    ("tidelog quorum describe", "who leads, who lags"),
    ("tidelog quorum describe --json", "for programs"),
)
SILENT_AFTER_MS: Final = 2_000
"""Many heartbeats, and an election timeout of the default."""
_HEAD: Final = (
    "Node",
    "Role",
    "Address",
    "DirectoryUuid",
    "Match",
    "Lag",
    "LastContact",
    "State",
)


def configure(parser: Parser) -> None:
    """Form and address."""
    add_json(
        parser,
        "{leader_id, term, last_index, commit_index, log_start_index, is_membership_changing, "
        "members: [{node_id, directory_uuid, address, is_learner, match_index, lag, "
        "last_contact_ms, state}], observers: [{node_id, applied_index, lag}]}; last_contact_ms "
        "-1: never",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    with quorum_hint(), admin_client(arguments) as admin:
        quorum = admin.describe_metadata_quorum(answer_timeout_ms())
    if arguments.json:
        print_json(as_json(quorum))
    else:
        print(as_text(quorum))
    return EXIT_OK


def state(member: "QuorumMemberStatus") -> str:
    """What it is doing, in a word."""
    if member.is_repairing:
        return "repairing"
    if member.is_installing_snapshot:
        return "fetching snapshot"
    if member.last_contact_ms < 0:
        return "never heard"
    if member.last_contact_ms > SILENT_AFTER_MS:
        return "silent"
    return "following"


def as_text(quorum: "QuorumDescription") -> str:
    """What a person reads."""
    changing = "  MembershipChange: under way" if quorum.is_membership_changing else ""
    head = (
        f"Leader: {quorum.leader_id}  Term: {quorum.term}  LastIndex: {quorum.last_index}  "
        f"CommitIndex: {quorum.commit_index}  LogStartIndex: {quorum.log_start_index}{changing}"
    )
    rows = [_row(quorum, each) for each in quorum.members]
    lines = [head]
    lines += [f"  {line}" for line in table(_HEAD, rows, right="Node Match Lag").splitlines()]
    if quorum.observers:
        observers = [
            (each.node_id, each.applied_index, max(0, quorum.commit_index - each.applied_index))
            for each in quorum.observers
        ]
        below = table(("Observer", "Applied", "Lag"), observers, right="Observer Applied Lag")
        lines += [f"  {line}" for line in below.splitlines()]
    return "\n".join(lines)


def _row(quorum: "QuorumDescription", each: "QuorumMemberStatus") -> tuple[object, ...]:
    member = each.member
    is_leader = member.node_id == quorum.leader_id and not member.is_learner
    role = "leader" if is_leader else role_of(member)
    contact = "-" if is_leader or each.last_contact_ms < 0 else f"{each.last_contact_ms} ms ago"
    told = "leading" if is_leader else state(each)
    uuid = member.directory_uuid.hex()
    return (member.node_id, role, member.address, uuid, each.match_index, each.lag, contact, told)


def role_of(member: "QuorumMember") -> str:
    """Voter or learner."""
    return "learner" if member.is_learner else "voter"


def as_json(quorum: "QuorumDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "leader_id": quorum.leader_id,
        "term": quorum.term,
        "last_index": quorum.last_index,
        "commit_index": quorum.commit_index,
        "log_start_index": quorum.log_start_index,
        "is_membership_changing": quorum.is_membership_changing,
        "members": [
            {
                **member_json(each.member),
                "match_index": each.match_index,
                "lag": each.lag,
                "last_contact_ms": each.last_contact_ms,
                "state": "leading"
                if each.member.node_id == quorum.leader_id and not each.member.is_learner
                else state(each),
            }
            for each in quorum.members
        ],
        "observers": [
            {
                "node_id": each.node_id,
                "applied_index": each.applied_index,
                "lag": max(0, quorum.commit_index - each.applied_index),
            }
            for each in quorum.observers
        ],
    }


def member_json(member: "QuorumMember") -> dict[str, object]:
    """A member's fields."""
    return {
        "node_id": member.node_id,
        "directory_uuid": member.directory_uuid.hex(),
        "address": member.address,
        "is_learner": member.is_learner,
    }


def members_text(members: "tuple[QuorumMember, ...]") -> str:
    """Who votes and who learns, on one line."""
    voters = ", ".join(str(each.node_id) for each in members if not each.is_learner)
    learners = ", ".join(str(each.node_id) for each in members if each.is_learner)
    return f"voters: {voters or 'none'}" + (f"; learners: {learners}" if learners else "")
