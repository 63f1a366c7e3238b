"""A segment file as lines: every batch, and the byte at which damage begins."""

from pathlib import Path

import pytest

from tests.cli.running import assert_three_lines
from tidelog.cli.main import main
from tidelog.wire.batch import Codec, encode_batch, stamp


def segment(*batches: list[bytes]) -> bytes:
    """Batches of values, one after the other, as a leader stamps them."""
    written = b""
    offset = 0
    for values in batches:
        encoded = encode_batch([(1_700_000_000_000, b"k", value, ()) for value in values])
        batch = bytearray(encoded)
        stamp(batch, 0, base_offset=offset, leader_epoch=3)
        written += bytes(batch)
        offset += len(values)
    return written


def test_every_batch_is_a_line_and_every_record_below_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "0.log"
    data = segment([b"a", b"b"], [b"c\xff"])
    file.write_bytes(data)
    assert main(["log", "dump", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("byte 0: offsets 0-1 records=2 ")
    assert f"codec={Codec.NONE.name.lower()} time=1700000000000 leader_epoch=3" in lines[0]
    assert "offsets 2-2 records=1 " in lines[1]
    assert main(["log", "dump", str(file), "--records"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        r"  2 1700000000000 key=b'k' value=b'c\xff'"
    )


def test_damage_is_told_with_its_byte_after_what_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "0.log"
    whole = segment([b"a"], [b"b"])
    place = len(segment([b"a"]))
    for damaged in (whole[:-1], whole[:-1] + b"\xff", whole[: place + 5]):
        file.write_bytes(damaged)
        assert main(["log", "dump", str(file)]) == 1
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 1
        assert f"damage at byte {place} of {len(damaged)}" in captured.err
        assert_three_lines(captured.err, why="", hint="torn end")


def test_a_file_that_is_not_there_or_empty_is_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    assert main(["log", "dump", str(tmp_path / "empty.log")]) == 0
    for name in (tmp_path / "none.log", tmp_path):
        assert main(["log", "dump", str(name)]) == 2
        assert_three_lines(capsys.readouterr().err, why="", hint="segment file")
