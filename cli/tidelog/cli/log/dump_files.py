"""`tidelog log dump` of what lies beside the segments: sidecars, marks, the clean checkpoint.

Owns what is printed of them, as lines and as JSON. It must never print what its checksum does not
cover: a file that is damaged is told as such, with what is whole before the damage where entries
stand by themselves.
"""

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.log.leader_epochs import EpochStart
    from tidelog.broker.log.opening.clean_checkpoint import CleanLog, CleanSegment
    from tidelog.broker.log.producer_state import Producer, ProducerState
    from tidelog.broker.log.sidecar.contents import Summary
    from tidelog.wire.errors import TidelogError

SIDECAR: Final = "sidecar"
MARKS: Final = "marks"
CHECKPOINT: Final = "log_checkpoint"

Told = dict[str, object]
"""What is printed as JSON."""


def kind_of(path: str, first_bytes: bytes) -> str:
    """By the file's name, or by how it begins; empty: it is a segment."""
    name = os.path.basename(path).removesuffix(".new")
    if name.endswith(".sidecar") or first_bytes.startswith(b"TIDESIDE"):
        return SIDECAR
    if name == CHECKPOINT or first_bytes.startswith(b"TIDECLEAN"):
        return CHECKPOINT
    return MARKS if name == MARKS else ""


def read(kind: str, data: bytes) -> tuple[Told, "TidelogError | None"]:
    """What the file tells, and the first damage behind it; raises if nothing is told."""
    if kind == SIDECAR:
        return sidecar_json(data), None
    return marks_json(data) if kind == MARKS else checkpoint_json(data)


def lines_of(kind: str, told: Told, *, with_entries: bool) -> list[str]:
    """The same for a person."""
    if kind == SIDECAR:
        return _sidecar_lines(told, with_entries=with_entries)
    lines = [f"{name}: {told[name]}" for name in told if name not in ("kind", "partitions")]
    partitions = told["partitions"]
    assert isinstance(partitions, list), "partitions are a list"
    for partition in partitions:
        lines += _partition_lines(partition)
    return lines


def sidecar_json(data: bytes) -> Told:
    """All that a sidecar holds; TidelogError at the first part that is damaged."""
    from tidelog.broker.log.producer_state import ProducerState
    from tidelog.broker.log.sidecar.blocks import block_count, block_range
    from tidelog.broker.log.sidecar.codec import (
        PRODUCERS,
        check_section,
        claimed_key,
        decode_summary,
        find_section,
    )
    from tidelog.broker.log.sidecar.digests import DIGESTS, decode_digests
    from tidelog.broker.log.sidecar.index import (
        INDEX,
        INDEX_TOP,
        decode_index_block,
        decode_index_top,
    )

    key = claimed_key(data)
    summary = decode_summary(data, key, file_bytes=len(data))
    parts = {
        each.name: check_section(
            key, each, data[each.byte_position : each.byte_position + each.length_bytes]
        )
        for each in summary.sections
    }
    index = find_section(summary, INDEX)
    decode_index_top(key, index, find_section(summary, INDEX_TOP), parts[INDEX_TOP])
    entries: list[Told] = []
    for number in range(block_count(index)):
        position, length_bytes = block_range(index, number)
        block = decode_index_block(key, index, number, data[position : position + length_bytes])
        for base_offset, byte_position, before in block.entries():
            entries.append(
                {
                    "base_offset": base_offset,
                    "byte_position": byte_position,
                    "max_timestamp_before": before,
                }
            )
    digests = decode_digests(
        key, find_section(summary, DIGESTS), parts[DIGESTS], size_bytes=summary.size_bytes
    )
    return {
        "kind": SIDECAR,
        **_summary_json(summary),
        "producers": _producers_json(ProducerState.decode(parts[PRODUCERS])),
        **_transactions_json(parts),
        "index": entries,
        "digests": [f"{digest:08x}" for digest in digests],
    }


def _transactions_json(parts: "Mapping[str, bytes]") -> Told:
    """Nothing of a segment that has to do with none."""
    from tidelog.broker.log.sidecar.codec import TRANSACTIONS
    from tidelog.broker.log.transactions.of_segment import SegmentTransactions

    if TRANSACTIONS not in parts:
        return {}
    told = SegmentTransactions.decode(parts[TRANSACTIONS], where="the section of transactions")
    aborted = [
        {
            "producer_id": each.producer_id,
            "first_offset": each.first_offset,
            "marker_offset": each.marker_offset,
        }
        for each in told.aborted.entries()
    ]
    return {"first_open_offset": told.first_open_offset, "aborted": aborted}


def _summary_json(summary: "Summary") -> Told:
    told: Told = {
        name: getattr(summary, name)
        for name in summary.__struct_fields__
        if name not in ("topic_id", "leader_epochs", "replaces", "sections")
    }
    return {
        "topic_id": summary.topic_id.hex(),
        **told,
        "leader_epochs": _epochs_json(summary.leader_epochs),
        "replaces": [
            {"base_offset": each.base_offset, "generation": each.generation}
            for each in summary.replaces
        ],
        "sections": [
            {
                "name": each.name,
                "byte_position": each.byte_position,
                "length_bytes": each.length_bytes,
                "checksum": f"{each.checksum:08x}",
            }
            for each in summary.sections
        ],
    }


def marks_json(data: bytes) -> tuple[Told, "TidelogError | None"]:
    """What the last whole entry of each kind says; the damage is the first entry that is not."""
    from tidelog.broker.log.marks.marks import ENTRY_BYTES, decode_marks
    from tidelog.wire.errors import ErrorCode, TidelogError

    skipped = [
        position
        for position in range(0, len(data), ENTRY_BYTES)
        if not decode_marks(data[position : position + ENTRY_BYTES])
    ]
    told: Told = {
        "kind": MARKS,
        "entries": -(-len(data) // ENTRY_BYTES),
        "skipped": len(skipped),
        "partitions": [
            {
                "partition": str(key),
                "flushed_offset": known.flushed_offset,
                "log_start_offset": known.log_start_offset,
                "log_start_epoch": known.log_start_epoch,
                "gaps_from": known.gaps_from,
            }
            for key, known in sorted(decode_marks(data).items())
        ],
    }
    if not skipped:
        return told, None
    return told, TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried="read marks",
        happened=f"damage at byte {skipped[0]}: {len(skipped)} entries are torn, damaged or of a "
        "kind that is not known",
    )


def checkpoint_json(data: bytes) -> tuple[Told, "TidelogError | None"]:
    """The partitions before the first damage."""
    from tidelog.broker.log.opening.clean_checkpoint import CheckpointReader
    from tidelog.wire.errors import TidelogError

    reader, damage = CheckpointReader(), None
    try:
        reader.take(data)
        reader.finish()
    except TidelogError as error:
        damage = error
    logs = [_clean_log_json(log) for _, log in sorted(reader.logs.items())]
    return {"kind": CHECKPOINT, "partitions": logs}, damage


def _clean_log_json(log: "CleanLog") -> Told:
    from tidelog.broker.log.producer_state import ProducerState

    return {
        "partition": str(log.key),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "leader_epochs": _epochs_json(log.leader_epochs),
        "producers": _producers_json(ProducerState.decode(log.producers)),
        "segments": [_clean_segment_json(each) for each in log.segments],
    }


def _clean_segment_json(segment: "CleanSegment") -> Told:
    # A segment with a sidecar is told by its summary alone.
    told = segment if segment.summary is None else segment.summary
    return {
        "base_offset": segment.base_offset,
        "generation": segment.generation,
        "next_offset": told.next_offset,
        "size_bytes": told.size_bytes,
        "max_timestamp": told.max_timestamp,
        "is_sealed": segment.is_sealed,
        "has_sidecar": segment.summary is not None,
    }


def _epochs_json(starts: "tuple[EpochStart, ...]") -> list[Told]:
    return [{"epoch": each.epoch, "start_offset": each.start_offset} for each in starts]


def _producers_json(state: "ProducerState") -> Told:
    return {
        "log_time_ms": state.log_time_ms,
        "producers": [_producer_json(each) for each in state.producers],
    }


def _producer_json(producer: "Producer") -> Told:
    return {
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "last_timestamp": producer.last_timestamp,
        "transaction_start": producer.transaction_start,
        "coordinator_epoch": producer.coordinator_epoch,
        "batches": [
            {
                "base_sequence": each.base_sequence,
                "last_offset_delta": each.last_offset_delta,
                "base_offset": each.base_offset,
                "timestamp": each.timestamp,
            }
            for each in producer.batches
        ],
    }


def _sidecar_lines(told: Told, *, with_entries: bool) -> list[str]:
    lists = ["leader_epochs", "replaces", "sections", "index", "digests"]
    if "aborted" in told:
        lists.append("aborted")
    lines = [
        f"{name}: {value}"
        for name, value in told.items()
        if name not in (*lists, "kind", "producers")
    ]
    for name in lists:
        values = told[name]
        assert isinstance(values, list), f"{name} are a list"
        lines.append(f"{name}: {len(values)}")
        if with_entries or name not in ("index", "digests"):
            lines += [f"  {_words(each)}" for each in values]
    return lines + _producer_lines(told["producers"])


def _partition_lines(partition: Told) -> list[str]:
    """One line, and one for each thing below it."""
    flat = {name: value for name, value in partition.items() if isinstance(value, int)}
    lines = [f"{partition['partition']}: {_words(flat)}"]
    for name in ("leader_epochs", "segments"):
        values = partition.get(name, [])
        assert isinstance(values, list), f"{name} are a list"
        lines += [f"  {name.removesuffix('s')}: {_words(each)}" for each in values]
    if "producers" in partition:
        lines += [f"  {line}" for line in _producer_lines(partition["producers"])]
    return lines


def _producer_lines(told: object) -> list[str]:
    assert isinstance(told, dict), "producers are told with the log's time"
    lines = [f"producers: {len(told['producers'])}, log time {told['log_time_ms']}"]
    for producer in told["producers"]:
        flat = {name: value for name, value in producer.items() if name != "batches"}
        lines.append(f"  {_words(flat)}")
        lines += [f"    {_words(batch)}" for batch in producer["batches"]]
    return lines


def _words(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{name}={each}" for name, each in value.items())
