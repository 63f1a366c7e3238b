"""`tidelog txn list`: who has which transaction, and who holds readers of a partition back.

Owns the choice and the form of the list. It must never show a list as whole that lacks ids.
"""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import Place, is_meant, place
from tidelog.cli.group.targets import duration_ms
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK, print_stderr
from tidelog.cli.show.table import count, table
from tidelog.cli.txn.arguments import age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client import AdminClient
    from tidelog.client.types.transactions import TransactionListing

COMMAND: Final = "tidelog txn list"
DESCRIPTION: Final = (
    "List the transactional ids: state, the producer that writes, and for how long a transaction "
    "has been in progress (Age). With --on, those whose transaction holds readers of committed "
    "records back there. Exit code 1 if the ids of a coordinator are missing because it could not "
    "be asked."
)
EXAMPLES: Final = (
    (COMMAND, "all transactional ids"),
    (f"{COMMAND} --on orders:0", "who holds the readers of orders:0 back?"),
    (f"{COMMAND} --older-than 30s", "in progress for longer than that"),
    (f"{COMMAND} --state prepared -q", "ids of those that wait for a decision"),
)
STATES: Final = (
    "empty",
    "ongoing",
    "prepared",
    "committing",
    "aborting",
    "committed",
    "aborted",
)


def configure(parser: Parser) -> None:
    """Choice and form."""
    parser.add_argument("-q", "--quiet", action="store_true", help="ids only, one a line")
    parser.add_argument(
        "--state",
        choices=STATES,
        action="append",
        default=[],
        metavar="STATE",
        help=f"only this state: {', '.join(STATES)}; may be repeated",
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        help="only transactions in progress for longer than that: 30s, 15m, 2h",
    )
    parser.add_argument(
        "--on",
        type=place,
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION]",
        help="only transactions in progress that touch it; may be repeated",
    )
    add_json(
        parser,
        "a list of {transactional_id, state, producer_id, producer_epoch, age_ms}; age_ms null: "
        "none is in progress",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    from tidelog.client.types.transactions import TransactionState
    from tidelog.wire.errors import ErrorCode, TidelogError

    states = [TransactionState(each) for each in arguments.state]
    older_than_ms = (
        duration_ms(arguments.older_than, f"{COMMAND} --older-than") if arguments.older_than else 0
    )
    with admin_client(arguments) as admin, controller_hint(admin):
        found = admin.try_list_transactions(states, older_than_ms, answer_timeout_ms())
        if found.missing_coordinators and not found.transactions:
            # "No transactions" would be a guess.
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried="list the transactions",
                happened=f"{count(found.missing_coordinators, 'coordinator')} could not be asked, "
                "and the others know of no such transaction",
            )
        shown = touching(admin, found.transactions, arguments.on)
    if arguments.json:
        print_json([as_json(each) for each in shown])
    elif arguments.quiet:
        print("".join(f"{each.transactional_id}\n" for each in shown), end="")
    elif shown:
        print(as_text(shown))
    else:
        is_chosen = bool(states or older_than_ms or arguments.on)
        print("there are no such transactions" if is_chosen else "no transactions yet")
    if found.missing_coordinators:
        missing = count(found.missing_coordinators, "coordinator")
        print_stderr(f"{missing} could not be asked: their transactions are missing here")
        return EXIT_FAILED
    return EXIT_OK


def touching(
    admin: "AdminClient", listed: "Sequence[TransactionListing]", places: "list[Place]"
) -> "Sequence[TransactionListing]":
    """Those in progress there; without places all of them."""
    if not places:
        return listed
    open_ids = [each.transactional_id for each in listed if each.age_ms is not None]
    # One that ended meanwhile holds nobody back.
    outcomes = admin.try_describe_transactions(open_ids, answer_timeout_ms())
    kept = {
        name
        for name, each in outcomes.items()
        if not isinstance(each, Exception)
        and any(is_meant(partition, places) for partition in each.partitions)
    }
    return [each for each in listed if each.transactional_id in kept]


def as_text(transactions: "Sequence[TransactionListing]") -> str:
    """What a person reads."""
    rows = [
        (
            each.transactional_id,
            each.state.value,
            each.producer_id,
            each.producer_epoch,
            age(each.age_ms),
        )
        for each in transactions
    ]
    head = ("TransactionalId", "State", "Producer", "Epoch", "Age")
    return table(head, rows, right="Producer Epoch Age")


def as_json(transaction: "TransactionListing") -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state.value,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "age_ms": transaction.age_ms,
    }
