"""`Metadata` of a node of a cluster: reads from this node's copy, writes at the active controller.

Owns nothing but the way there: every write travels over the Network port on the `cluster` listener,
also to this very process. It must never answer a write before this node's own copy shows it, so
that a client's next call here sees what the last one did.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic
from tidelog.metadata_quorum.port import CreatedTopic, Executed, ImageSource
from tidelog.metadata_quorum.quorum.wire import joining as quorum_joining
from tidelog.metadata_quorum.shared.forwarding import only_validates
from tidelog.metadata_quorum.stream import session_wire as stream_session
from tidelog.metadata_quorum.stream import topics_wire as stream_topics
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.metadata_quorum.stream.quorum_view import Leader
from tidelog.metadata_quorum.stream.session_messages import ForwardedCall
from tidelog.ports import Clock, Network, RequestContext
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LogIndex

READ_INDEX: Final = "/tidelog.v1.QuorumService/ReadIndex"
FORWARD: Final = "/tidelog.v1.ControllerService/Forward"
CREATE_TOPICS: Final = "/tidelog.v1.AdminService/CreateTopics"
NOT_REPEATABLE: Final = frozenset(
    {
        CREATE_TOPICS,
        "/tidelog.v1.TopicAdminService/DeleteTopics",
        "/tidelog.v1.BrokerAdminService/RemoveBroker",
        "/tidelog.v1.QuorumAdminService/RemoveVoter",
        "/tidelog.v1.QuorumAdminService/TransferLeadership",
    }
)
"""Asked again after an unknown outcome they would deny what they did themselves, or undo it: a new
leader that is asked to hand over does so."""
_NS_PER_MS: Final = 1_000_000
ANSWER_NS: Final = 200 * _NS_PER_MS
"""Kept of a caller's deadline for the answer's way, at most."""


class ClusterMetadata:
    """One node's view of the cluster."""

    def __init__(
        self,
        source: ImageSource,
        controller: ControllerClient,
        network: Network,
        clock: Clock,
        *,
        cluster_id: str,
        node_id: BrokerId,
    ) -> None:
        self._source = source
        self._controller = controller
        self._network = network
        self._clock = clock
        self._cluster_id = cluster_id
        self._node_id = node_id

    def image(self) -> Image:
        """See `Metadata`."""
        return self._source.image()

    async def wait_version(self, version: int) -> Image:
        """See `Metadata`."""
        return await self._source.wait_version(version)

    def controller_id(self) -> BrokerId | None:
        """See `Metadata`."""
        leader = self._controller.leader()
        return None if leader is None else BrokerId(leader.node_id)

    def without_controller_ms(self) -> int:
        """See `Metadata`."""
        return self._controller.without_leader_ms()

    async def create_topics(
        self,
        context: RequestContext,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
    ) -> list[CreatedTopic | TidelogError]:
        """See `Metadata`."""
        request = stream_topics.encode_create_topics(topics, timeout_ms=timeout_ms)
        answer = await self._forward(
            context, CREATE_TOPICS, request, timeout_ms=timeout_ms, may_repeat=True
        )
        return stream_topics.decode_created_topics(answer.response, version=answer.applied_index)

    async def forward(
        self, context: RequestContext, method: str, request: bytes, *, timeout_ms: int
    ) -> Executed:
        """See `Metadata`."""
        may_repeat = method not in NOT_REPEATABLE or only_validates(method, request)
        return await self._forward(
            context, method, request, timeout_ms=timeout_ms, may_repeat=may_repeat
        )

    async def read_index(self, *, timeout_ms: int) -> LogIndex:
        """The index of all metadata committed when this was asked, by the quorum's own word: not
        of a leader that only believes it is one."""
        request = quorum_joining.encode_observers_read(self._cluster_id, self._node_id)

        async def attempt(leader: Leader, attempt_ms: int) -> LogIndex:
            answer = await self._network.call(
                leader.address, READ_INDEX, request, timeout_ms=attempt_ms
            )
            return quorum_joining.decode_observers_read(answer)

        return await self._controller.run(
            attempt,
            tried="ask the controller what is committed",
            timeout_ms=timeout_ms,
            may_repeat=True,
        )

    async def _forward(
        self,
        context: RequestContext,
        method: str,
        request: bytes,
        *,
        timeout_ms: int,
        may_repeat: bool,
    ) -> Executed:
        start_ns = self._clock.monotonic_ns()
        left_ns = min(context.deadline_ns - start_ns, timeout_ms * _NS_PER_MS)
        # What became of it should reach the caller before it gives up.
        end_ns = start_ns + left_ns - min(left_ns // 10, ANSWER_NS)

        async def attempt(leader: Leader, attempt_ms: int) -> Executed:
            left_ms = max(1, (end_ns - self._clock.monotonic_ns()) // _NS_PER_MS)
            call = ForwardedCall(
                cluster_id=self._cluster_id,
                broker_id=self._node_id,
                method=method,
                request=request,
                principal=context.principal,
                client_id=context.client_id,
                client_address=context.address,
                timeout_ms=left_ms,
            )
            data = await self._network.call(
                leader.address,
                FORWARD,
                stream_session.encode_forward(call),
                timeout_ms=attempt_ms,
            )
            return stream_session.decode_forward_answer(data)

        answer = await self._controller.run(
            attempt,
            tried=f"forward {method} to the controller",
            timeout_ms=max(1, (end_ns - start_ns) // _NS_PER_MS),
            may_repeat=may_repeat,
        )
        await self._wait_visible(method, answer.applied_index, end_ns)
        return answer

    async def _wait_visible(self, method: str, index: int, end_ns: int) -> None:
        left_ns = max(0, end_ns - self._clock.monotonic_ns())
        try:
            async with asyncio.timeout(left_ns / 1e9):
                await self._source.wait_version(index)
        except TimeoutError:
            raise TidelogError(
                ErrorCode.DEADLINE_EXCEEDED,
                tried=f"see on this node what {method} changed",
                happened=f"entry {index} of the metadata is committed and not here yet",
            ) from None
