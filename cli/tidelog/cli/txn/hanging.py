"""`tidelog txn hanging`: open transactions that no coordinator will end, and their end."""

import argparse
from typing import TYPE_CHECKING, Final

from tidelog.cli.frame.admin import admin_client, controller_hint, print_json
from tidelog.cli.frame.parser import Parser, add_bootstrap, add_json
from tidelog.cli.frame.patience import answer_timeout_ms
from tidelog.cli.group.arguments import Place, add_places, is_meant
from tidelog.cli.group.targets import duration_ms
from tidelog.cli.partition.arguments import shown
from tidelog.cli.show.errors import EXIT_FAILED, EXIT_OK
from tidelog.cli.show.table import table
from tidelog.cli.txn.arguments import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client import AdminClient, TopicPartition
    from tidelog.client.types.transactions import HangingTransaction
    from tidelog.wire.errors import TidelogError

COMMAND: Final = "tidelog txn hanging"
DESCRIPTION: Final = (
    "Find transactions that are open on a partition although no coordinator knows of them: nobody "
    "will end them, and readers of committed records wait at StartOffset for ever. There should "
    "be none; one is a fault of Tidelog or of a disk, worth a report. With --execute each is "
    "aborted on its partition, after every coordinator was asked once more."
)
EXAMPLES: Final = (
    (COMMAND, "is there any, on any partition?"),
    (f"{COMMAND} orders:0 --execute", "abort what hangs there"),
)
OLDER_THAN: Final = "15m"


def configure(parser: Parser) -> None:
    """Where, how old, and what to do."""
    add_places(parser, of="all, also of internal topics")
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        default=OLDER_THAN,
        help=f"whose last record is older than that (default: {OLDER_THAN})",
    )
    parser.add_argument("--execute", action="store_true", help="abort them")
    add_json(
        parser,
        "a list of {topic, partition, producer_id, producer_epoch, transaction_start_offset, "
        "last_timestamp_ms, is_aborted, error}; error null: nothing is wrong",
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print them; abort them if that was asked for."""
    from tidelog.wire.errors import TidelogError

    older_than_ms = duration_ms(arguments.older_than, f"{COMMAND} --older-than")
    errors: list[TidelogError | None] = []
    with admin_client(arguments) as admin, controller_hint(admin):
        partitions = _partitions(admin, arguments.places) if arguments.places else None
        found = admin.find_hanging_transactions(partitions, older_than_ms, answer_timeout_ms())
        for each in found:
            errors.append(_aborted(admin, each) if arguments.execute else None)
    if arguments.json:
        print_json(
            [
                as_json(each, error, is_executed=arguments.execute)
                for each, error in zip(found, errors, strict=True)
            ]
        )
    elif not found:
        print("nothing hangs")
    elif arguments.execute:
        for each, error in zip(found, errors, strict=True):
            what = f"the transaction of producer {each.producer_id} on {shown(each.partition)}"
            told = "" if error is None else f": {error.code.name}: {error.happened}; {error.hint}"
            print(f"aborted {what}" if error is None else f"{what}{told}")
    else:
        print(as_text(found))
        print("nothing was aborted; add --execute")
    return EXIT_FAILED if any(errors) else EXIT_OK


def _partitions(admin: "AdminClient", places: "list[Place]") -> "list[TopicPartition]":
    """Those that are meant; a topic that is not there is an error."""
    from tidelog.client import TopicPartition

    topics = admin.describe_topics(dict.fromkeys(topic for topic, _ in places), answer_timeout_ms())
    every = [
        TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions
    ]
    wanted = [TopicPartition(topic, number) for topic, number in places if number is not None]
    # A number that the topic does not have is asked for as well: the broker says what is wrong.
    return sorted({*(each for each in every if is_meant(each, places)), *wanted})


def _aborted(admin: "AdminClient", hanging: "HangingTransaction") -> "TidelogError | None":
    """Ends it on its partition; why that was refused."""
    from tidelog.wire.errors import TidelogError

    try:
        admin.abort_hanging_transaction(
            hanging.partition,
            hanging.producer_id,
            hanging.transaction_start_offset,
            answer_timeout_ms(),
        )
    except TidelogError as error:
        return error
    return None


def as_text(found: "Sequence[HangingTransaction]") -> str:
    """What a person reads."""
    rows = [
        (
            each.partition.topic,
            each.partition.partition,
            each.producer_id,
            each.producer_epoch,
            each.transaction_start_offset,
            moment(each.last_timestamp_ms),
        )
        for each in found
    ]
    head = ("Topic", "Partition", "Producer", "Epoch", "StartOffset", "LastRecord")
    return table(head, rows, right="Partition Producer Epoch StartOffset")


def as_json(
    hanging: "HangingTransaction", error: "TidelogError | None", *, is_executed: bool
) -> dict[str, object]:
    """What a program reads; the names stay."""
    return {
        **hanging.partition._asdict(),
        "producer_id": hanging.producer_id,
        "producer_epoch": hanging.producer_epoch,
        "transaction_start_offset": hanging.transaction_start_offset,
        "last_timestamp_ms": hanging.last_timestamp_ms,
        "is_aborted": is_executed and error is None,
        "error": None if error is None else error.code.name,
    }
