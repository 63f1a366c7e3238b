"""What lies beside the segments, readable: sidecars, marks, the checkpoint of a clean stop."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.cli.running import assert_three_lines
from tests.support.segment_bytes import PARTITION, Batch, segment_bytes, segment_key
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.marks import ENTRY_BYTES, Mark, MarkKind, encode_marks
from tidelog.broker.log.opening.clean_checkpoint import CleanLog, CleanSegment, encode_pieces
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.cli.main import main
from tidelog.wire.ids import Offset

Captured = pytest.CaptureFixture[str]


def made() -> tuple[Summary, bytes]:
    facts = SegmentFacts(
        key=segment_key(40, 2),
        is_contiguous=False,
        cleaned_below=90,
        replaces=(Replaced(Offset(40), 1),),
    )
    builder = SidecarBuilder(facts)
    batches = [
        Batch(records=2, value_bytes=3_000, timestamp=50),
        Batch(producer_id=9, base_sequence=4, is_transactional=True, leader_epoch_step=1),
    ]
    builder.feed(segment_bytes(batches, base_offset=40))
    return builder.finish()


def checkpoint() -> bytes:
    summary, _ = made()
    segments = (
        CleanSegment(base_offset=Offset(40), generation=2, summary=summary),
        CleanSegment(
            base_offset=Offset(43),
            generation=0,
            size_bytes=70,
            next_offset=Offset(44),
            is_sealed=False,
        ),
    )
    log = CleanLog(
        topic_id=PARTITION.topic_id,
        partition=PARTITION.partition,
        log_start_offset=Offset(40),
        log_end_offset=Offset(44),
        segments=segments,
        leader_epochs=(EpochStart(0, 40),),
        producers=ProducerState().encode(),
    )
    return b"".join(encode_pieces([log]))


def marks() -> bytes:
    other = msgspec.structs.replace(PARTITION, partition=5)
    return encode_marks(
        [
            Mark(PARTITION, MarkKind.FLUSHED, 12),
            Mark(other, MarkKind.GAPS, 0),
            Mark(PARTITION, MarkKind.LOG_START, 3),
            Mark(PARTITION, MarkKind.FLUSHED, 9),
        ]
    )


def written(tmp_path: Path, name: str, data: bytes) -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def as_json(file: str, capsys: Captured) -> dict[str, object]:
    assert main(["log", "dump", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


def test_a_sidecar_is_printed_with_its_summary_and_producers(
    tmp_path: Path, capsys: Captured
) -> None:
    _, data = made()
    # Known by its name, and by how it begins under any other name.
    for name in ("00000000000000000040-00000002.sidecar", "x.sidecar.new", "copied"):
        assert main(["log", "dump", written(tmp_path, name, data)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert f"topic_id: {PARTITION.topic_id.hex()}" in lines
        assert "next_offset: 43" in lines
        assert "  epoch=1 start_offset=42" in lines
        assert "  base_offset=40 generation=1" in lines
        assert "producers: 1, log time 1000" in lines
        assert (
            "  producer_id=9 epoch=0 last_timestamp=1000 transaction_start=42 coordinator_epoch=-1"
        ) in lines
        assert "first_open_offset: 42" in lines
        assert "aborted: 0" in lines
        assert "    base_sequence=4 last_offset_delta=0 base_offset=42 timestamp=1000" in lines
        assert "index: 2" in lines
        assert not any("max_timestamp_before" in line for line in lines)


def test_the_entries_of_a_sidecar_are_printed_on_demand(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, "0.sidecar", made()[1])
    assert main(["log", "dump", file, "--entries"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  base_offset=40 byte_position=0 max_timestamp_before=-1" in lines
    place = lines.index("digests: 1")
    assert len(lines[place + 1].strip()) == 8


def test_a_sidecar_as_json_holds_all_of_it(tmp_path: Path, capsys: Captured) -> None:
    summary, data = made()
    told = as_json(written(tmp_path, "0.sidecar", data), capsys)
    assert told["kind"] == "sidecar"
    assert told["size_bytes"] == summary.size_bytes
    assert told["leader_epochs"] == [
        {"epoch": 0, "start_offset": 40},
        {"epoch": 1, "start_offset": 42},
    ]
    assert told["cleaned_below"] == 90
    sections = told["sections"]
    assert isinstance(sections, list)
    names = ["index", "index_top", "digests", "producers", "transactions"]
    assert [each["name"] for each in sections] == names
    assert (told["first_open_offset"], told["aborted"]) == (42, [])
    index = told["index"]
    assert isinstance(index, list)
    assert index[1] == {"base_offset": 42, "byte_position": 6_079, "max_timestamp_before": 50}


def test_damage_of_a_sidecar_is_told_with_its_byte(tmp_path: Path, capsys: Captured) -> None:
    _, data = made()
    for position in range(0, len(data), 11):
        flipped = bytearray(data)
        flipped[position] ^= 8
        file = written(tmp_path, "0.sidecar", bytes(flipped))
        assert main(["log", "dump", file]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert_three_lines(captured.err, why="", hint="made again")
        assert "STORAGE_CORRUPT" in captured.err
        assert "damage at byte " in captured.err
    for short in (b"", data[:10], data[:-1]):
        assert main(["log", "dump", written(tmp_path, "0.sidecar", short)]) == 1
        assert "damage at byte " in capsys.readouterr().err


def test_the_marks_are_printed_by_partition(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, "marks", marks())
    other = f"{str(PARTITION)[:-1]}5"
    assert main(["log", "dump", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "entries: 4",
        "skipped: 0",
        f"{PARTITION}: flushed_offset=9 log_start_offset=3 log_start_epoch=-1 gaps_from=-1",
        f"{other}: flushed_offset=0 log_start_offset=0 log_start_epoch=-1 gaps_from=0",
    ]
    told = as_json(file, capsys)
    assert (told["kind"], told["entries"], told["skipped"]) == ("marks", 4, 0)
    assert written(tmp_path, "marks", b"")
    assert as_json(file, capsys)["partitions"] == []


def test_entries_of_marks_that_are_skipped_are_told_behind_the_others(
    tmp_path: Path, capsys: Captured
) -> None:
    flipped = bytearray(marks())
    flipped[3 * ENTRY_BYTES + 5] ^= 1
    for data, byte in ((bytes(flipped), 3 * ENTRY_BYTES), (marks() + b"\x00", 4 * ENTRY_BYTES)):
        assert main(["log", "dump", written(tmp_path, "marks", data)]) == 1
        captured = capsys.readouterr()
        assert "skipped: 1" in captured.out.splitlines()
        assert f"damage at byte {byte}: 1 entries" in captured.err
        assert_three_lines(captured.err, why="", hint="torn end")


def test_the_checkpoint_is_printed_by_partition(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, "log_checkpoint", checkpoint())
    assert main(["log", "dump", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{PARTITION}: log_start_offset=40 log_end_offset=44"
    assert "  leader_epoch: epoch=0 start_offset=40" in lines
    assert any(line.startswith("  segment: base_offset=40 generation=2 next_") for line in lines)
    assert "  producers: 0, log time -1" in lines
    partitions = as_json(file, capsys)["partitions"]
    assert isinstance(partitions, list)
    told = [(each["base_offset"], each["has_sidecar"]) for each in partitions[0]["segments"]]
    assert told == [(40, True), (43, False)]


def test_damage_of_a_checkpoint_is_told_behind_what_is_whole(
    tmp_path: Path, capsys: Captured
) -> None:
    data = checkpoint()
    assert main(["log", "dump", written(tmp_path, "log_checkpoint", data[:-1])]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{PARTITION}: ")
    assert_three_lines(captured.err, why="", hint="the long way")
    flipped = data[:40] + bytes([data[40] ^ 1]) + data[41:]
    assert main(["log", "dump", written(tmp_path, "log_checkpoint", flipped)]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "option"),
    [("0.log", "--json"), ("0.log", "--entries"), ("marks", "--records"), ("marks", "--entries")],
)
def test_an_option_that_does_not_go_with_the_file_is_refused(
    tmp_path: Path, capsys: Captured, name: str, option: str
) -> None:
    assert main(["log", "dump", written(tmp_path, name, b""), option]) == 2
    assert_three_lines(capsys.readouterr().err, why="", hint=option)
