"""`tidelog txn abort`."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.describe import shown_partitions
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.txn.arguments import described, moment

if TYPE_CHECKING:
    from tidelog.client.types.transactions import TransactionDescription

COMMAND: Final = "tidelog txn abort"
DESCRIPTION: Final = (
    "Abort the transactions in progress of transactional ids, prepared ones too: what was written "
    "in them is never seen by readers of committed records, who go on at once. A producer that "
    "still lives is told TRANSACTION_ABORTED and begins again. What is decided already cannot be "
    "aborted. Without --execute it only says what would be aborted."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing", "what would be aborted?"),
    (f"{COMMAND} billing --execute", "its producer is dead, and readers wait"),
)


def configure(parser: Parser) -> None:
    """Which."""
    parser.add_argument("id", metavar="ID", help="a transactional id")
    parser.add_argument("ids", nargs="*", metavar="ID", help="more of them")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {transactional_id, state, partitions: [{topic, partition}], is_aborted}; state: "
        "before the abort",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what goes; abort it if that was asked for."""
    with admin_client(arguments) as admin, controller_hint(admin):
        found = described(admin, [arguments.id, *arguments.ids])
        # Without --execute the coordinators are asked as well: they say whether it is possible.
        aborted = {
            each.transactional_id: admin.abort_transaction(
                each.transactional_id, answer_timeout_ms(), validate_only=not arguments.execute
            )
            for each in found
        }
    if arguments.json:
        print_json(
            [
                as_json(each, is_aborted=arguments.execute and aborted[each.transactional_id])
                for each in found
            ]
        )
        return EXIT_OK
    for each in found:
        is_possible = aborted[each.transactional_id]
        print(line(each, is_executed=arguments.execute, is_possible=is_possible))
    if any(aborted.values()) and not arguments.execute:
        print("nothing was aborted; add --execute")
    return EXIT_OK


def line(transaction: "TransactionDescription", *, is_executed: bool, is_possible: bool) -> str:
    """Of one transactional id."""
    name, state = transaction.transactional_id, transaction.state.value
    if not is_possible:
        why = "is decided" if transaction.waits_for else "is over"
        return f"{name}: nothing to abort: its transaction {why} ({state})"
    verb = "aborted" if is_executed else "would abort"
    where = shown_partitions(transaction.partitions)
    return f"{verb} {name} ({state} since {moment(transaction.start_time_ms)}): {where}"


def as_json(transaction: "TransactionDescription", *, is_aborted: bool) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state.value,
        "partitions": [each._asdict() for each in transaction.partitions],
        "is_aborted": is_aborted,
    }
