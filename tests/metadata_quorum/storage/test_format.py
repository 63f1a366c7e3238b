"""The bytes on disk, as they are: a change of any of them is a change of the format."""

from typing import Final

from tests.metadata_quorum.storage.storage_steps import MEMBER, MEMBERS, UUID, entry, format_
from tests.metadata_quorum.storage.stores import Store
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Repair,
    SnapshotId,
)
from tidelog.metadata_quorum.storage.blocks import Head, encode_block, encode_table, table_sum
from tidelog.metadata_quorum.storage.journal import parse_segment_name, segment_name
from tidelog.metadata_quorum.storage.marks import Mark, boot_tag, encode_mark, newest_mark
from tidelog.metadata_quorum.storage.scan import scan_segment
from tidelog.metadata_quorum.storage.snapshot_files import parse_snapshot_name, snapshot_name
from tidelog.metadata_quorum.storage.snapshot_format import (
    SnapshotContent,
    decode_snapshot,
    encode_snapshot,
)
from tidelog.wire.ids import LogIndex, Term

BLOCK: Final = (
    "545142310500000000000000040000000000000002020000000500000000000000d4c8f91807000000000000"
    "0002000000000000000600000000000000080000000000000003000000000000000300000000000000010100"
    "0000000102030405060708090a0b0c0d0e0f010400000000000000090000000000000002000000000000005e"
    "7c1cfa0700000000000000030000000000000001050000004ac3f81608000000000000000300000000000000"
    "03000000002e53ec24736576656e545145310500000000000000040000000000000002020000000500000000"
    "000000d4c8f91807000000000000000200000000000000060000000000000008000000000000000300000000"
    "00000003000000000000000101000000000102030405060708090a0b0c0d0e0f010400000000000000090000"
    "0000000000020000000000000072acbe36"
)
MARK: Final = (
    "54514d3105000000000000000300000000000000060000000000000002000000000000000100000000000000"
    "0800000000000000030000000000000003000000000000000101000000000102030405060708090a0b0c0d0e"
    "0f0104000000000000000900000000000000020000000000000048e6d32ab2a2973cb68025d876abde6ed204"
    "000000000000c3ed965254514d31050000000000000003000000000000000600000000000000020000000000"
    "0000010000000000000008000000000000000300000000000000030000000000000001010000000001020304"
    "05060708090a0b0c0d0e0f0104000000000000000900000000000000020000000000000048e6d32ab2a2973c"
    "b68025d876abde6ed204000000000000c3ed9652"
)
SNAPSHOT: Final = (
    "54515331070000000000000002000000000000000100000059000000fe77c61681a76d656d626572739183a2"
    "696482a76e6f64655f696401ae6469726563746f72795f75756964c410000102030405060708090a0b0c0d0e"
    "0fa761646472657373ab3132372e302e302e313a39aa69735f6c6561726e6572c26034af69050000003262bd"
    "b27374617465545153459e00000000000000673490882cfe2e1d"
)
IDENTITY: Final = """\
{
  "format_version": 1,
  "cluster_id": "c",
  "node_id": 1,
  "directory_uuid": "AAECAwQFBgcICQoLDA0ODw==",
  "bootstrap": {
    "members": [
      {
        "id": {
          "node_id": 1,
          "directory_uuid": "AAECAwQFBgcICQoLDA0ODw=="
        },
        "address": "127.0.0.1:9",
        "is_learner": false
      }
    ]
  },
  "bootstrap_command": "Zmlyc3Q=",
  "checksum": 934719375
}"""

STATE: Final = HardState(
    term=Term(3),
    voted_for=MEMBER,
    repair=Repair(from_index=LogIndex(4), last_index=LogIndex(9), last_term=Term(2)),
)
ENTRIES: Final = (
    entry(7, 3, b"seven"),
    Entry(index=LogIndex(8), term=Term(3), kind=EntryKind.EMPTY),
)


def test_a_block_is_these_bytes() -> None:
    table = encode_table(ENTRIES)
    head = Head(
        sequence=5,
        previous_sequence=4,
        is_reset=False,
        is_after_reset=True,
        entry_count=2,
        data_bytes=5,
        table_sum=table_sum(table, UUID),
        from_index=LogIndex(7),
        previous_term=Term(2),
        previous_from_index=LogIndex(6),
        end_index=LogIndex(8),
        end_term=Term(3),
        hard_state=STATE,
    )
    assert b"".join(encode_block(head, table, ENTRIES, UUID)).hex() == BLOCK
    scan = scan_segment(bytes.fromhex(BLOCK), UUID)
    assert scan.is_clean
    (block,) = scan.blocks
    assert (block.head, block.entries) == (head, ENTRIES)


def test_a_block_of_another_directory_counts_for_nothing() -> None:
    assert scan_segment(bytes.fromhex(BLOCK), UUID[::-1]).blocks == ()


def test_a_mark_is_these_bytes() -> None:
    mark = Mark(
        sequence=5,
        since_sequence=3,
        lowest_from=LogIndex(6),
        base_index=LogIndex(2),
        base_term=Term(1),
        end_index=LogIndex(8),
        end_term=Term(3),
        hard_state=STATE,
        boot=boot_tag("boot"),
        segment_bytes=1234,
    )
    assert encode_mark(mark).hex() == MARK
    assert newest_mark(bytes.fromhex(MARK)) == mark


def test_a_snapshot_is_these_bytes() -> None:
    content = SnapshotContent(
        id=SnapshotId(LogIndex(7), Term(2)), members=MEMBERS, state=(b"state",)
    )
    assert b"".join(encode_snapshot(content)).hex() == SNAPSHOT
    assert decode_snapshot(bytes.fromhex(SNAPSHOT), "here") == content


def test_an_identity_is_these_bytes() -> None:
    with Store() as store:
        store.run(format_(store.disk()))
        assert store.files()["quorum.json"].decode() == IDENTITY
        store.put({"quorum.json": IDENTITY.encode(), "marks": store.files()["marks"]})
        identity = store.run(store.open()).identity
    assert (identity.node_id, identity.cluster_id, identity.bootstrap) == (1, "c", MEMBERS)
    assert (identity.directory_uuid, identity.bootstrap_command) == (UUID, b"first")


def test_files_are_named_by_what_they_hold() -> None:
    segment = "journal-00000000000000000012-00000000000000000009.log"
    assert segment_name(12, 9) == segment
    assert parse_segment_name(segment) == (12, 9)
    assert parse_segment_name(segment + ".damaged") is None
    snapshot = "snapshot-00000000000000000007-00000000000000000002"
    snapshot_id = SnapshotId(LogIndex(7), Term(2))
    assert snapshot_name(snapshot_id) == snapshot
    assert parse_snapshot_name(snapshot) == snapshot_id
    assert parse_snapshot_name(snapshot + ".fetch") is None
