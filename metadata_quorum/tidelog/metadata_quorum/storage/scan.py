"""Finds the blocks in a segment's bytes, also behind damage. Pure."""

from typing import Final

import msgspec

from tidelog.metadata_quorum.storage.blocks import (
    FOOT_MAGIC,
    HEAD_BYTES,
    HEAD_MAGIC,
    Block,
    Head,
    head_at,
    read_entries,
)

_MAGICS: Final = (HEAD_MAGIC, FOOT_MAGIC)


class SegmentScan(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment holds."""

    blocks: tuple[Block, ...]
    is_clean: bool
    """Every byte belongs to a block that is as it was written."""
    size_bytes: int
    tail_bytes: int
    """At the end, of no block."""


def scan_segment(data: bytes, salt: bytes) -> SegmentScan:
    """All blocks of which head or foot is whole, in the order of their places."""
    end = 0
    blocks: list[Block] = []
    is_clean = True
    position = 0
    while position < len(data):
        head = head_at(data, position, HEAD_MAGIC, salt)
        if head is None:
            is_clean = False
            found = _next_head(data, position, salt)
            if found is None:
                break
            place, head, is_foot = found
            if not is_foot:
                position = place
                continue
            body = max(position, place - head.body_bytes)
            entries = read_entries(data, body, head, salt)
            blocks.append(Block(head=head, entries=entries, is_sealed=False))
            position = end = place + HEAD_BYTES
            continue
        foot = position + HEAD_BYTES + head.body_bytes
        is_sealed = head_at(data, foot, FOOT_MAGIC, salt) == head
        entries = read_entries(data, position + HEAD_BYTES, head, salt)
        position = end = foot + HEAD_BYTES
        is_cut_off = end > len(data)
        blocks.append(Block(head=head, entries=entries, is_sealed=is_sealed, is_cut_off=is_cut_off))
    is_clean = is_clean and position == len(data)
    return SegmentScan(
        blocks=tuple(blocks),
        is_clean=is_clean and all(block.is_sealed and block.is_whole for block in blocks),
        size_bytes=len(data),
        tail_bytes=max(0, len(data) - end),
    )


def _next_head(data: bytes, start: int, salt: bytes) -> tuple[int, Head, bool] | None:
    """The first whole head or foot behind `start`, and whether it is a foot."""
    places = {magic: data.find(magic, start + 1) for magic in _MAGICS}
    while any(place >= 0 for place in places.values()):
        magic = min(
            (magic for magic in _MAGICS if places[magic] >= 0), key=lambda magic: places[magic]
        )
        place = places[magic]
        head = head_at(data, place, magic, salt)
        if head is not None:
            return place, head, magic == FOOT_MAGIC
        places[magic] = data.find(magic, place + 1)
    return None
