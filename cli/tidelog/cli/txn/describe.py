"""`tidelog txn describe`: a transaction, until when it stands, and what it holds back."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.group.arguments import DELETED
from tidelog.cli.show.errors import EXIT_OK
from tidelog.cli.show.table import known, table
from tidelog.cli.txn.arguments import described, moment

if TYPE_CHECKING:
    from tidelog.client import TopicPartition
    from tidelog.client.types.transactions import TransactionDescription

COMMAND: Final = "tidelog txn describe"
DESCRIPTION: Final = (
    "Describe transactions: state and producer, since when one is in progress, until when it "
    "stands if nobody ends it, what to type to end it, and the partitions whose readers of "
    "committed records wait for it."
)
EXAMPLES: Final = (
    (f"{COMMAND} billing", "one transactional id"),
    (f"{COMMAND} billing --json", "for programs"),
)


def configure(parser: Parser) -> None:
    """Ids and form."""
    parser.add_argument("id", metavar="ID", help="a transactional id")
    parser.add_argument("ids", nargs="*", metavar="ID", help="more of them")
    add_json(
        parser,
        "a list of {transactional_id, state, producer_id, producer_epoch, coordinator, "
        "start_time_ms, timeout_ms, deadline_ms, principal, partitions: [{topic, partition, "
        "is_ended}]}; start_time_ms null: none is in progress; deadline_ms null: it has none; "
        "topic empty: it was deleted",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with admin_client(arguments) as admin, controller_hint(admin):
        found = described(admin, [arguments.id, *arguments.ids])
    if arguments.json:
        print_json([as_json(each) for each in found])
    else:
        print("\n\n".join(as_text(each) for each in found))
    return EXIT_OK


def as_text(transaction: "TransactionDescription") -> str:
    """What a person reads."""
    head = "  ".join(
        (
            f"TransactionalId: {transaction.transactional_id}",
            f"State: {transaction.state.value}",
            f"Producer: {transaction.producer_id}",
            f"Epoch: {transaction.producer_epoch}",
            f"Coordinator: {known(transaction.coordinator_id)}",
        )
    )
    lines = [head, *(f"  {line}" for line in _story(transaction))]
    if transaction.partitions:
        rows = [
            (each.topic or DELETED, each.partition, _end(transaction, each))
            for each in transaction.partitions
        ]
        shown = table(("Topic", "Partition", "End"), rows, right="Partition")
        lines += [f"  {line}" for line in shown.splitlines()]
    return "\n".join(lines)


def _story(transaction: "TransactionDescription") -> list[str]:
    """Since when, until when, and what ends it now."""
    from tidelog.client.types.transactions import TransactionState

    name, since = transaction.transactional_id, f"open since {moment(transaction.start_time_ms)}"
    match transaction.state:
        case TransactionState.ONGOING:
            return [
                since,
                f"aborted at {moment(transaction.deadline_ms)} unless its producer ends it",
                f"to end it now: tidelog txn abort {name} --execute",
            ]
        case TransactionState.PREPARED:
            return [
                since,
                f"prepared by {transaction.principal or 'somebody'}: it stands until it is decided",
                f"to decide it: tidelog txn prepared {name} --commit --execute, or --abort",
            ]
        case TransactionState.COMMITTING | TransactionState.ABORTING:
            word = "commit" if transaction.state is TransactionState.COMMITTING else "abort"
            left, every = len(transaction.waits_for), len(transaction.partitions)
            return [since, f"{word} is decided; {left} of {every} partitions do not show it yet"]
        case _:
            return ["nothing is in progress"]


def _end(transaction: "TransactionDescription", partition: "TopicPartition") -> str:
    """Whether readers there still wait."""
    if transaction.deadline_ms is None and not transaction.principal:
        return "waited for" if partition in transaction.waits_for else "written"
    return "open"


def as_json(transaction: "TransactionDescription") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state.value,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": transaction.coordinator_id,
        "start_time_ms": transaction.start_time_ms,
        "timeout_ms": transaction.timeout_ms,
        "deadline_ms": transaction.deadline_ms,
        "principal": transaction.principal,
        "partitions": [
            {**each._asdict(), "is_ended": _end(transaction, each) == "written"}
            for each in transaction.partitions
        ],
    }
