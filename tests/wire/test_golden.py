"""The golden vectors say what the code does, here and in a program in Go."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANG_SECONDS
from tests.wire import golden_vectors
from tidelog.wire.batch import decode_batch, decode_records, encode_batch, read_header, stamp
from tidelog.wire.errors import TidelogError

GO_PROGRAM = Path(__file__).parent / "golden_go"


def vectors(name: str) -> Any:
    return json.loads((golden_vectors.FOLDER / name).read_text())


BATCHES = vectors("batches.json")
REFUSED = vectors("refused.json")


def content(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("vector", BATCHES, ids=lambda vector: vector["name"])
def test_a_golden_batch_is_read_as_its_vector_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    is_compacted = vector["is_compacted"]
    header = read_header(data, is_compacted=is_compacted)
    assert golden_vectors.header_fields(header) == vector["header"]
    for decode in (decode_batch, decode_records):
        records = decode(data, is_compacted=is_compacted)
        assert golden_vectors.record_fields(records) == vector["records"]


@pytest.mark.parametrize(
    "vector",
    [v for v in BATCHES if v["codec"] == "none" and v["name"] not in {"append_time", "compacted"}],
    ids=lambda vector: vector["name"],
)
def test_an_uncompressed_golden_batch_is_sealed_byte_for_byte(vector: dict[str, Any]) -> None:
    header = vector["header"]
    records = [
        (
            record["timestamp_ms"],
            content(record["key"]),
            content(record["value"]),
            [(name, content(value)) for name, value in record["headers"]],
        )
        for record in vector["records"]
    ]
    batch = encode_batch(
        records,
        producer_id=header["producer_id"],
        producer_epoch=header["producer_epoch"],
        base_sequence=header["base_sequence"],
        is_transactional=header["attributes"] & 0x10 != 0,
        is_control=header["attributes"] & 0x20 != 0,
    )
    stamped = bytearray(batch)
    stamp(stamped, 0, base_offset=header["base_offset"], leader_epoch=header["leader_epoch"])
    assert stamped.hex() == vector["bytes"]


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_a_golden_refusal_is_refused_with_its_code(vector: dict[str, Any]) -> None:
    for decode in (decode_batch, decode_records):
        with pytest.raises(TidelogError) as caught:
            decode(bytes.fromhex(vector["bytes"]))
        assert caught.value.code.name == vector["code"]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sums.json", golden_vectors.sums),
        ("numbers.json", golden_vectors.numbers),
        ("partitions.json", golden_vectors.partitions),
    ],
)
def test_golden_sums_numbers_and_partitions_are_what_the_code_computes(
    name: str, make: Any
) -> None:
    assert vectors(name) == make()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not on PATH")
def test_a_reader_in_go_agrees_with_every_vector() -> None:
    done = subprocess.run(
        ["go", "run", ".", str(golden_vectors.FOLDER)],
        cwd=GO_PROGRAM,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(BATCHES)} batches" in done.stdout
    assert "0 failures" in done.stdout
