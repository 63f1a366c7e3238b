"""Invariants of the metadata as brokers see them: one order, one content for each version.

Every node's image is looked at as it becomes visible. It must never judge an image that a node has
not shown.
"""

import hashlib

import msgspec

from tidelog.chaos.checkers.cluster.board import ClusterBoard
from tidelog.metadata.image.image import Image


class MetadataWatch:
    """Of one run."""

    def __init__(self, board: ClusterBoard) -> None:
        self._board = board
        self._contents: dict[int, bytes] = {}
        """By version, what it says."""
        self._shown: dict[tuple[str, int], Image] = {}
        """By node and life, what it shows at the moment."""

    def see(self, node: str, life: int, image: Image) -> None:
        """A node shows this image now."""
        before = self._shown.get((node, life))
        if before is image:
            return
        self._shown[node, life] = image
        if before is not None and image.version < before.version:
            self._board.report(
                f"metadata_went_back: {node} showed version {before.version}, then {image.version}"
            )
        if not image.version:
            return
        content = _digest(image)
        known = self._contents.setdefault(image.version, content)
        if known != content:
            self._board.report(
                f"metadata_differ: version {image.version} at {node} says something else than "
                "at another node"
            )


def _digest(image: Image) -> bytes:
    content = [
        sorted(
            (topic.name, topic.topic_id, msgspec.msgpack.encode(topic.partitions))
            for topic in image.topics.values()
        ),
        sorted(msgspec.msgpack.encode(broker) for broker in image.brokers.values()),
        image.next_producer_id,
    ]
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).digest()
