"""KafkaAdminClient: kafka-python's admin client over Tidelog's.

Owns the constructor and what is asked of the whole cluster. It must never administer by itself.
"""

from types import TracebackType
from typing import Any, Final, Self

from tidelog.client import AdminClient
from tidelog.kafka.admin.configs import ConfigCalls
from tidelog.kafka.admin.older import OlderCalls
from tidelog.kafka.admin.partitions import PartitionCalls
from tidelog.kafka.admin.topics import TopicCalls
from tidelog.kafka.admin.transactions import TransactionCalls
from tidelog.kafka.shared.checked import checked
from tidelog.kafka.shared.option_table import ADMIN
from tidelog.kafka.shared.options import honoured, without_none
from tidelog.kafka.shared.translation import translating

_NAME: Final = "KafkaAdminClient"


class KafkaAdminClient(TopicCalls, ConfigCalls, PartitionCalls, OlderCalls, TransactionCalls):
    """Creates, changes, lists and describes. Safe to share between threads."""

    def __init__(self, **configs: Any) -> None:
        arguments = honoured(_NAME, ADMIN, configs)
        arguments.pop("metrics_enabled", None)
        with translating():
            self._client = AdminClient(**without_none(arguments, "client_id"))
        if configs.get("api_version") is None:
            try:
                self.describe_cluster()
            except BaseException:
                self._client.close()
                raise

    def describe_cluster(self) -> dict[str, Any]:
        """The cluster's id, controller and brokers."""
        with translating():
            found = self._client.describe_cluster()
        brokers: list[dict[str, Any]] = []
        for broker in found.brokers:
            host, _, port = broker.address.rpartition(":")
            brokers.append(
                {
                    "broker_id": broker.broker_id,
                    "host": host.strip("[]"),
                    "port": int(port),
                    "rack": broker.rack or None,
                    "is_fenced": broker.is_fenced,
                }
            )
        return {
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id,
            "brokers": brokers,
        }

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Leader, voters and observers of the metadata quorum."""
        with translating():
            found = self._client.describe_metadata_quorum()
        nodes: list[dict[str, Any]] = []
        for each in found.members:
            host, _, port = each.member.address.rpartition(":")
            listener = {"name": "CLUSTER", "host": host.strip("[]"), "port": int(port)}
            nodes.append({"node_id": each.member.node_id, "listeners": [listener]})
        partition = {
            "partition_index": 0,
            "error": None,
            "leader_id": found.leader_id,
            "leader_epoch": found.term,
            "high_watermark": found.commit_index,
            "current_voters": [
                {"replica_id": each.member.node_id, "log_end_offset": each.match_index}
                for each in found.members
                if not each.member.is_learner
            ],
            "observers": [
                {"replica_id": each.node_id, "log_end_offset": each.applied_index}
                for each in found.observers
            ],
        }
        topic = {"topic_name": "__cluster_metadata", "partitions": [partition]}
        return {"topics": [topic], "nodes": nodes}

    @checked
    def describe_features(
        self, send_request_to_controller: bool = False
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """Of each feature the level in force and those that every node can speak."""
        with translating():
            found = self._client.describe_features()
        return {
            each.name: {
                "supported": (each.level_min, each.level_max),
                "finalized": (each.finalised_level, each.finalised_level),
            }
            for each in found
        }

    def close(self) -> None:
        """Break the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
