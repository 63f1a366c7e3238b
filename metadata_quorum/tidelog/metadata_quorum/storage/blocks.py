"""The journal's blocks as bytes: what one `perform` adds, to be flushed as one. Pure.

    head | table: one row an entry | data of the entries | foot

The head tells what the block does and what state it leaves behind: the log is cut from
`from_index` on, then the entries are appended; term, vote and repair are as given. The foot is the
head once more under another magic, so that neither a flipped bit nor a torn front takes the hard
state away. A row is an entry's index, term, kind, data length and the checksum of the contract
(proto/tidelog/v1/quorum.proto, QuorumEntry). The sums of head, foot and table begin with the
directory's uuid: bytes that a user stored cannot be taken for a block.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import Entry, EntryKind, HardState
from tidelog.metadata_quorum.storage.state_layout import STATE_BYTES, decode_state, encode_state
from tidelog.wire.batch import checksum
from tidelog.wire.batch.checksum import extend_checksum
from tidelog.wire.ids import LogIndex, Term

HEAD_MAGIC: Final = b"TQB1"
FOOT_MAGIC: Final = b"TQE1"
_HEAD: Final = struct.Struct(f"<4sQQBIQIQQQQQ{STATE_BYTES}s")
_SUM: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _SUM.size
_ROW: Final = struct.Struct("<QQBII")
ROW_BYTES: Final = _ROW.size
_SUMMED: Final = struct.Struct("<QQB")

_KINDS: Final = {EntryKind.COMMAND: 1, EntryKind.MEMBERS: 2, EntryKind.EMPTY: 3}
_KINDS_BY_NUMBER: Final = {number: kind for kind, number in _KINDS.items()}

_IS_RESET: Final = 1
_AFTER_RESET: Final = 2


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a block does, and the state that it leaves behind."""

    sequence: int
    previous_sequence: int
    """Of the block that this one follows; whatever lies between the two never counted."""
    is_reset: bool = False
    """The log before it gave way to a snapshot that ends before `from_index`."""
    is_after_reset: bool = False
    """The previous block was such a one."""
    entry_count: int
    data_bytes: int
    table_sum: int
    from_index: LogIndex
    """The log is cut from here on; the first entry's index, if there are entries."""
    previous_term: Term
    """Of the entry before `from_index`."""
    previous_from_index: LogIndex
    """Of the previous block: what is in doubt if that one is lost."""
    end_index: LogIndex
    """The log's last entry after this block, and its term."""
    end_term: Term
    hard_state: HardState

    @property
    def body_bytes(self) -> int:
        """Table and data."""
        return self.entry_count * ROW_BYTES + self.data_bytes


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A block as it was found."""

    head: Head
    entries: tuple[Entry | None, ...]
    """None: damaged, or not there."""
    is_sealed: bool
    """Head and foot are both as written."""
    is_cut_off: bool = False
    """The file ends before the block does."""

    @property
    def is_whole(self) -> bool:
        """Nothing that matters is lost."""
        return None not in self.entries


def entry_sum(entry: Entry) -> int:
    """The checksum that the contract gives an entry."""
    return extend_checksum(
        checksum(_SUMMED.pack(entry.index, entry.term, _KINDS[entry.kind])), entry.data
    )


def encode_table(entries: Sequence[Entry]) -> bytes:
    """A row for each."""
    return b"".join(
        _ROW.pack(entry.index, entry.term, _KINDS[entry.kind], len(entry.data), entry_sum(entry))
        for entry in entries
    )


def table_sum(table: bytes, salt: bytes) -> int:
    """Binds the rows, and by their sums the data, to the head."""
    return checksum(salt + table)


def encode_block(head: Head, table: bytes, entries: Sequence[Entry], salt: bytes) -> list[bytes]:
    """The pieces to append."""
    assert head.entry_count == len(entries), "the head counts the entries"
    data = [entry.data for entry in entries]
    return [
        _encode_head(head, HEAD_MAGIC, salt),
        table,
        *data,
        _encode_head(head, FOOT_MAGIC, salt),
    ]


def _encode_head(head: Head, magic: bytes, salt: bytes) -> bytes:
    body = _HEAD.pack(
        magic,
        head.sequence,
        head.previous_sequence,
        head.is_reset * _IS_RESET | head.is_after_reset * _AFTER_RESET,
        head.entry_count,
        head.data_bytes,
        head.table_sum,
        head.from_index,
        head.previous_term,
        head.previous_from_index,
        head.end_index,
        head.end_term,
        encode_state(head.hard_state),
    )
    return body + _SUM.pack(checksum(salt + body))


def head_at(data: bytes, position: int, magic: bytes, salt: bytes) -> Head | None:
    """The head, or the foot, at this place; None: there is no whole one."""
    end = position + _HEAD.size
    if position < 0 or end + _SUM.size > len(data) or data[position : position + 4] != magic:
        return None
    body = data[position:end]
    if checksum(salt + body) != _SUM.unpack_from(data, end)[0]:
        return None
    fields = _HEAD.unpack(body)
    return Head(
        sequence=fields[1],
        previous_sequence=fields[2],
        is_reset=bool(fields[3] & _IS_RESET),
        is_after_reset=bool(fields[3] & _AFTER_RESET),
        entry_count=fields[4],
        data_bytes=fields[5],
        table_sum=fields[6],
        from_index=LogIndex(fields[7]),
        previous_term=Term(fields[8]),
        previous_from_index=LogIndex(fields[9]),
        end_index=LogIndex(fields[10]),
        end_term=Term(fields[11]),
        hard_state=decode_state(fields[12]),
    )


def read_entries(data: bytes, start: int, head: Head, salt: bytes) -> tuple[Entry | None, ...]:
    """The entries of the body at `start`; None in place of each that is not as it was written.

    With a damaged table, rows are believed as far as they and their data agree.
    """
    table_end = start + head.entry_count * ROW_BYTES
    position = table_end
    entries: list[Entry | None] = []
    for number in range(head.entry_count):
        row = start + number * ROW_BYTES
        if row + ROW_BYTES > len(data):
            entries.append(None)
            continue
        length, entry = _entry_at(data, row, position)
        position += length
        fits = entry is not None and entry.index == head.from_index + number
        entries.append(entry if fits else None)
    if None not in entries and table_sum(data[start:table_end], salt) != head.table_sum:
        # Every entry agrees with its row, but these are not the rows of this head.
        return (None,) * head.entry_count
    return tuple(entries)


def _entry_at(data: bytes, row: int, position: int) -> tuple[int, Entry | None]:
    index, term, number, length, stored = _ROW.unpack_from(data, row)
    kind = _KINDS_BY_NUMBER.get(number)
    if kind is None or position + length > len(data):
        return length, None
    entry = Entry(
        index=LogIndex(index), term=Term(term), kind=kind, data=data[position : position + length]
    )
    return length, entry if entry_sum(entry) == stored else None
