"""Watches answers leave brokers, and compares them with what the disks of the cluster hold.

Only a simulator can do this. An acknowledgement with acks=all is a promise about several copies:
it is judged at once, not only when a crash happens to fall into the gap. So is what readers are
served.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.log.names import SEGMENT_SUFFIX, directory_name
from tidelog.chaos.checkers.cluster.board import LATELY_NS, ClusterBoard, PartitionBoard
from tidelog.chaos.sim.cluster.node import ClusterNode
from tidelog.chaos.sim.ports.exchange import Exchange
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.chaos.workloads.log_client import FETCH, FETCH_STREAM, PRODUCE, PRODUCE_STREAM
from tidelog.v1 import fetch_pb2, produce_pb2
from tidelog.wire.batch import iterate_headers
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

_OPAQUE_FROM: Final = 16
"""From the magic byte on a broker never changes a batch: offset and epoch lie before."""
_STAMPED_FROM: Final = 43
"""Of a topic whose records carry the time of their append: from the producer's id on."""
_NEVER_NS: Final = -LATELY_NS


class AnswersWatch:
    """A tap of the fabric."""

    def __init__(self, nodes: Sequence[ClusterNode], board: ClusterBoard) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._board = board
        self._requested: dict[tuple[int, int], produce_pb2.ProduceRequest] = {}
        self.crashed_ns: dict[int, int] = {}
        """By node, when its machine crashed last."""
        self.wiped_ns: dict[int, int] = {}
        """By node, when its disk was replaced last."""
        self.acknowledged = 0

    def __call__(self, exchange: Exchange, direction: str, message: bytes) -> None:
        """Look at one message."""
        method = exchange.method
        if method == PRODUCE:
            if direction == "request":
                request = produce_pb2.ProduceRequest.FromString(message)
                self._requested[exchange.number, 0] = request
            else:
                answer = produce_pb2.ProduceResponse.FromString(message)
                self._on_answer(exchange, 0, answer)
        elif method == PRODUCE_STREAM:
            self._on_stream(exchange, direction, message)
        elif direction == "reply" and method == FETCH:
            self._on_fetch(exchange, fetch_pb2.FetchResponse.FromString(message).partitions)
        elif direction == "reply" and method == FETCH_STREAM:
            self._on_fetch(exchange, fetch_pb2.FetchStreamResponse.FromString(message).partitions)

    def _on_stream(self, exchange: Exchange, direction: str, message: bytes) -> None:
        if direction == "request":
            request = produce_pb2.ProduceStreamRequest.FromString(message)
            self._requested[exchange.number, request.correlation_id] = request.request
        else:
            answer = produce_pb2.ProduceStreamResponse.FromString(message)
            self._on_answer(exchange, answer.correlation_id, answer.response)

    def _on_answer(
        self, exchange: Exchange, number: int, answer: produce_pb2.ProduceResponse
    ) -> None:
        request = self._requested.pop((exchange.number, number), None)
        if request is None:
            return
        for acknowledgement, batch in zip(answer.acknowledgements, request.batches, strict=False):
            if acknowledgement.error.code:
                continue
            self.acknowledged += 1
            if request.acks == produce_pb2.ACKS_ALL:
                self._check_copies(exchange, batch, acknowledgement.base_offset)

    def _check_copies(
        self, exchange: Exchange, batch: produce_pb2.PartitionBatch, base_offset: int
    ) -> None:
        key = PartitionKey(TopicId(batch.topic_id), PartitionId(batch.partition))
        board = self._board.partitions.get(key)
        if board is None or board.excuse is not None:
            return
        if base_offset < board.decided_start:
            # Sent again, and told to be there: since then its leader has deleted it, as it should.
            return
        opaque = batch.batch[_STAMPED_FROM if board.is_append_time else _OPAQUE_FROM :]
        # Another one that answers has not heard yet that it was left: it counts on several copies.
        answering = self._answering(exchange)
        now_ns = exchange.fabric.loop.now_ns
        own = None if answering is None else answering.partition(key)
        in_sync_min = board.in_sync_min(own, now_ns)
        is_sole = answering is not None and (
            board.image.replicas == (answering.node_id,)
            or (in_sync_min == 1 and board.is_in_sync_alone(answering.node_id, own, now_ns))
        )
        is_durable = board.is_flush_sync or is_sole
        # Nobody comes back to what others had that were let go, or could not lead.
        counted = [answering] if is_sole and answering is not None else self._nodes.values()
        lately_ns = now_ns - LATELY_NS
        copies = sum(
            _holds(node, key, opaque, is_durable=is_durable)
            or self._lost_ns(node.node_id, is_durable=is_durable) > lately_ns
            or board.gone_ns.get(node.node_id, _NEVER_NS) > lately_ns
            for node in counted
        )
        if copies < in_sync_min:
            kind, how = ("not_flushed", "durable ") if is_durable else ("not_copied", "")
            self._board.report(
                f"{kind}: a batch of {board.name} was acknowledged at {base_offset} with "
                f"{copies} {how}copies, {in_sync_min} are wanted"
            )

    def _answering(self, exchange: Exchange) -> ClusterNode | None:
        place = exchange.server_place
        return None if place is None else self._nodes.get(place.name)

    def _lost_ns(self, node_id: int, *, is_durable: bool) -> int:
        """When it lost such copies last: the answer may have been on its way by then."""
        wiped_ns = self.wiped_ns.get(node_id, _NEVER_NS)
        return wiped_ns if is_durable else max(wiped_ns, self.crashed_ns.get(node_id, _NEVER_NS))

    def _on_fetch(self, exchange: Exchange, parts: Sequence[fetch_pb2.PartitionBatches]) -> None:
        node = self._answering(exchange)
        for part in parts:
            board = self._board.partitions.get(
                PartitionKey(TopicId(part.topic_id), PartitionId(part.partition))
            )
            if board is None or board.excuse is not None or not part.batches:
                continue
            end = max(header.next_offset for _, header in iterate_headers(part.batches))
            if end > board.committed and end > _watermark(node, board):
                self._board.report(
                    f"served_uncommitted: {board.name}: {end - 1} was served, committed is "
                    f"{board.committed}"
                )


def _watermark(node: ClusterNode | None, board: PartitionBoard) -> int:
    """As the node that answered knows it: it may have stopped leading since."""
    if node is None:
        return -1
    for replica in node.replicas():
        if replica.log.key == board.key:
            return replica.log.high_watermark
    return -1


def _holds(node: ClusterNode, key: PartitionKey, opaque: bytes, *, is_durable: bool) -> bool:
    medium = node.machine.medium()
    root = medium.root
    names = root.durable if is_durable else root.seen
    place = names.get(directory_name(key))
    if not isinstance(place, Directory):
        return False
    files = place.durable if is_durable else place.seen
    for name in sorted(files, reverse=True):
        child = files[name]
        if name.endswith(SEGMENT_SUFFIX) and isinstance(child, Inode):
            content = child.durable if is_durable else child.seen
            if opaque in content or opaque in _as_written(medium, child, content):
                return True
    return False


def _as_written(medium: Medium, inode: Inode, content: bytearray) -> bytes:
    """Before it rotted: a batch that is sent again is told to be there, and was stored in time."""
    written = bytearray(content)
    for rotten, byte_position, before, after in reversed(medium.flips):
        if rotten is inode and byte_position < len(written) and written[byte_position] == after:
            written[byte_position] = before
    return bytes(written)
