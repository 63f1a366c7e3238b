"""Checks a pipeline that reads, folds and writes in transactions: its output is the fold, once.

Each output record says which input record it answers and what the state is after it. The output of
each input partition must be its fold, record by record: none is missing, none comes twice, none is
out of order. The check reads nothing but the final drain: it knows no consumers and no committed
offsets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tidelog.chaos.checkers.history.history import Anomaly, PartitionKey
from tidelog.chaos.checkers.transactions.history import TransactionHistory

LogRecords = Sequence[tuple[int, str]]
"""Offsets and values in the order of the log."""


class Derived(msgspec.Struct, frozen=True):
    """What an output record says of itself."""

    source: PartitionKey
    source_offset: int
    state: str


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """From which partitions to which, and how."""

    inputs: tuple[PartitionKey, ...]
    outputs: tuple[PartitionKey, ...]
    read_output: Callable[[str], Derived]
    initial: str
    """The state of each input partition before its first record."""
    fold: Callable[[str, str], str]
    """From a state and the value of an input record to the next state."""
    is_complete: bool = True
    """It had the time to answer every input record; otherwise a tail may be missing."""


def drained_logs(history: TransactionHistory) -> dict[PartitionKey, list[tuple[int, str]]]:
    """What the final drain has read of each partition."""
    logs: dict[PartitionKey, list[tuple[int, str]]] = {}
    for transaction in history.transactions:
        for poll in transaction.polls():
            if poll.is_final:
                for partition, records in poll.records:
                    logs.setdefault(partition, []).extend(records)
    return logs


def check_pipeline(logs: Mapping[PartitionKey, LogRecords], pipeline: Pipeline) -> list[Anomaly]:
    """Compares the outputs with the fold of the inputs."""
    answers: dict[PartitionKey, list[tuple[PartitionKey, int, Derived]]] = {}
    for output in pipeline.outputs:
        for offset, value in logs.get(output, ()):
            derived = pipeline.read_output(value)
            answers.setdefault(derived.source, []).append((output, offset, derived))
    anomalies: list[Anomaly] = []
    for source in dict.fromkeys([*pipeline.inputs, *answers]):
        own = answers.get(source, [])
        anomalies += _judged(source, logs.get(source, ()), own, pipeline)
    return anomalies


def _judged(
    source: PartitionKey,
    records: LogRecords,
    answers: list[tuple[PartitionKey, int, Derived]],
    pipeline: Pipeline,
) -> Iterator[Anomaly]:
    states: dict[int, str] = {}
    state = pipeline.initial
    for offset, value in records:
        state = states[offset] = pipeline.fold(state, value)
    seen: dict[int, str] = {}
    latest: dict[PartitionKey, int] = {}
    for output, at, derived in answers:
        place = f"{output} at {at}"
        offset = derived.source_offset
        if offset not in states or source not in pipeline.inputs:
            yield Anomaly(
                "pipeline_invented", source, f"{place} answers {offset}, which is no input"
            )
        elif offset in seen:
            told = f"{offset} is answered twice: in {seen[offset]} and in {place}"
            yield Anomaly("pipeline_repeated", source, told)
        elif offset < latest.get(output, -1):
            told = f"{place} answers {offset} behind the answer to {latest[output]}"
            yield Anomaly("pipeline_reordered", source, told)
        elif derived.state != states[offset]:
            told = f"{place} says {derived.state} for {offset}, the fold is {states[offset]}"
            yield Anomaly("pipeline_wrong", source, told)
        seen.setdefault(offset, place)
        latest[output] = max(offset, latest.get(output, -1))
    highest = max(seen, default=-1)
    for offset in states:
        if offset not in seen and (pipeline.is_complete or offset < highest):
            yield Anomaly("pipeline_missing", source, f"no output answers {offset}")
