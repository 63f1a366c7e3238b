"""ExportMetadata: everything in this node's image as one file, piece by piece.

Owns the walk over the pieces. The file has the form of a quorum's snapshot without members, so that
whatever reads snapshots reads it, checksums included.
"""

from typing import Final

from tidelog.metadata.apply.snapshot import EncodedImage
from tidelog.metadata_quorum.port import Metadata
from tidelog.metadata_quorum.raft.types import NO_TERM, Members, SnapshotId
from tidelog.metadata_quorum.storage.snapshot_format import SnapshotContent, encode_snapshot
from tidelog.ports import RequestContext, Stream
from tidelog.v1 import metadata_admin_pb2
from tidelog.wire.ids import LogIndex

PIECE_BYTES: Final = 1024 * 1024


class MetadataExport:
    """Of one node."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def export_metadata(self, context: RequestContext, stream: Stream) -> None:
        """`ExportMetadata`."""
        del context
        message = await stream.receive()
        metadata_admin_pb2.ExportMetadataRequest.FromString(message or b"")
        image = self._metadata.image()
        content = SnapshotContent(
            id=SnapshotId(LogIndex(image.version + 1), NO_TERM),
            members=Members(),
            state=tuple(EncodedImage(image, None)),
        )
        data = b"".join(encode_snapshot(content))
        for position in range(0, len(data), PIECE_BYTES):
            piece = metadata_admin_pb2.ExportMetadataResponse(
                position=position,
                data=data[position : position + PIECE_BYTES],
                total_bytes=len(data),
            )
            await stream.send(piece.SerializeToString())
