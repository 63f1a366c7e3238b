"""The services of quorum and metadata in protobuf. As `wire`.

Owns method names, requests and answers. It must never decide anything.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.client.types.admin import (
    FeatureDescription,
    MetadataNames,
    MetadataNode,
    QuorumDescription,
    QuorumLeader,
    QuorumMember,
    QuorumMemberStatus,
    QuorumObserver,
)
from tidelog.v1 import metadata_admin_pb2, quorum_admin_pb2, quorum_pb2

DESCRIBE_QUORUM: Final = "/tidelog.v1.QuorumAdminService/DescribeQuorum"
ADD_VOTER: Final = "/tidelog.v1.QuorumAdminService/AddVoter"
REMOVE_VOTER: Final = "/tidelog.v1.QuorumAdminService/RemoveVoter"
TRANSFER_LEADERSHIP: Final = "/tidelog.v1.QuorumAdminService/TransferLeadership"
LIST_METADATA: Final = "/tidelog.v1.MetadataAdminService/ListMetadata"
DESCRIBE_METADATA: Final = "/tidelog.v1.MetadataAdminService/DescribeMetadata"
EXPORT_METADATA: Final = "/tidelog.v1.MetadataAdminService/ExportMetadata"
DESCRIBE_FEATURES: Final = "/tidelog.v1.MetadataAdminService/DescribeFeatures"
FINALISE_FEATURES: Final = "/tidelog.v1.MetadataAdminService/FinaliseFeatures"


def describe_quorum_request() -> bytes:
    """Everything."""
    return quorum_admin_pb2.DescribeQuorumRequest().SerializeToString()


def read_quorum(data: bytes) -> QuorumDescription:
    """As its leader sees it."""
    answer = quorum_admin_pb2.DescribeQuorumResponse.FromString(data)
    return QuorumDescription(
        leader_id=answer.leader_id,
        term=answer.term,
        last_index=answer.last_index,
        commit_index=answer.commit_index,
        log_start_index=answer.log_start_index,
        is_membership_changing=answer.is_membership_changing,
        members=tuple(_read_status(each) for each in answer.members),
        observers=tuple(
            QuorumObserver(node_id=each.node_id, applied_index=each.applied_index)
            for each in answer.observers
        ),
    )


def _read_status(status: quorum_admin_pb2.QuorumMemberStatus) -> QuorumMemberStatus:
    return QuorumMemberStatus(
        member=_read_member(status.member),
        match_index=status.match_index,
        lag=status.lag,
        last_contact_ms=status.last_contact_ms,
        is_repairing=status.is_repairing,
        is_installing_snapshot=status.is_installing_snapshot,
    )


def _read_member(member: quorum_pb2.QuorumMember) -> QuorumMember:
    return QuorumMember(
        node_id=member.node_id,
        directory_uuid=member.directory_uuid,
        address=member.address,
        is_learner=member.is_learner,
    )


def add_voter_request(node_id: int, directory_uuid: bytes, *, validate_only: bool) -> bytes:
    """Promote a learner."""
    return quorum_admin_pb2.AddVoterRequest(
        node_id=node_id, directory_uuid=directory_uuid, validate_only=validate_only
    ).SerializeToString()


def read_added(data: bytes) -> tuple[QuorumMember, ...]:
    """The members after the change."""
    answer = quorum_admin_pb2.AddVoterResponse.FromString(data)
    return tuple(_read_member(each) for each in answer.members.members)


def remove_voter_request(node_id: int, directory_uuid: bytes, *, validate_only: bool) -> bytes:
    """Remove a voter or learner."""
    return quorum_admin_pb2.RemoveVoterRequest(
        node_id=node_id, directory_uuid=directory_uuid, validate_only=validate_only
    ).SerializeToString()


def read_removed(data: bytes) -> tuple[QuorumMember, ...]:
    """The members after the change."""
    answer = quorum_admin_pb2.RemoveVoterResponse.FromString(data)
    return tuple(_read_member(each) for each in answer.members.members)


def transfer_request(node_id: int) -> bytes:
    """-1: to the voter that is furthest."""
    return quorum_admin_pb2.TransferLeadershipRequest(node_id=node_id).SerializeToString()


def read_leader(data: bytes) -> QuorumLeader:
    """Who leads now."""
    answer = quorum_admin_pb2.TransferLeadershipResponse.FromString(data)
    return QuorumLeader(leader_id=answer.leader_id, term=answer.term)


def list_metadata_request(path: str) -> bytes:
    """The names below a place."""
    return metadata_admin_pb2.ListMetadataRequest(path=path).SerializeToString()


def read_metadata_names(data: bytes) -> MetadataNames:
    """In ascending order."""
    answer = metadata_admin_pb2.ListMetadataResponse.FromString(data)
    return MetadataNames(names=tuple(answer.names), applied_index=answer.applied_index)


def describe_metadata_request(path: str) -> bytes:
    """One place."""
    return metadata_admin_pb2.DescribeMetadataRequest(path=path).SerializeToString()


def read_metadata_node(data: bytes) -> MetadataNode:
    """As JSON."""
    answer = metadata_admin_pb2.DescribeMetadataResponse.FromString(data)
    return MetadataNode(json=answer.json, applied_index=answer.applied_index)


def export_request() -> bytes:
    """Everything."""
    return metadata_admin_pb2.ExportMetadataRequest().SerializeToString()


def read_export_piece(data: bytes) -> tuple[int, bytes, int]:
    """The first byte's place, the bytes, the size of the whole."""
    answer = metadata_admin_pb2.ExportMetadataResponse.FromString(data)
    return answer.position, answer.data, answer.total_bytes


def describe_features_request() -> bytes:
    """All of them."""
    return metadata_admin_pb2.DescribeFeaturesRequest().SerializeToString()


def read_features(data: bytes) -> tuple[FeatureDescription, ...]:
    """In ascending order of name."""
    answer = metadata_admin_pb2.DescribeFeaturesResponse.FromString(data)
    return tuple(_read_feature(each) for each in answer.features)


def finalise_features_request(
    levels: Mapping[str, int], *, validate_only: bool, allow_downgrade: bool
) -> bytes:
    """Levels to be in force."""
    return metadata_admin_pb2.FinaliseFeaturesRequest(
        levels=[
            metadata_admin_pb2.FeatureLevel(name=name, level=level)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
        allow_downgrade=allow_downgrade,
    ).SerializeToString()


def read_finalised(data: bytes) -> tuple[FeatureDescription, ...]:
    """All features after the change."""
    answer = metadata_admin_pb2.FinaliseFeaturesResponse.FromString(data)
    return tuple(_read_feature(each) for each in answer.features)


def _read_feature(feature: metadata_admin_pb2.FeatureDescription) -> FeatureDescription:
    return FeatureDescription(
        name=feature.name,
        finalised_level=feature.finalised_level,
        level_min=feature.level_min,
        level_max=feature.level_max,
    )
