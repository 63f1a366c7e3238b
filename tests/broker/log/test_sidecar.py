"""The bytes of a sidecar: what is written is read again, and nothing else is believed."""

import contextlib
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segment_bytes import (
    PARTITION,
    Batch,
    batches,
    segment_bytes,
    segment_key,
)
from tidelog.broker.log.index import SparseIndex
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.blocks import (
    BLOCK_BYTES,
    block_count,
    block_range,
    block_seed,
    frame_blocks,
)
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import (
    FIRST_READ_BYTES,
    HEAD_BYTES,
    PRODUCERS,
    SECTIONS,
    TRANSACTIONS,
    check_section,
    decode_bare_summary,
    decode_summary,
    encode_sidecar,
    encode_summary,
    find_section,
    has_transactions,
    summary_end,
)
from tidelog.broker.log.sidecar.contents import DIGEST_BYTES, Replaced, Section, Summary
from tidelog.broker.log.sidecar.digests import (
    DIGESTS,
    DIGESTS_PER_BLOCK,
    decode_digest_block,
    decode_digests,
    digest_of,
    encode_digests,
)
from tidelog.broker.log.sidecar.index import (
    ENTRIES_PER_BLOCK,
    INDEX,
    INDEX_TOP,
    Entry,
    decode_index_block,
    decode_index_top,
    encode_index,
)
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BytePosition, Offset, PartitionId, PartitionKey, TopicId

KEY = segment_key(40)
SUMMARY = Summary(
    topic_id=TopicId(bytes(range(16))),
    partition=PartitionId(3),
    base_offset=Offset(40),
    next_offset=Offset(90),
    size_bytes=5_000,
    batch_count=4,
    record_count=50,
    max_timestamp=1_700_000_000_000,
    max_timestamp_offset=60,
    leader_epochs=(EpochStart(0, 0), EpochStart(4, 70)),
)
OTHER_KEYS = [
    segment_key(41),
    segment_key(40, generation=1),
    SegmentKey(PartitionKey(PARTITION.topic_id, PartitionId(4)), Offset(40)),
    SegmentKey(PartitionKey(TopicId(bytes(16)), PartitionId(3)), Offset(40)),
]


def entries_of(count: int) -> list[Entry]:
    """Ascending ones."""
    return [(40 + 3 * number, 5_000 * number, number - 1) for number in range(count)]


def made(entries: Sequence[Entry] = (), digests: Sequence[int] = ()) -> tuple[Summary, bytes]:
    """A sidecar with these entries and digests."""
    index, index_top = encode_index(KEY, entries)
    sections = {
        INDEX: index,
        INDEX_TOP: index_top,
        DIGESTS: encode_digests(KEY, list(digests)),
        PRODUCERS: ProducerState().encode(),
    }
    return encode_sidecar(SUMMARY, sections)


def part_of(data: bytes, section: Section) -> bytes:
    return data[section.byte_position : section.byte_position + section.length_bytes]


def block_of(data: bytes, section: Section, number: int) -> bytes:
    position, length_bytes = block_range(section, number)
    return data[position : position + length_bytes]


def read_all(data: bytes, key: SegmentKey = KEY) -> tuple[Summary, list[Entry], list[int]]:
    """What all readers together make of a file."""
    summary = decode_summary(data, key, file_bytes=len(data))
    index, index_top = find_section(summary, INDEX), find_section(summary, INDEX_TOP)
    digests = find_section(summary, DIGESTS)
    top = decode_index_top(key, index, index_top, part_of(data, index_top))
    entries: list[Entry] = []
    for number in range(block_count(index)):
        block = decode_index_block(key, index, number, block_of(data, index, number))
        assert block.entries()[0] == top.entries()[number]
        entries += block.entries()
    found: list[int] = []
    for number in range(block_count(digests)):
        found += decode_digest_block(key, digests, number, block_of(data, digests, number))
    producers = find_section(summary, PRODUCERS)
    ProducerState.decode(check_section(key, producers, part_of(data, producers)))
    return summary, entries, found


def error_of(data: bytes, key: SegmentKey = KEY) -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        read_all(data, key)
    return raised.value


@settings(max_examples=40)
@given(
    count=st.sampled_from([0, 1, 169, 170, 171, 340, 511]),
    digests=st.lists(st.integers(0, 2**32 - 1), max_size=3),
)
def test_what_is_encoded_is_decoded(count: int, digests: list[int]) -> None:
    summary, data = made(entries_of(count), digests)
    assert read_all(data) == (summary, entries_of(count), digests)
    assert msgspec.structs.replace(summary, sections=()) == SUMMARY
    assert tuple(section.name for section in summary.sections) == SECTIONS
    assert decode_bare_summary(encode_summary(summary), KEY) == summary


def test_digests_of_more_than_a_block_are_decoded() -> None:
    digests = list(range(2 * DIGESTS_PER_BLOCK + 1))
    summary, data = made(entries_of(1), digests)
    assert read_all(data)[2] == digests
    section = find_section(summary, DIGESTS)
    whole = part_of(data, section)
    size_bytes = len(digests) * DIGEST_BYTES
    assert decode_digests(KEY, section, whole, size_bytes=size_bytes) == digests
    with pytest.raises(TidelogError, match="digests for"):
        decode_digests(KEY, section, whole, size_bytes=size_bytes + 1)


def test_a_block_holds_170_entries_or_1020_digests_in_4096_bytes() -> None:
    assert (ENTRIES_PER_BLOCK, DIGESTS_PER_BLOCK, BLOCK_BYTES) == (170, 1_020, 4_096)
    summary, _ = made(entries_of(170))
    assert find_section(summary, INDEX).length_bytes == 4_096
    summary, _ = made(entries_of(171))
    assert find_section(summary, INDEX).length_bytes == 4_096 + 8 + 24 + 4


def test_the_summary_of_a_sidecar_lies_within_the_first_read() -> None:
    _, data = made(entries_of(400))
    first = data[:FIRST_READ_BYTES]
    assert summary_end(first, KEY) <= len(first)
    assert decode_summary(first, KEY, file_bytes=len(data)).next_offset == 90


def test_a_summary_tells_positions_that_its_own_length_moves() -> None:
    # Lengths of the history around which a position takes one byte more.
    for epochs in (*range(120), 3_000, 9_300, 9_362, 9_363):
        starts = tuple(EpochStart(number, number) for number in range(epochs))
        long = msgspec.structs.replace(SUMMARY, leader_epochs=starts, next_offset=10**9)
        sections = dict.fromkeys(SECTIONS, b"")
        summary, data = encode_sidecar(long, {**sections, PRODUCERS: b"state"})
        assert decode_summary(data, KEY, file_bytes=len(data)) == summary
        assert part_of(data, find_section(summary, PRODUCERS)) == b"state"


def test_every_flipped_bit_is_found_by_the_reader_of_its_part() -> None:
    for entries, digests, step in ((3, 2, 1), (171, DIGESTS_PER_BLOCK, 131)):
        _, data = made(entries_of(entries), range(digests))
        for bit in range(0, 8 * len(data), step):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            assert error_of(bytes(flipped)).code is ErrorCode.STORAGE_CORRUPT, f"bit {bit}"


def test_every_cut_and_every_appendix_is_found() -> None:
    _, data = made(entries_of(3), [1])
    for length in range(len(data)):
        assert error_of(data[:length]).code is ErrorCode.STORAGE_CORRUPT
    assert error_of(data + b"\x00").code is ErrorCode.STORAGE_CORRUPT


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_the_sidecar_of_another_segment_is_refused(key: SegmentKey) -> None:
    summary, data = made(entries_of(3), [1])
    assert "it is the sidecar of" in error_of(data, key).happened
    # Its parts are, also where the summary is from the right file.
    index, digests = find_section(summary, INDEX), find_section(summary, DIGESTS)
    with pytest.raises(TidelogError, match="contradicts its checksum"):
        decode_index_block(key, index, 0, block_of(data, index, 0))
    with pytest.raises(TidelogError, match="contradicts its checksum"):
        decode_digest_block(key, digests, 0, block_of(data, digests, 0))


def test_a_block_at_another_blocks_place_is_refused() -> None:
    summary, data = made(entries_of(340), list(range(DIGESTS_PER_BLOCK)))
    index, digests = find_section(summary, INDEX), find_section(summary, DIGESTS)
    with pytest.raises(TidelogError, match="block 1 of"):
        decode_index_block(KEY, index, 0, block_of(data, index, 1))
    with pytest.raises(TidelogError, match="contradicts its checksum"):
        decode_index_block(KEY, index, 0, block_of(data, digests, 0))


def test_damage_names_the_file_and_the_byte() -> None:
    summary, data = made(entries_of(171))
    position = block_range(find_section(summary, INDEX), 1)[0]
    flipped = bytearray(data)
    flipped[position + 20] ^= 4
    error = error_of(bytes(flipped))
    assert error.tried == f"read {KEY.sidecar_path}"
    assert error.happened.startswith(f"damage at byte {position}: ")


def rewritten_head(data: bytes, *, version: int = 1, zero: int = 0) -> bytes:
    head = data[:8] + version.to_bytes(2, "big") + zero.to_bytes(2, "big") + data[12:20]
    return head + checksum(head).to_bytes(4, "big") + data[24:]


def test_a_newer_format_is_named_as_such() -> None:
    _, data = made()
    error = error_of(rewritten_head(data, version=3))
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert KEY.sidecar_path in error.tried
    assert error_of(rewritten_head(data, version=0)).code is ErrorCode.STORAGE_CORRUPT
    assert error_of(rewritten_head(data, zero=1)).code is ErrorCode.STORAGE_CORRUPT


def test_a_section_that_is_not_known_is_skipped() -> None:
    _, data = made(entries_of(3), [7])
    summary, data = with_summary(data, "later", b"of a later release")
    assert read_all(data) == (summary, entries_of(3), [7])
    assert summary.sections[-1].name == "later"


def with_summary(data: bytes, name: str, appendix: bytes) -> tuple[Summary, bytes]:
    """The same sidecar with one section more."""
    old = decode_summary(data, KEY, file_bytes=len(data))
    parts = {section.name: part_of(data, section) for section in old.sections}
    parts[name] = appendix
    summary = old
    for _ in range(5):
        position = HEAD_BYTES + len(encode_summary(summary))
        sections = []
        for each, part in parts.items():
            sections.append(Section(each, BytePosition(position), len(part), checksum(part)))
            position += len(part)
        summary = msgspec.structs.replace(old, sections=tuple(sections))
    return summary, file_of(summary) + b"".join(parts.values())


def file_of(summary: Summary) -> bytes:
    """Head and summary, whatever it says."""
    body = encode_summary(summary)
    head = b"TIDESIDE\x00\x01\x00\x00" + len(body).to_bytes(4, "big")
    head += checksum(body).to_bytes(4, "big")
    return head + checksum(head).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "changes",
    [
        {"topic_id": b"short"},
        {"partition": -1},
        {"generation": -1},
        {"base_offset": -1},
        {"base_offset": 91},
        {"next_offset": 2**63},
        {"size_bytes": -1},
        {"size_bytes": 0},
        {"batch_count": 0},
        {"record_count": -1},
        {"max_timestamp": -1},
        {"max_timestamp_offset": -1},
        {"cleaned_below": -1},
        {"tombstone_horizon_ms": -2},
        {"leader_epochs": (EpochStart(1, 0), EpochStart(1, 4))},
        {"leader_epochs": (EpochStart(1, 4), EpochStart(2, 4))},
        {"leader_epochs": (EpochStart(-1, 4),)},
        {"leader_epochs": (EpochStart(0, -1),)},
        {"leader_epochs": (EpochStart(0, 90),)},
        {"sections": ()},
    ],
)
def test_a_summary_that_cannot_be_is_refused_also_with_right_checksums(
    changes: dict[str, object],
) -> None:
    summary, data = made(entries_of(2))
    rest = data[summary_end(data, KEY) :]
    wrong = msgspec.structs.replace(summary, **changes)
    assert error_of(file_of(wrong) + rest).code is ErrorCode.STORAGE_CORRUPT


def test_sections_that_overlap_or_repeat_are_refused() -> None:
    summary, data = made(entries_of(2))
    rest = data[summary_end(data, KEY) :]
    sections = summary.sections
    for wrong in (
        (sections[0], *sections),
        sections[1:],
        (*sections[:-1], msgspec.structs.replace(sections[-1], byte_position=3)),
        (*sections[:-1], msgspec.structs.replace(sections[-1], length_bytes=-1)),
        (*sections[:-1], msgspec.structs.replace(sections[-1], length_bytes=2**40)),
    ):
        forged = msgspec.structs.replace(summary, sections=wrong)
        assert error_of(file_of(forged) + rest).code is ErrorCode.STORAGE_CORRUPT


@pytest.mark.parametrize(
    "entries",
    [
        [(5, 0, -1), (5, 4_096, 3)],
        [(5, 0, -1), (6, 0, 3)],
        [(5, 0, 3), (6, 4_096, 2)],
        [(-1, 0, -1)],
        [(0, -1, -1)],
        [(0, 0, -2)],
    ],
)
def test_entries_that_do_not_ascend_are_refused(entries: list[Entry]) -> None:
    _, data = made(entries)
    assert "does not ascend" in error_of(data).happened


def test_a_summary_with_a_huge_length_is_not_read() -> None:
    _, data = made()
    head = data[:12] + (2**32 - 1).to_bytes(4, "big") + data[16:20]
    forged = head + checksum(head).to_bytes(4, "big") + data[24:]
    assert error_of(forged).code is ErrorCode.STORAGE_CORRUPT


@pytest.mark.fuzz
@given(body=st.binary(max_size=300))
def test_any_bytes_with_a_right_head_are_a_summary_or_corrupt(body: bytes) -> None:
    head = b"TIDESIDE\x00\x01\x00\x00" + len(body).to_bytes(4, "big")
    head += checksum(body).to_bytes(4, "big")
    data = head + checksum(head).to_bytes(4, "big") + body
    with contextlib.suppress(TidelogError):
        decode_summary(data, KEY, file_bytes=len(data))
        return
    assert error_of(data).code is ErrorCode.STORAGE_CORRUPT


def test_the_bytes_of_a_live_index_are_the_payload_of_its_blocks() -> None:
    index = SparseIndex()
    for number in range(400):
        index.add(40 + number, 3_000 * number, number % 7)
    blocks, _ = encode_index(KEY, index.entries())
    assert frame_blocks(block_seed(KEY, INDEX), index.packed()) == blocks


def test_a_digest_is_bound_to_partition_and_position() -> None:
    data = bytes(100)
    digest = digest_of(PARTITION, 0, data)
    assert digest == checksum(bytes(range(16)) + b"\x00\x00\x00\x03" + bytes(8) + data)
    assert digest != digest_of(PARTITION, DIGEST_BYTES, data)
    for other in OTHER_KEYS[2:]:
        assert digest != digest_of(other.partition, 0, data)


GOLDEN_BATCHES = [
    Batch(records=2, timestamp=7),
    Batch(records=1, value_bytes=5_000, timestamp=9, leader_epoch_step=2),
    Batch(producer_id=5, producer_epoch=1, base_sequence=4, timestamp=8, is_transactional=True),
    Batch(producer_id=5, producer_epoch=2, timestamp=8, is_control=True, is_abort=True),
    Batch(producer_id=6, base_sequence=0, timestamp=8, is_transactional=True),
]


def golden(batches: Sequence[Batch] = GOLDEN_BATCHES) -> tuple[Summary, bytes]:
    facts = SegmentFacts(
        key=segment_key(40, generation=2),
        is_contiguous=False,
        epochs_before=(EpochStart(1, 0),),
        cleaned_below=44,
        replaces=(Replaced(Offset(40), 0), Replaced(Offset(42), 1)),
    )
    builder = SidecarBuilder(facts)
    builder.feed(segment_bytes(batches, base_offset=40, leader_epoch=1))
    return builder.finish()


GOLDEN_OF_VERSION_1 = """
5449444553494445000100000000013964b9c1f2ca3da1588fa8746f7069635f6964c410000102030405060708090a0b
0c0d0e0fa9706172746974696f6e03ab626173655f6f666673657428aa67656e65726174696f6e02ab6e6578745f6f66
667365742caa73697a655f6279746573cd1466ab62617463685f636f756e7403ac7265636f72645f636f756e7404ad6d
61785f74696d657374616d7009b46d61785f74696d657374616d705f6f66667365742aad6c65616465725f65706f6368
739292010092032aad636c65616e65645f62656c6f772cb4746f6d6273746f6e655f686f72697a6f6e5f6d73ffa87265
706c6163657392922800922a01a873656374696f6e739494a5696e646578cd01513cce78c1d9d694a9696e6465785f74
6f70cd018d18ce6986bdc294a764696765737473cd01a510ce1553a4b094a970726f647563657273cd01b51ace0fb36c
94000000300000000000000000000000280000000000000000ffffffffffffffff000000000000002b00000000000014
1f0000000000000009f403527e00000000000000280000000000000000ffffffffffffffff00000004000000004e7a83
46c364ee69000100000000000ec7aec986920991950501919404002b08092b
"""


GOLDEN_HEX = """
544944455349444500020000000001508090cf165ee83dae8fa8746f7069635f6964c410000102030405060708090a0b
0c0d0e0fa9706172746974696f6e03ab626173655f6f666673657428aa67656e65726174696f6e02ab6e6578745f6f66
667365742eaa73697a655f6279746573cd14fbab62617463685f636f756e7405ac7265636f72645f636f756e7406ad6d
61785f74696d657374616d7009b46d61785f74696d657374616d705f6f66667365742aad6c65616465725f65706f6368
739292010092032aad636c65616e65645f62656c6f772cb4746f6d6273746f6e655f686f72697a6f6e5f6d73ffa87265
706c6163657392922800922a01a873656374696f6e739594a5696e646578cd01683cce78c1d9d694a9696e6465785f74
6f70cd01a418ce6986bdc294a764696765737473cd01bc10cead5c16d694a970726f647563657273cd01cc22ce80ddf4
8b94ac7472616e73616374696f6e73cd01ee20cebf566413000000300000000000000000000000280000000000000000
ffffffffffffffff000000000000002b000000000000141f0000000000000009f403527e000000000000002800000000
00000000ffffffffffffffff0000000400000000b502aa62e88dae5600020000000000160f0ef72e9209929605029009
ff00960600919400002d08092dff000000000000002d0000000000000005000000000000002b000000000000002c
"""


def test_the_bytes_of_a_sidecar_are_pinned() -> None:
    summary, data = golden()
    assert data.hex() == "".join(GOLDEN_HEX.split())
    stored = bytes.fromhex(GOLDEN_HEX)
    assert decode_summary(stored, summary.key, file_bytes=len(stored)) == summary
    assert [section.name for section in summary.sections] == [*SECTIONS, TRANSACTIONS]
    section = find_section(summary, TRANSACTIONS)
    told = SegmentTransactions.decode(part_of(data, section), where="a test")
    assert (told.first_open_offset, len(told.aborted)) == (45, 1)
    assert summary.leader_epochs == (EpochStart(1, 0), EpochStart(3, 42))
    assert summary.replaces == (Replaced(Offset(40), 0), Replaced(Offset(42), 1))


def test_a_sidecar_of_version_1_is_read_as_one_without_transactions() -> None:
    stored = bytes.fromhex(GOLDEN_OF_VERSION_1)
    summary = decode_summary(stored, segment_key(40, generation=2), file_bytes=len(stored))
    assert not has_transactions(summary)
    now, _ = golden(GOLDEN_BATCHES[:3])
    assert msgspec.structs.replace(now, sections=()) == msgspec.structs.replace(
        summary, sections=()
    )


def test_a_sidecar_that_tells_of_no_transaction_is_of_version_1() -> None:
    _, data = golden(GOLDEN_BATCHES[:2])
    assert data[8:10] == b"\0\1"
    _, data = golden()
    assert data[8:10] == b"\0\2"
    for other in (golden()[1], golden(GOLDEN_BATCHES[:2])[1]):
        error = error_of(rewritten_head(other, version=3 - other[9]), segment_key(40, 2))
        assert error.code is ErrorCode.STORAGE_CORRUPT


@given(stored=batches(max_size=12))
def test_a_sidecar_that_was_made_is_read_by_its_readers(stored: list[Batch]) -> None:
    builder = SidecarBuilder(SegmentFacts(key=KEY))
    builder.feed(segment_bytes(stored, base_offset=40))
    summary, data = builder.finish()
    again, _, digests = read_all(data)
    assert again == summary
    assert digests == builder.digests
