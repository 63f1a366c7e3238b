"""`tidelog storage info`: what a stopped controller's quorum directory holds."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK
from tidelog.cli.show.table import size, table

if TYPE_CHECKING:
    from tidelog.metadata_quorum.raft.types import Members
    from tidelog.metadata_quorum.recovery.survey import Survey

DESCRIPTION: Final = (
    "Show what the quorum directory of a stopped controller holds: whose it is, its term and "
    "vote, its snapshot, its first and last entry, its members, and every damage found. Changes "
    "nothing; refused while a node runs on it. Exit code 1: damage was found."
)
EXAMPLES: Final = (
    ("tidelog storage info data", "of the node with data_dir = data"),
    ("tidelog storage info data/quorum --json", "for programs"),
)


def configure(parser: Parser) -> None:
    """Which directory."""
    parser.add_argument("directory", metavar="DIR", help="a data_dir, or the `quorum` in it")
    add_json(
        parser,
        "{directory, cluster_id, node_id, directory_uuid, format_version, term, voted_for, "
        "snapshot_end_index, snapshot_term, first_index, last_index, last_term, members: "
        "[{node_id, directory_uuid, address, is_learner}], size_bytes, damage: [sentence]}; "
        "-1: none",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look and print."""
    from tidelog.server.commands.recover import survey_directory

    directory, found = survey_directory(arguments.directory)
    if arguments.json:
        print_json(as_json(str(directory), found))
    else:
        print(as_text(str(directory), found))
    return EXIT_FAILED if found.damage else EXIT_OK


def as_text(directory: str, found: "Survey") -> str:
    """What a person reads."""
    state, snapshot = found.hard_state, found.snapshot
    vote = f"node {state.voted_for.node_id}" if state.voted_for is not None else "nobody"
    kept = "none"
    if snapshot is not None:
        kept = f"up to entry {snapshot.last_index} of term {snapshot.id.term}"
        kept += f", {size(snapshot.size_bytes)}"
    entries = "none"
    if found.last_index >= found.first_index:
        entries = f"{found.first_index} to {found.last_index}, the last of term {found.last_term}"
    lines = [
        f"Directory: {directory}",
        (
            f"ClusterId: {found.identity.cluster_id}  NodeId: {found.identity.node_id}  "
            f"DirectoryUuid: {found.identity.directory_uuid.hex()}"
        ),
        f"Term: {state.term}  VotedFor: {vote}",
        f"Snapshot: {kept}",
        f"Entries: {entries}",
        f"Size: {size(found.size_bytes)}",
        "Members:" if found.members.members else "Members: none, it has not joined yet",
        *members_lines(found.members),
        "Damage:" if found.damage else "Damage: none found",
        *(f"  {sentence}" for sentence in found.damage),
    ]
    return "\n".join(lines)


def members_lines(members: "Members") -> list[str]:
    """A table, indented."""
    if not members.members:
        return []
    rows = [
        (
            member.id.node_id,
            "learner" if member.is_learner else "voter",
            member.address,
            member.id.directory_uuid.hex(),
        )
        for member in members
    ]
    head = ("Node", "Role", "Address", "DirectoryUuid")
    return [f"  {line}" for line in table(head, rows, right="Node").splitlines()]


def as_json(directory: str, found: "Survey") -> dict[str, object]:
    """What a program reads; the names stay."""
    state, snapshot = found.hard_state, found.snapshot
    return {
        "directory": directory,
        "cluster_id": found.identity.cluster_id,
        "node_id": found.identity.node_id,
        "directory_uuid": found.identity.directory_uuid.hex(),
        "format_version": found.identity.format_version,
        "term": state.term,
        "voted_for": -1 if state.voted_for is None else state.voted_for.node_id,
        "snapshot_end_index": -1 if snapshot is None else snapshot.id.end_index,
        "snapshot_term": -1 if snapshot is None else snapshot.id.term,
        "first_index": found.first_index,
        "last_index": found.last_index,
        "last_term": found.last_term,
        "members": members_json(found.members),
        "size_bytes": found.size_bytes,
        "damage": list(found.damage),
    }


def members_json(members: "Members") -> list[dict[str, object]]:
    """Their fields."""
    return [
        {
            "node_id": member.id.node_id,
            "directory_uuid": member.id.directory_uuid.hex(),
            "address": member.address,
            "is_learner": member.is_learner,
        }
        for member in members
    ]
