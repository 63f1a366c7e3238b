"""The active controller as a node puts it together: its tasks and its methods, by listener.

Owns the tables: of the cluster listener (sessions, in-sync sets, producer ids, forwarded calls), of
what the controller executes, and of what any image answers.
"""

from collections.abc import Callable, Mapping

from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import TopicDefaults
from tidelog.metadata_quorum.active.broker_sessions import BrokerSessions, SessionTimes
from tidelog.metadata_quorum.active.controller import ActiveController
from tidelog.metadata_quorum.admin.brokers import BrokerExecution
from tidelog.metadata_quorum.admin.configs import ConfigExecution, describe_configs, describe_quotas
from tidelog.metadata_quorum.admin.execution import Execute
from tidelog.metadata_quorum.admin.metadata import (
    describe_features,
    describe_metadata,
    list_metadata,
)
from tidelog.metadata_quorum.admin.partitions import PartitionExecution, list_moves, plan_moves
from tidelog.metadata_quorum.admin.quorum import Observers, QuorumAdmin
from tidelog.metadata_quorum.admin.topics import TopicExecution, list_topics
from tidelog.metadata_quorum.services.controller import ControllerService
from tidelog.metadata_quorum.services.session import SessionService
from tidelog.ports import (
    Authorizer,
    Clock,
    Method,
    Network,
    Random,
    StreamMethod,
    TaskScope,
    UnaryHandler,
    UnaryMethod,
)

Read = Callable[[Image, bytes], bytes]


class ControllerParts:
    """Everything of a voter's node that stands around its active controller."""

    def __init__(
        self,
        controller: ActiveController,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        authorizer: Authorizer,
        observers: Observers,
        cluster_id: str,
        defaults: TopicDefaults | None = None,
        times: SessionTimes | None = None,
        peer_addresses: Mapping[int, str] | None = None,
    ) -> None:
        self.controller = controller
        self.sessions = BrokerSessions(
            controller=controller,
            network=network,
            clock=clock,
            times=times,
            peer_addresses=peer_addresses,
        )
        self.executions: dict[str, Execute] = {
            **TopicExecution(controller, random, defaults or TopicDefaults()).table(),
            **PartitionExecution(controller).table(),
            **ConfigExecution(controller).table(),
            **BrokerExecution(
                controller, self.sessions.last_contact_ms, self.sessions.clocks.shown
            ).table(),
            **QuorumAdmin(controller, observers).table(),
        }
        self._service = ControllerService(
            controller,
            self.executions,
            authorizer=authorizer,
            clock=clock,
            cluster_id=cluster_id,
        )
        self._session_service = SessionService(self.sessions, cluster_id=cluster_id)

    async def run(self) -> None:
        """The controller's tasks, until cancelled."""
        async with TaskScope() as scope:
            scope.start(self.controller.run(), name="active controller")
            scope.start(self.sessions.run(), name="broker sessions")

    def methods(self) -> dict[str, Method]:
        """For the cluster listener; whoever serves them puts its middleware around them."""
        service, sessions = self._service, self._session_service
        handlers: dict[str, UnaryHandler] = {
            "/tidelog.v1.ControllerService/AlterPartitions": service.alter_partitions,
            "/tidelog.v1.ControllerService/ReportDamagedReplicas": service.report_damaged_replicas,
            "/tidelog.v1.ControllerService/ReportLogEnds": service.report_log_ends,
            "/tidelog.v1.ControllerService/AllocateProducerIdBlock": (
                service.allocate_producer_id_block
            ),
            "/tidelog.v1.ControllerService/Forward": service.forward,
            "/tidelog.v1.BrokerSessionService/RegisterBroker": sessions.register_broker,
        }
        return {
            **{name: UnaryMethod(handler) for name, handler in handlers.items()},
            "/tidelog.v1.BrokerSessionService/BrokerSession": StreamMethod(sessions.broker_session),
        }


def local_reads() -> dict[str, Read]:
    """What any image answers, by full method name."""
    return {
        "/tidelog.v1.TopicAdminService/ListTopics": list_topics,
        "/tidelog.v1.PartitionAdminService/ListReassignments": list_moves,
        "/tidelog.v1.PartitionAdminService/PlanReassignments": plan_moves,
        "/tidelog.v1.ConfigService/DescribeConfigs": describe_configs,
        "/tidelog.v1.ConfigService/DescribeQuotas": describe_quotas,
        "/tidelog.v1.MetadataAdminService/ListMetadata": list_metadata,
        "/tidelog.v1.MetadataAdminService/DescribeMetadata": describe_metadata,
        "/tidelog.v1.MetadataAdminService/DescribeFeatures": describe_features,
    }
