"""A snapshot that came over the metadata stream: the bytes of a voter's file, taken apart."""

from collections.abc import Sequence

from tidelog.metadata_quorum.raft.types import Snapshot
from tidelog.metadata_quorum.storage.snapshot_format import decode_snapshot


def decode_stream_snapshot(data: bytes) -> tuple[Snapshot, Sequence[bytes]]:
    """STORAGE_CORRUPT if a checksum does not agree."""
    content = decode_snapshot(data, "the snapshot on the metadata stream")
    snapshot = Snapshot(id=content.id, members=content.members, size_bytes=len(data))
    return snapshot, content.state
