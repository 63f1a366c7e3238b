"""Bugs of readers' positions, in brokers, for the cluster suite."""

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.replicas import Replica
from tidelog.broker.services.fetch.handler import FetchHandler, PartitionBatches
from tidelog.broker.services.records import handler as records
from tidelog.chaos.sim.planted import Substitution
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.errors import TidelogError


def call_out_of_range_what_is_not_here() -> Substitution:
    """A broker says for good that an offset is out of range without asking whether it leads."""

    async def settle(
        self: FetchHandler,
        position: FetchPosition,
        rack: str,
        judged: Replica | PartitionBatches,
        confirmation: object,
    ) -> Replica | PartitionBatches:
        del self, position, rack, confirmation
        return judged

    return Substitution(FetchHandler, "settle", settle)


def show_a_watermark_that_lags() -> Substitution:
    """A new leader shows plain readers its watermark before that has come to its own epoch."""

    def lag_of(log: PartitionLog, tried: str) -> TidelogError | None:
        del log, tried
        return None

    return Substitution(records, "lag_of", lag_of)
