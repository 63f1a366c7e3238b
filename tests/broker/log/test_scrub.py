"""The job that scrubs: every byte of a sealed segment is held against what it was."""

import msgspec
import pytest

from tests.support.job_files import MemoryJobFiles, disk_failed, run_job
from tests.support.segment_bytes import Batch, segment_bytes, segment_key
from tidelog.broker.log.jobs import seal as sealing
from tidelog.broker.log.jobs.scrub import (
    SCRUB_JOB,
    ScrubArguments,
    Scrubbed,
    decode_result,
    encode_arguments,
    scrub,
)
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES
from tidelog.wire.errors import ErrorCode, TidelogError

KEY = segment_key(40)
SMALL = segment_bytes(
    [Batch(records=2, producer_id=4, leader_epoch_step=1), Batch(leader_epoch_step=4)],
    base_offset=40,
)
LARGE = segment_bytes([Batch(value_bytes=5_000) for _ in range(40)], base_offset=40)
assert len(LARGE) > 3 * DIGEST_BYTES


def files_of(data: bytes, key: SegmentKey = KEY, *, cleaned_below: int = 0) -> MemoryJobFiles:
    """A segment and its sidecar."""
    files = MemoryJobFiles({key.path: data})
    asked = sealing.SealArguments(
        segment=key, is_contiguous=not cleaned_below, cleaned_below=cleaned_below
    )
    run_job(sealing.seal, files, sealing.encode_arguments(asked))
    files.files[key.sidecar_path] = files.files.pop(sealing.unfinished_path(key))
    files.made.clear()
    return files


def scrubbed(files: MemoryJobFiles, key: SegmentKey = KEY) -> Scrubbed:
    before = {path: bytes(data) for path, data in files.files.items()}
    result = decode_result(run_job(scrub, files, encode_arguments(ScrubArguments(segment=key))))
    assert {path: bytes(data) for path, data in files.files.items()} == before
    return result


def test_the_job_is_found_by_its_name() -> None:
    assert f"{scrub.__module__}:{scrub.__name__}" == SCRUB_JOB


@pytest.mark.parametrize("data", [b"", SMALL, LARGE])
def test_a_segment_that_is_as_it_was_is_fine(data: bytes) -> None:
    assert scrubbed(files_of(data)) == Scrubbed()


def test_a_compacted_segment_is_fine_with_its_gaps() -> None:
    key = segment_key(40, generation=1)
    data = segment_bytes([Batch(gap=3), Batch(gap=5)], base_offset=40)
    files = files_of(data, key, cleaned_below=60)
    assert scrubbed(files, key) == Scrubbed()


def test_a_compacted_segment_is_fine_with_epochs_that_none_of_its_batches_has() -> None:
    key = segment_key(40, generation=1)
    data = segment_bytes([Batch(gap=3)], base_offset=40, leader_epoch=4)
    files = MemoryJobFiles({key.path: data})
    history = (EpochStart(0, 7), EpochStart(2, 40), EpochStart(4, 41))
    asked = sealing.SealArguments(
        segment=key, is_contiguous=False, cleaned_below=60, leader_epochs=history
    )
    run_job(sealing.seal, files, sealing.encode_arguments(asked))
    files.files[key.sidecar_path] = files.files.pop(sealing.unfinished_path(key))
    assert scrubbed(files, key) == Scrubbed()
    # The epoch of its only batch turned into another one of the history.
    files.files[key.path][15] ^= 4 ^ 2
    assert scrubbed(files, key).segment_damage is not None


def test_a_segment_behind_another_is_fine_with_the_history_before_it() -> None:
    first, second = segment_key(0), KEY
    files = files_of(segment_bytes([Batch(records=40, producer_id=3)]), first)
    files.files[second.path] = bytearray(SMALL)
    asked = sealing.SealArguments(segment=second, previous=first)
    run_job(sealing.seal, files, sealing.encode_arguments(asked))
    files.files[second.sidecar_path] = files.files.pop(sealing.unfinished_path(second))
    assert scrubbed(files, second) == Scrubbed()


def test_every_flipped_bit_of_the_segment_is_found() -> None:
    files = files_of(SMALL)
    for bit in range(8 * len(SMALL)):
        files.files[KEY.path] = bytearray(SMALL)
        files.files[KEY.path][bit // 8] ^= 1 << bit % 8
        found = scrubbed(files)
        assert found.segment_damage is not None, f"bit {bit}"
        assert found.segment_damage.path == KEY.path
        assert found.segment_damage.happened.startswith("damage at byte ")
        assert found.sidecar_damage is None


def test_the_byte_is_the_one_where_damage_begins() -> None:
    files = files_of(LARGE)
    batch_bytes = len(LARGE) // 40
    # A leader epoch that rose is seen by the walk only where the next batch falls back.
    for position, told in (
        (30 * batch_bytes + 70, 30 * batch_bytes),
        (39 * batch_bytes + 15, 3 * DIGEST_BYTES),
        (11 * batch_bytes + 15, 12 * batch_bytes),
        (13 * batch_bytes + 15, 14 * batch_bytes),
        (7, 0),
    ):
        files.files[KEY.path] = bytearray(LARGE)
        files.files[KEY.path][position] ^= 2
        found = scrubbed(files).segment_damage
        assert found is not None
        assert found.happened.startswith(f"damage at byte {told}: "), (position, found)


def test_a_digest_of_earlier_bytes_is_told_before_the_effect_on_a_later_batch() -> None:
    batch_bytes = len(LARGE) // 40
    # A batch that begins in one digest's bytes and is followed by one in the next's.
    number = next(
        each
        for each in range(40)
        if each * batch_bytes // DIGEST_BYTES < (each + 1) * batch_bytes // DIGEST_BYTES
    )
    position = number * batch_bytes + 15
    assert position // DIGEST_BYTES == 0
    files = files_of(LARGE)
    files.files[KEY.path][position] ^= 2
    # The bytes of the digest end before the batch whose epoch does not fit.
    assert (number + 1) * batch_bytes >= DIGEST_BYTES
    found = scrubbed(files).segment_damage
    assert found is not None
    assert found.happened.startswith("damage at byte 0: the digest of the 65536 bytes")


def test_every_cut_and_every_appendix_of_the_segment_is_found() -> None:
    files = files_of(SMALL)
    for data in (*(SMALL[:length] for length in range(0, len(SMALL), 7)), SMALL + b"\x00"):
        files.files[KEY.path] = bytearray(data)
        found = scrubbed(files)
        assert found.segment_damage is not None
        assert found.sidecar_damage is None
    del files.files[KEY.path]
    found = scrubbed(files)
    assert found.segment_damage is not None
    assert "the file is not there" in found.segment_damage.happened


def test_every_flipped_bit_of_the_sidecar_is_told_apart() -> None:
    files = files_of(SMALL)
    good = bytes(files.files[KEY.sidecar_path])
    for bit in range(0, 8 * len(good), 3):
        files.files[KEY.sidecar_path] = bytearray(good)
        files.files[KEY.sidecar_path][bit // 8] ^= 1 << bit % 8
        found = scrubbed(files)
        assert found.segment_damage is None
        assert found.sidecar_damage is not None, f"bit {bit}"
        assert found.sidecar_damage.path == KEY.sidecar_path


def test_a_missing_sidecar_is_told_and_the_segment_is_scrubbed_nevertheless() -> None:
    files = files_of(SMALL)
    del files.files[KEY.sidecar_path]
    found = scrubbed(files)
    assert found.segment_damage is None
    assert found.sidecar_damage is not None
    assert "the file is not there" in found.sidecar_damage.happened
    files.files[KEY.path][70] ^= 1
    assert scrubbed(files).segment_damage is not None


def test_a_sidecar_that_tells_of_other_bytes_is_damaged() -> None:
    """Bytes that are whole and not those of the sidecar: the digests tell."""
    files = files_of(SMALL)
    other = files_of(segment_bytes([Batch(records=3, timestamp=5)], base_offset=40))
    files.files[KEY.sidecar_path] = other.files[KEY.sidecar_path]
    assert scrubbed(files) != Scrubbed()


def test_a_disk_that_fails_and_a_newer_format_are_no_findings() -> None:
    files = files_of(SMALL)

    def fail(done: str, path: str) -> None:
        raise disk_failed(f"{done} {path}")

    files.fail = fail
    with pytest.raises(TidelogError) as raised:
        scrubbed(files)
    assert raised.value.code is ErrorCode.STORAGE_FAILED


def test_the_result_is_fine_when_nothing_is_told() -> None:
    assert decode_result(msgspec.msgpack.encode(Scrubbed())) == Scrubbed()
