"""How a golden script shows partitions, answers and markers."""

from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    AddPartitionsAnswer,
    DecideAnswer,
    DescribeTransactionAnswer,
    EndAnswer,
    InitAnswer,
    ListTransactionsAnswer,
    PrepareAnswer,
    Response,
)
from tidelog.broker.transactions.state.messages import SendMarkers, StoredRecord
from tidelog.broker.transactions.state.records import decode_record
from tidelog.broker.transactions.state.transaction import keys_of
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


def partition(key: PartitionKey) -> str:
    """A topic's id is its name here."""
    return f"{key.topic_id.rstrip(bytes(1)).decode()}{key.partition}"


def partitions(keys: tuple[PartitionKey, ...]) -> str:
    """Several, or a dash."""
    return " ".join(partition(each) for each in keys) or "-"


def answer(name: str, result: Response | TidelogError) -> list[str]:
    """Lines for one answer."""
    match result:
        case TidelogError():
            return [f"{name} refused {result.code.name}: {result.happened}"]
        case InitAnswer() | EndAnswer():
            return [f"{name} works with {result.identity}"]
        case AddPartitionsAnswer():
            return [f"{name} yes"]
        case PrepareAnswer():
            return [f"{name} stands"]
        case DecideAnswer():
            return [f"{name} decided"]
        case AbortAnswer():
            return [f"{name} {'aborted' if result.was_aborted else 'had nothing in progress'}"]
        case ListTransactionsAnswer():
            return [
                f"{each.transactional_id} {each.state.name} {each.identity} age {each.age_ms}"
                for each in result.transactions
            ]
        case DescribeTransactionAnswer():
            keys = f"touches {partitions(result.keys)} waits for {partitions(result.waits_for)}"
            shown = f"{result.state.name} {result.identity} timeout {result.timeout_ms}"
            return [f"{name} {shown} {keys}"]


def marker(sent: SendMarkers) -> str:
    """A line for markers that leave."""
    return (
        f"send {sent.transactional_id} {sent.decision.name} {sent.identity} to "
        f"{partitions(sent.keys)}, coordinator epoch {sent.coordinator_epoch}, "
        f"attempt {sent.attempt}"
    )


def records(log: list[StoredRecord]) -> list[str]:
    """The last value of each key, as compaction keeps it."""
    last = {record.key: record.value for record in log}
    lines = []
    for key, value in last.items():
        decoded = decode_record(key, value)
        if decoded is not None and decoded[1] is not None:
            shown = decoded[1]
            lines.append(
                f"{decoded[0].transactional_id} {shown.state.name} {shown.current} after "
                f"{shown.last} ({shown.succession.name}) next {shown.next_producer_id} touches "
                f"{partitions(tuple(keys_of(shown.topics)))}"
            )
    return lines
