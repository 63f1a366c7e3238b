"""`DeleteRecords` of TopicAdminService, which leaders answer themselves: protobuf and Structs."""

from tidelog.broker.services.offsets.trim import TrimHandler, TrimPoint
from tidelog.contract.errors import fill_error
from tidelog.ports import RequestContext
from tidelog.v1 import topic_admin_pb2
from tidelog.wire.ids import PartitionId
from tidelog.wire.refusals import validate_topic_id


class TrimRpc:
    """The method over its handler."""

    def __init__(self, handler: TrimHandler) -> None:
        self._handler = handler

    async def delete_records(self, context: RequestContext, message: bytes) -> bytes:
        """`DeleteRecords`."""
        asked = topic_admin_pb2.DeleteRecordsRequest.FromString(message)
        points = [
            TrimPoint(
                validate_topic_id(each.partition.topic_id, tried="delete records"),
                PartitionId(each.partition.partition),
                each.before_offset,
            )
            for each in asked.points
        ]
        response = topic_admin_pb2.DeleteRecordsResponse()
        for outcome in await self._handler.delete_records(context, points):
            result = response.results.add(log_start_offset=outcome.log_start_offset)
            result.partition.topic_id = outcome.topic_id
            result.partition.partition = outcome.partition
            if outcome.error is not None:
                fill_error(result.error, outcome.error)
        return response.SerializeToString()
