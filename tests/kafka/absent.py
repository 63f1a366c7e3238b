"""What kafka-python has and `tidelog.kafka` has not: the migration page lists the same."""

from typing import Final

_ACCESS: Final = "there are no lists of rights and no passwords: certificates say who a client is"
_PROTOCOL: Final = "of Kafka's protocol, which Tidelog does not speak"

ABSENT_METHODS: Final = {
    "KafkaProducer": {
        "max_usable_produce_magic": _PROTOCOL,
    },
    "KafkaConsumer": {},
    "KafkaAdminClient": {
        "alter_user_scram_credentials": _ACCESS,
        "describe_user_scram_credentials": _ACCESS,
        "create_acls": _ACCESS,
        "delete_acls": _ACCESS,
        "describe_acls": _ACCESS,
        "alter_replica_log_dirs": "a broker chooses the directory",
        "api_versions": _PROTOCOL,
        "get_broker_version_data": _PROTOCOL,
        "describe_topic_partitions": "describe_topics tells the same",
        "list_config_resources": "only topics, brokers, groups and the cluster have settings",
        "update_features": "`tidelog cluster features`",
    },
}
OF_VERSION_2: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "KafkaAdminClient": {
        "create_topics": ("new_topics", "timeout_ms", "validate_only"),
        "delete_topics": ("topics", "timeout_ms"),
        "list_topics": (),
        "describe_topics": ("topics",),
        "describe_cluster": (),
        "describe_configs": ("config_resources", "include_synonyms"),
        "alter_configs": ("config_resources",),
        "create_partitions": ("topic_partitions", "timeout_ms", "validate_only"),
        "delete_records": ("records_to_delete", "timeout_ms", "partition_leader_id"),
        "describe_consumer_groups": (
            "group_ids",
            "group_coordinator_id",
            "include_authorized_operations",
        ),
        "list_consumer_groups": ("broker_ids",),
        "list_consumer_group_offsets": ("group_id", "group_coordinator_id", "partitions"),
        "delete_consumer_groups": ("group_ids", "group_coordinator_id"),
        "describe_log_dirs": (),
    },
}
"""Calls of kafka-python 2.0 to 2.3 and their parameters in order."""
ABSENT_NAMES: Final = {
    ".consumer.subscription_state": {
        "SubscriptionState": _PROTOCOL,
        "SubscriptionType": _PROTOCOL,
        "TopicPartitionState": _PROTOCOL,
    },
    ".producer.future": {"FutureProduceResult": _PROTOCOL},
    ".admin": {
        "ACL": _ACCESS,
        "ACLFilter": _ACCESS,
        "ACLOperation": _ACCESS,
        "ACLPermissionType": _ACCESS,
        "ACLResourcePatternType": _ACCESS,
        "ResourcePattern": _ACCESS,
        "ResourcePatternFilter": _ACCESS,
        "ResourceType": _ACCESS,
        "ScramMechanism": _ACCESS,
        "UserScramCredentialDeletion": _ACCESS,
        "UserScramCredentialUpsertion": _ACCESS,
        "UpdateFeatureType": "`tidelog cluster features`",
        "ConfigType": "a setting's type is in its documentation",
    },
}
ABSENT_ERRORS: Final = {
    "NoBrokersAvailable": "kafka-python 2's name of what version 3 calls KafkaTimeoutError",
    "UnrecognizedConfigError": "both of what kafka-python's classes raise",
}
"""Here and not there."""
DROPPED_PARAMETERS: Final = {
    "KafkaConsumer.poll": ("update_offsets",),
}
"""Meant for kafka-python's own use."""
MODULES: Final = (
    "",
    ".admin",
    ".admin.client",
    ".consumer",
    ".consumer.group",
    ".consumer.subscription_state",
    ".coordinator.assignors.cooperative_sticky",
    ".coordinator.assignors.range",
    ".coordinator.assignors.roundrobin",
    ".errors",
    ".partitioner",
    ".producer",
    ".producer.future",
    ".producer.kafka",
    ".serializer",
    ".structs",
)
