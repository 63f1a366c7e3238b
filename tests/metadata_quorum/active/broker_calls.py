"""A broker that says what a test tells it to, over the Network port."""

from tests.metadata_quorum.quorum.quorum_world import address
from tidelog.chaos.sim import SimulatedPorts
from tidelog.contract.errors import read_error
from tidelog.ports import Listener, Stream, UnaryMethod
from tidelog.v1 import broker_session_pb2, controller_pb2

CONTROLLER = address(1)
FORWARD = "/tidelog.v1.ControllerService/Forward"
REGISTER = "/tidelog.v1.BrokerSessionService/RegisterBroker"
SESSION = "/tidelog.v1.BrokerSessionService/BrokerSession"


class Broker:
    """Of one process; `cluster_id` is what it claims."""

    def __init__(self, ports: SimulatedPorts, broker_id: int, *, cluster_id: str = "c") -> None:
        self.ports = ports
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.incarnation = ports.random.uuid()
        self.epoch = -1
        self.stream: Stream | None = None
        self.sequence = 0
        self.off_ms: int | None = None
        """How far its clock is ahead; None: it is of a release that does not tell its time."""

    async def listen(self) -> None:
        """So that a probe finds somebody."""

        async def nothing(context: object, message: bytes) -> bytes:
            del context
            return message

        methods = {"/none.None/Nothing": UnaryMethod(nothing)}
        await self.ports.network.serve(Listener(name="cluster", bind=self.address), methods)

    @property
    def address(self) -> str:
        return f"b{self.broker_id}:7"

    async def register(self, *, controller: str = CONTROLLER) -> int:
        """Its epoch."""
        request = broker_session_pb2.RegisterBrokerRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            clean_shutdown_epoch=-1,
        )
        request.listeners.add(listener="client", address=f"b{self.broker_id}:8")
        request.listeners.add(listener="cluster", address=self.address)
        request.directories.add(directory_uuid=bytes([self.broker_id]) * 16, is_online=True)
        request.features.add(name="metadata.version", level_min=1, level_max=1)
        request.features.add(name="group.version", level_min=0, level_max=1)
        request.features.add(name="transaction.version", level_min=0, level_max=2)
        answer = await self.ports.network.call(
            controller, REGISTER, request.SerializeToString(), timeout_ms=5_000
        )
        self.epoch = broker_session_pb2.RegisterBrokerResponse.FromString(answer).broker_epoch
        return self.epoch

    async def beat(
        self, *, applied_index: int = 1 << 40, unfence: bool = False, shut_down: bool = False
    ) -> broker_session_pb2.BrokerSessionResponse:
        """One heartbeat and its answer."""
        if self.stream is None:
            self.stream = self.ports.network.stream(CONTROLLER, SESSION)
        self.sequence += 1
        request = broker_session_pb2.BrokerSessionRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            applied_index=applied_index,
            wants_unfence=unfence,
            wants_shut_down=shut_down,
            sequence=self.sequence,
        )
        if self.off_ms is not None:
            request.wall_ms = self.ports.clock.wall_ms() + self.off_ms
        await self.stream.send(request.SerializeToString())
        data = await self.stream.receive()
        assert data is not None, "every heartbeat is answered"
        answer = broker_session_pb2.BrokerSessionResponse.FromString(data)
        assert answer.sequence == self.sequence, "the sequence is echoed"
        return answer

    async def serve(self) -> None:
        """Register and be unfenced."""
        await self.register()
        answer = await self.beat(unfence=True)
        assert not answer.is_fenced, "it has applied enough"

    async def forward(
        self,
        method: str,
        request: bytes,
        *,
        principal: str = "somebody",
        controller: str = CONTROLLER,
    ) -> bytes:
        """A client's call, handed on; its error is raised."""
        message = controller_pb2.ForwardRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            method=method,
            request=request,
            principal=principal,
            timeout_ms=5_000,
        )
        data = await self.ports.network.call(
            controller, FORWARD, message.SerializeToString(), timeout_ms=6_000
        )
        answer = controller_pb2.ForwardResponse.FromString(data)
        if answer.HasField("error"):
            raise read_error(answer.error)
        return answer.response
