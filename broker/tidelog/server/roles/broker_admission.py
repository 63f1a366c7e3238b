"""What a broker does for the transactions in the partitions that it leads: asks their coordinators
before it lets batches in, and writes the markers that end them for coordinators elsewhere."""

from collections.abc import Mapping

from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.markers.handler import MarkerHandler
from tidelog.broker.services.markers.wire import MarkerRpc
from tidelog.broker.shared.meter import Meter
from tidelog.broker.transactions.asking import TransactionAsking
from tidelog.broker.transactions.verifier import Verifier
from tidelog.ports import Clock, Method, TaskScope


class BrokerAdmission:
    """The leader's side of transactions. `start` once the logs are recovered."""

    def __init__(
        self,
        replicas: Replicas,
        asking: TransactionAsking,
        markers: MarkerHandler,
        clock: Clock,
        meter: Meter,
        *,
        cluster_id: str,
    ) -> None:
        self._verifier = Verifier(replicas, asking, clock, meter)
        self._rpc = MarkerRpc(markers, clock, cluster_id=cluster_id)

    @property
    def questions_in_flight(self) -> int:
        """Questions to coordinators that are not answered."""
        return self._verifier.in_flight

    def methods(self) -> Mapping[str, Method]:
        """What coordinators at other brokers may ask."""
        return self._rpc.methods()

    def start(self, scope: TaskScope) -> None:
        """Ask coordinators from now on."""
        scope.start(self._verifier.run(), name="verify transactions")
