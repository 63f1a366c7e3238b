"""`tidelog txn prepared`: transactions that wait for a decision, and the decision."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.describe import shown_partitions
from tidelog.cli.show.errors import EXIT_OK, BadInput
from tidelog.cli.show.table import table
from tidelog.cli.txn.arguments import described, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client import AdminClient
    from tidelog.client.shared.transaction_plans import Decision
    from tidelog.client.types.transactions import TransactionDescription

COMMAND: Final = "tidelog txn prepared"
DESCRIPTION: Final = (
    "List prepared transactions: the first half of a commit in two phases is done, and readers of "
    "committed records wait, without a timeout, until somebody decides. That is who prepared it, "
    "with the token; if that is gone for good, look into its other half (the database, the table) "
    "and decide here as it did, with --commit or --abort. Without --execute nothing is decided."
)
EXAMPLES: Final = (
    (COMMAND, "who waits for a decision, since when, and where?"),
    (f"{COMMAND} ledger --commit --execute", "the database has it: commit"),
    (f"{COMMAND} ledger --abort --execute", "the database has rolled back: abort"),
)


def configure(parser: Parser) -> None:
    """Which, and how."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="transactional ids (default: all)")
    parser.add_argument("--commit", action="store_true", help="commit these")
    parser.add_argument("--abort", action="store_true", help="abort these")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(
        parser,
        "a list of {transactional_id, principal, producer_id, producer_epoch, start_time_ms, "
        "partitions: [{topic, partition}], decision}; decision null: none was taken",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them; decide if that was asked for."""
    decision = _decision(arguments)
    with admin_client(arguments) as admin, controller_hint(admin):
        found = _prepared(admin, arguments.ids)
        if decision is not None and arguments.execute:
            for each in found:
                admin.decide_prepared_transaction(
                    each.transactional_id, decision, answer_timeout_ms()
                )
    if arguments.json:
        taken = decision if arguments.execute else None
        print_json([as_json(each, taken) for each in found])
    elif not found:
        print("no transaction is prepared")
    elif decision is None:
        print(as_text(found))
    else:
        done = {"commit": "committed", "abort": "aborted"}[decision]
        verb = done if arguments.execute else f"would {decision}"
        for each in found:
            print(f"{verb} {each.transactional_id}: {shown_partitions(each.partitions)}")
        if not arguments.execute:
            print("nothing was decided; add --execute")
    return EXIT_OK


def _decision(arguments: argparse.Namespace) -> "Decision | None":
    command = " ".join((COMMAND, *arguments.ids))
    if arguments.commit and arguments.abort:
        raise BadInput(command, "it says both --commit and --abort", "choose one of them")
    if arguments.commit or arguments.abort:
        if not arguments.ids:
            raise BadInput(
                command,
                "a decision is for transactions that are named: each has another half",
                f"`{COMMAND}` lists their ids",
            )
        return "commit" if arguments.commit else "abort"
    if arguments.execute:
        raise BadInput(
            command, "it does not say what to execute", "add --commit or --abort, as it shall end"
        )
    return None


def _prepared(admin: "AdminClient", ids: "Sequence[str]") -> "list[TransactionDescription]":
    """These, each of which must be prepared, or all that are."""
    from tidelog.client.types.transactions import TransactionState

    if ids:
        found = described(admin, ids)
        for each in found:
            if each.state is not TransactionState.PREPARED:
                raise BadInput(
                    f"{COMMAND} {each.transactional_id}",
                    f"its transaction is not prepared: its state is {each.state.value}",
                    f"`tidelog txn describe {each.transactional_id}` tells more",
                )
        return found
    listed = admin.list_transactions([TransactionState.PREPARED], 0, answer_timeout_ms())
    outcomes = admin.try_describe_transactions(
        [each.transactional_id for each in listed], answer_timeout_ms()
    )
    # One that was decided meanwhile is prepared no more.
    return [
        each
        for each in outcomes.values()
        if not isinstance(each, Exception) and each.state is TransactionState.PREPARED
    ]


def as_text(transactions: "Sequence[TransactionDescription]") -> str:
    """What a person reads."""
    rows = [
        (
            each.transactional_id,
            each.principal or "-",
            each.producer_id,
            each.producer_epoch,
            moment(each.start_time_ms),
            shown_partitions(each.partitions),
        )
        for each in transactions
    ]
    head = ("TransactionalId", "PreparedBy", "Producer", "Epoch", "Since", "Partitions")
    return table(head, rows, right="Producer Epoch")


def as_json(transaction: "TransactionDescription", decision: str | None) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "transactional_id": transaction.transactional_id,
        "principal": transaction.principal,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "start_time_ms": transaction.start_time_ms,
        "partitions": [each._asdict() for each in transaction.partitions],
        "decision": decision,
    }
