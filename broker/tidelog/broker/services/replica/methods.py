"""ReplicaService: conversions for both ends, and the service's two methods.

What comes from the wire is checked here as far as a number by itself can be wrong; whether it fits
the log is the session's business.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.broker.replication.shared.messages import EpochEnd, EpochQuery
from tidelog.broker.replication.tasks.leader_stream import ReplicaFetchHandler
from tidelog.broker.replication.tasks.wire import REPLICA_FETCH, _FollowerEnd, _read_key
from tidelog.metadata_quorum.shared.wire_errors import fill_error
from tidelog.ports import Method, RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.v1 import replica_pb2
from tidelog.wire.ids import (
    LeaderEpoch,
)

EPOCH_END_OFFSETS: Final = "/tidelog.v1.ReplicaService/EpochEndOffsets"
REPLICA_FILES: Final = (replica_pb2.DESCRIPTOR,)
"""Every service in these files is served whole by a broker, on the `cluster` listener."""


# -- the follower's end --------------------------------------------------------------------------


# -- the leader's end ----------------------------------------------------------------------------


class ReplicaRpc:
    """The service's two methods over one handler."""

    def __init__(self, handler: ReplicaFetchHandler) -> None:
        self._handler = handler

    def methods(self) -> Mapping[str, Method]:
        """By full name; the gate is put before them by whoever serves them."""
        return {
            REPLICA_FETCH: StreamMethod(self.replica_fetch),
            EPOCH_END_OFFSETS: UnaryMethod(self.epoch_end_offsets),
        }

    async def replica_fetch(self, context: RequestContext, stream: Stream) -> None:
        """`ReplicaFetch`."""
        del context
        await self._handler.serve(_FollowerEnd(stream))

    async def epoch_end_offsets(self, context: RequestContext, message: bytes) -> bytes:
        """`EpochEndOffsets`."""
        del context
        asked = replica_pb2.EpochEndOffsetsRequest.FromString(message)
        queries = [
            EpochQuery(
                key=_read_key(each.topic_id, each.partition),
                current_leader_epoch=LeaderEpoch(each.current_leader_epoch),
                leader_epoch=LeaderEpoch(each.leader_epoch),
            )
            for each in asked.queries
        ]
        response = replica_pb2.EpochEndOffsetsResponse()
        for answer in self._handler.epoch_ends(asked.cluster_id, queries):
            _fill_epoch_end(response.answers.add(), answer)
        return response.SerializeToString()


def _fill_epoch_end(message: replica_pb2.EpochAnswer, answer: EpochEnd) -> None:
    message.topic_id = answer.key.topic_id
    message.partition = answer.key.partition
    message.leader_epoch = answer.leader_epoch
    message.end_offset = answer.end_offset
    if answer.error is not None:
        fill_error(message.error, answer.error)
