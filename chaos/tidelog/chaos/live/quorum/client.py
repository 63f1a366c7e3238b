"""Calls to the nodes of a quorum, from threads and from tasks, over one loop in the background.

Owns the connections of a run and the protobuf of the calls that it makes. It must never retry: what
became of a call is for the history to say.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from tidelog.ports import PeerUnreachable
from tidelog.ports.network import DeathHint
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.network.errors import decode_error
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.v1 import (
    config_admin_pb2,
    controller_pb2,
    metadata_admin_pb2,
    quorum_admin_pb2,
)
from tidelog.wire.errors import ErrorCode, TidelogError

ADD_VOTER: Final = "/tidelog.v1.QuorumAdminService/AddVoter"
ALTER_CONFIGS: Final = "/tidelog.v1.ConfigService/AlterConfigs"
ALTER_QUOTAS: Final = "/tidelog.v1.ConfigService/AlterQuotas"
DESCRIBE_METADATA: Final = "/tidelog.v1.MetadataAdminService/DescribeMetadata"
DESCRIBE_QUORUM: Final = "/tidelog.v1.QuorumAdminService/DescribeQuorum"
FORWARD: Final = "/tidelog.v1.ControllerService/Forward"
REMOVE_VOTER: Final = "/tidelog.v1.QuorumAdminService/RemoveVoter"
TRANSFER: Final = "/tidelog.v1.QuorumAdminService/TransferLeadership"

CALL_MS: Final = 3_000
CONTROL_MS: Final = 2_000
END_SECONDS_MAX: Final = 20.0
WAIT_MARGIN_SECONDS: Final = 10.0
CLUSTER_SETTINGS: Final = "/configuration/cluster"

_CHANGED_NOTHING: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNAVAILABLE,
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.INVALID_CONFIGURATION,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.STORAGE_FULL,
        ErrorCode.WRONG_CLUSTER,
    }
)
_Result = TypeVar("_Result")


class MemberSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader describes it."""

    node_id: int
    directory_uuid: bytes
    is_learner: bool
    lag: int
    last_contact_ms: int
    is_repairing: bool


class QuorumSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A linearizable description of the quorum."""

    leader_id: int
    term: int
    commit_index: int
    is_membership_changing: bool
    members: tuple[MemberSeen, ...]

    @property
    def voters(self) -> tuple[MemberSeen, ...]:
        """Who votes."""
        return tuple(each for each in self.members if not each.is_learner)


def has_changed_nothing(error: TidelogError) -> bool:
    """Whether a write that failed so certainly took no effect."""
    if isinstance(error, PeerUnreachable):
        return error.death_hint is not DeathHint.NONE
    return error.code in _CHANGED_NOTHING


class QuorumClient:
    """`call` from tasks of its loop, `ask` from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._network = self.ask(self._open())

    async def _open(self) -> GrpcNetwork:
        return GrpcNetwork(RealClock(), client_id="tidelog-chaos")

    def __enter__(self) -> "QuorumClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ask(self._network.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS_MAX)
        self._loop.close()

    def ask(
        self, call: Coroutine[Any, Any, _Result], *, seconds_max: float = END_SECONDS_MAX
    ) -> _Result:
        """Run it on the loop, wait for its outcome."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        return future.result(seconds_max + WAIT_MARGIN_SECONDS)

    async def call(self, peer: str, method: str, message: bytes, timeout_ms: int) -> bytes:
        """One message there and one back."""
        return await self._network.call(peer, method, message, timeout_ms=timeout_ms)

    # -- what is written and read under load -----------------------------------------------------

    async def set_quota(self, peer: str, client_id: str, number: int) -> None:
        """Through a client listener, as any program would."""
        request = quota_request(client_id, number)
        await self.call(peer, ALTER_QUOTAS, request, CALL_MS)

    async def set_straight(self, peer: str, cluster_id: str, name: str, value: str) -> None:
        """One try at the cluster listener of a voter: nobody in between asks again."""
        request = controller_pb2.ForwardRequest(
            cluster_id=cluster_id,
            broker_id=0,
            method=ALTER_CONFIGS,
            request=setting_request(name, value),
            principal="chaos",
            client_id="chaos",
            timeout_ms=CALL_MS,
        )
        data = await self.call(peer, FORWARD, request.SerializeToString(), CALL_MS)
        answer = controller_pb2.ForwardResponse.FromString(data)
        if answer.HasField("error"):
            raise decode_error(answer.error.SerializeToString())
        altered = config_admin_pb2.AlterConfigsResponse.FromString(answer.response)
        for result in altered.results:
            if result.HasField("error"):
                raise decode_error(result.error.SerializeToString())

    async def read_settings(self, peer: str, timeout_ms: int) -> tuple[dict[str, str], int]:
        """The cluster's settings on one node, and the last entry that its image holds."""
        request = metadata_admin_pb2.DescribeMetadataRequest(path=CLUSTER_SETTINGS)
        data = await self.call(peer, DESCRIBE_METADATA, request.SerializeToString(), timeout_ms)
        answer = metadata_admin_pb2.DescribeMetadataResponse.FromString(data)
        return msgspec.json.decode(answer.json, type=dict[str, str]), answer.applied_index

    async def describe(self, peer: str, timeout_ms: int) -> QuorumSeen:
        """Linearizable: the leader asks a majority first."""
        request = quorum_admin_pb2.DescribeQuorumRequest().SerializeToString()
        data = await self.call(peer, DESCRIBE_QUORUM, request, timeout_ms)
        return read_description(data)

    # -- what operators do -----------------------------------------------------------------------

    async def add_voter(self, peer: str, node_id: int, uuid: bytes, timeout_ms: int) -> None:
        """Promote a learner."""
        request = quorum_admin_pb2.AddVoterRequest(node_id=node_id, directory_uuid=uuid)
        await self.call(peer, ADD_VOTER, request.SerializeToString(), timeout_ms)

    async def remove_voter(self, peer: str, node_id: int, uuid: bytes, timeout_ms: int) -> None:
        """Take a member out."""
        request = quorum_admin_pb2.RemoveVoterRequest(node_id=node_id, directory_uuid=uuid)
        await self.call(peer, REMOVE_VOTER, request.SerializeToString(), timeout_ms)

    async def transfer(self, peer: str, node_id: int, timeout_ms: int) -> None:
        """Hand the leadership over."""
        request = quorum_admin_pb2.TransferLeadershipRequest(node_id=node_id)
        await self.call(peer, TRANSFER, request.SerializeToString(), timeout_ms)


def quota_request(client_id: str, number: int) -> bytes:
    """AlterQuotas of one client id."""
    quota = config_admin_pb2.Quota(client_id=client_id, requests_per_second=number)
    return config_admin_pb2.AlterQuotasRequest(quotas=[quota]).SerializeToString()


def setting_request(name: str, value: str) -> bytes:
    """AlterConfigs of one setting of the cluster."""
    target = config_admin_pb2.ConfigTarget(kind=config_admin_pb2.CONFIG_TARGET_KIND_CLUSTER)
    change = config_admin_pb2.ConfigChange(name=name, value=value)
    alteration = config_admin_pb2.ConfigAlteration(target=target, changes=[change])
    return config_admin_pb2.AlterConfigsRequest(alterations=[alteration]).SerializeToString()


def read_description(data: bytes) -> QuorumSeen:
    """DescribeQuorum's answer."""
    answer = quorum_admin_pb2.DescribeQuorumResponse.FromString(data)
    return QuorumSeen(
        leader_id=answer.leader_id,
        term=answer.term,
        commit_index=answer.commit_index,
        is_membership_changing=answer.is_membership_changing,
        members=tuple(
            MemberSeen(
                node_id=each.member.node_id,
                directory_uuid=each.member.directory_uuid,
                is_learner=each.member.is_learner,
                lag=each.lag,
                last_contact_ms=each.last_contact_ms,
                is_repairing=each.is_repairing,
            )
            for each in answer.members
        ),
    )
