"""`tidelog quorum recover --unsafe`: a stopped node's quorum goes on with that node alone.

Owns what a person is told and asked before it is done. What is done is the server's.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import print_json
from tidelog.cli.frame.parser import Parser, add_json
from tidelog.cli.quorum.arguments import address
from tidelog.cli.show.errors import EXIT_OK, BadInput, CommandError, print_stderr
from tidelog.cli.show.terminal import is_terminal

if TYPE_CHECKING:
    from tidelog.metadata_quorum.recovery.unsafe import Recovery
    from tidelog.server.commands.recover import Kept, Recovered

COMMAND: Final = "tidelog quorum recover"
SENTENCE: Final = "I accept that committed metadata may be lost"
NAMES_MAX: Final = 20
"""Of topics and directories in a warning."""
DESCRIPTION: Final = (
    "The last resort, for a majority of voters that is gone for good: make this node, which must "
    "be stopped, the only voter. What the lost voters had committed and this node never got is "
    "lost. Choose the node with the highest last index (`tidelog storage info`), and never start "
    "another voter of the old quorum again: each of them must be formatted with --join.\n\n"
    "A lone voter whose journal is damaged, cut off, empty or gone goes on from what is left of "
    "journal and snapshot; with both gone only an export helps.\n\n"
    "It shows what may be lost and asks for a sentence, typed in full. The directory as it was is "
    "kept beside the new one."
)
EXAMPLES: Final = (
    (f"{COMMAND} --unsafe data", "of the stopped node with data_dir = data"),
    (f"{COMMAND} --unsafe data --dry-run", "only what would be done and lost"),
    (f'{COMMAND} --unsafe data --yes-i-accept "$SENTENCE"', "for scripts"),
)


def configure(parser: Parser) -> None:
    """Which directory, and the consent."""
    parser.add_argument("directory", metavar="DIR", help="a data_dir, or the `quorum` in it")
    parser.add_argument(
        "--unsafe", action="store_true", help="required: there is no safe way to do this"
    )
    parser.add_argument(
        "--address",
        type=address,
        metavar="HOST:PORT",
        help="of this node's cluster listener from now on (default: as it was)",
    )
    parser.add_argument("--yes-i-accept", metavar="SENTENCE", help=f"the sentence: {SENTENCE}")
    parser.add_argument("--dry-run", action="store_true", help="show everything, change nothing")
    add_json(
        parser,
        "{directory, backup, node_id, old_directory_uuid, directory_uuid, last_index, last_term, "
        "new_term, lost_members: [node id], lost_entries, unknown_directories: [name], "
        "is_changed}",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show, ask, do."""
    if not arguments.unsafe:
        raise BadInput(
            f"{COMMAND} {arguments.directory}",
            "--unsafe is missing, and committed metadata may be lost by this",
            "while a majority of the voters can still be started, start them instead",
        )
    if arguments.yes_i_accept is not None and arguments.yes_i_accept != SENTENCE:
        raise _not_accepted(arguments.directory)
    from tidelog.server.commands import recover

    directory, found, recovery = recover.plan_recovery(arguments.directory, arguments.address or "")
    kept = recover.kept_of(directory, found, recovery)
    print_stderr(
        warning(str(directory), recovery)
        if kept is None
        else warning_alone(str(directory), recovery, kept)
    )
    if arguments.dry_run:
        _show(arguments, as_json(str(directory), "", recovery, kept, is_changed=False))
        return EXIT_OK
    if arguments.yes_i_accept is None:
        _ask(arguments.directory)
    done = recover.recover(directory, found, recovery, kept)
    _show(arguments, as_json(str(directory), str(done.backup), recovery, kept, is_changed=True))
    if not arguments.json:
        print(as_text(done))
    return EXIT_OK


def warning(directory: str, recovery: "Recovery") -> str:
    """What will be done and what may be lost."""
    others = [
        f"  node {each.id.node_id} at {each.address}, directory {each.id.directory_uuid.hex()}"
        f"{', a learner' if each.is_learner else ''}"
        for each in recovery.others
    ]
    lines = [
        f"node {recovery.old_id.node_id} becomes the only voter, from what lies in {directory}.",
        (
            f"Its last entry is {recovery.last_index} of term {recovery.last_term}. How much "
            "of that was committed is not known here: all of it counts from now on."
        ),
        "What the others committed behind that entry is lost.",
        "These stop being members, and must never be started again with their directories:",
        *others,
    ]
    if recovery.lost_here:
        lines.insert(2, f"Entries {recovery.lost_here} are damaged here, and lost with it.")
    if recovery.was_learner:
        lines.insert(1, "It was a learner: choose a voter if one is left.")
    return "\n".join(lines)


def warning_alone(directory: str, recovery: "Recovery", kept: "Kept") -> str:
    """The same of a lone voter that is damaged: what is left, and what goes."""
    topics = sorted(topic.name for topic in kept.image.topics.values())
    named = ", ".join(topics[:NAMES_MAX]) + (", …" if len(topics) > NAMES_MAX else "")
    unknown = kept.unknown_directories
    lines = [
        (
            f"node {recovery.old_id.node_id} is the only voter, and {directory} is damaged: it "
            f"goes on from what is left up to entry {recovery.last_index} of term "
            f"{recovery.last_term}."
        ),
        (
            f"Entries {recovery.lost_here} are lost, and every change of metadata in them: topics "
            "created or deleted, settings, leaders, members of the quorum."
        ),
        "If voters were added in them, do not do this: start those, they send the entries again.",
        (
            f"Kept: {len(topics)} topics{f' ({named})' if topics else ''}, "
            f"{kept.image.partition_count} partitions, {len(kept.image.brokers)} brokers."
        ),
        (
            "Epochs and producer ids jump ahead, so that none is given out a second time; every "
            "replica is asked for its log, and the longest one leads."
        ),
    ]
    if unknown:
        lines += [
            (
                f"{len(unknown)} directories are of partitions that are lost with the damage; they "
                "stay, and nobody serves them:"
            ),
            *(f"  {name}" for name in unknown[:NAMES_MAX]),
            *(["  …"] if len(unknown) > NAMES_MAX else []),
        ]
    return "\n".join(lines)


def _ask(directory: str) -> None:
    if not is_terminal(sys.stdin):
        raise BadInput(
            f"{COMMAND} --unsafe {directory}",
            "nobody is at the terminal to be asked",
            f'for scripts: --yes-i-accept "{SENTENCE}"',
        )
    print_stderr(f"To go on, type: {SENTENCE}")
    if sys.stdin.readline().strip() != SENTENCE:
        raise _not_accepted(directory)


def _not_accepted(directory: str) -> CommandError:
    return BadInput(
        f"{COMMAND} --unsafe {directory}",
        "the sentence was not typed as it stands; nothing was changed",
        f"it is: {SENTENCE}",
    )


def _show(arguments: argparse.Namespace, shown: dict[str, object]) -> None:
    if arguments.json:
        print_json(shown)
    elif not shown["is_changed"]:
        print("nothing was changed")


def as_text(done: "Recovered") -> str:
    """What a person reads afterwards."""
    recovery = done.recovery
    return "\n".join(
        [
            (
                f"node {recovery.survivor.id.node_id} is the only voter now, with the new "
                f"directory uuid {recovery.survivor.id.directory_uuid.hex()}"
            ),
            f"kept as it was: {done.backup}",
            (
                "next: start the node, then every broker again"
                if recovery.is_alone
                else "next: start the node; then format every other voter's directory anew with "
                "`tidelog storage format --join`"
            ),
        ]
    )


def as_json(
    directory: str,
    backup: str,
    recovery: "Recovery",
    kept: "Kept | None",
    *,
    is_changed: bool,
) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "directory": directory,
        "backup": backup,
        "node_id": recovery.old_id.node_id,
        "old_directory_uuid": recovery.old_id.directory_uuid.hex(),
        "directory_uuid": recovery.survivor.id.directory_uuid.hex(),
        "last_index": recovery.last_index,
        "last_term": recovery.last_term,
        "new_term": recovery.new_term,
        "lost_members": [each.id.node_id for each in recovery.others],
        "lost_entries": recovery.lost_here,
        "unknown_directories": [] if kept is None else list(kept.unknown_directories),
        "is_changed": is_changed,
    }
