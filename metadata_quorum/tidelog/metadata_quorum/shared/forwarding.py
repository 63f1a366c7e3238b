"""Administrative calls that only the active controller can answer, on any node's client listener.

Owns the list of these methods, which brokers and voters alike pass on. A call keeps its principal
and its deadline; `Metadata.forward` finds the controller and answers once this node's own image
shows what the answer says.
"""

from typing import Final

from google.protobuf.message import DecodeError

from tidelog.ports import Clock, RequestContext
from tidelog.v1 import (
    admin_pb2,
    broker_admin_pb2,
    config_admin_pb2,
    metadata_admin_pb2,
    partition_admin_pb2,
    quorum_admin_pb2,
    topic_admin_pb2,
)

SERVED_FILES: Final = (
    admin_pb2.DESCRIPTOR,
    broker_admin_pb2.DESCRIPTOR,
    config_admin_pb2.DESCRIPTOR,
    metadata_admin_pb2.DESCRIPTOR,
    partition_admin_pb2.DESCRIPTOR,
    quorum_admin_pb2.DESCRIPTOR,
    topic_admin_pb2.DESCRIPTOR,
)
"""Where administrative services stand."""
FORWARDED: Final = (
    "/tidelog.v1.AdminService/CreateTopics",
    "/tidelog.v1.BrokerAdminService/DrainBroker",
    "/tidelog.v1.BrokerAdminService/ListBrokers",
    "/tidelog.v1.BrokerAdminService/RemoveBroker",
    "/tidelog.v1.ConfigService/AlterConfigs",
    "/tidelog.v1.ConfigService/AlterQuotas",
    "/tidelog.v1.MetadataAdminService/FinaliseFeatures",
    "/tidelog.v1.PartitionAdminService/AlterReassignments",
    "/tidelog.v1.PartitionAdminService/ElectLeaders",
    "/tidelog.v1.QuorumAdminService/AddVoter",
    "/tidelog.v1.QuorumAdminService/DescribeQuorum",
    "/tidelog.v1.QuorumAdminService/RemoveVoter",
    "/tidelog.v1.QuorumAdminService/TransferLeadership",
    "/tidelog.v1.TopicAdminService/CreatePartitions",
    "/tidelog.v1.TopicAdminService/DeleteTopics",
)
"""What the active controller executes; everything else is answered where it is asked."""
_Validating = (
    admin_pb2.CreateTopicsRequest
    | broker_admin_pb2.RemoveBrokerRequest
    | quorum_admin_pb2.RemoveVoterRequest
    | topic_admin_pb2.DeleteTopicsRequest
)
_MAY_VALIDATE: Final[dict[str, type[_Validating]]] = {
    "/tidelog.v1.AdminService/CreateTopics": admin_pb2.CreateTopicsRequest,
    "/tidelog.v1.BrokerAdminService/RemoveBroker": broker_admin_pb2.RemoveBrokerRequest,
    "/tidelog.v1.QuorumAdminService/RemoveVoter": quorum_admin_pb2.RemoveVoterRequest,
    "/tidelog.v1.TopicAdminService/DeleteTopics": topic_admin_pb2.DeleteTopicsRequest,
}
"""Of those that are not asked again after an unknown outcome, and have `validate_only`."""
ADMIN_TIMEOUT_MS: Final = 30_000
"""Of a call without a deadline, and the longest one."""
_NS_PER_MS: Final = 1_000_000


def only_validates(method: str, request: bytes) -> bool:
    """Whether the request asks only what it would do: however often, it changes nothing.

    A request that cannot be read is no such one; the controller says what is wrong with it.
    """
    kind = _MAY_VALIDATE.get(method)
    if kind is None:
        return False
    try:
        return kind.FromString(request).validate_only
    except DecodeError:
        return False


def asked_ms(method: str, request: bytes) -> int | None:
    """How long the request itself says that it waits; None: it does not say."""
    if _MAY_VALIDATE.get(method) is not admin_pb2.CreateTopicsRequest:
        return None
    try:
        return admin_pb2.CreateTopicsRequest.FromString(request).timeout_ms or None
    except DecodeError:
        return None


def left_ms(context: RequestContext, clock: Clock) -> int:
    """How long the caller waits, at most `ADMIN_TIMEOUT_MS`."""
    left = (context.deadline_ns - clock.monotonic_ns()) // _NS_PER_MS
    return max(1, min(left, ADMIN_TIMEOUT_MS))
