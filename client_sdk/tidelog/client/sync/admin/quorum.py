"""The metadata quorum and the metadata itself, as the admin client calls them."""

from collections.abc import Iterator, Mapping

from tidelog.client.shared.checked import checked
from tidelog.client.sync.admin.base import AdminBase
from tidelog.client.types.admin import (
    FeatureDescription,
    MetadataNames,
    MetadataNode,
    QuorumDescription,
    QuorumLeader,
    QuorumMember,
)
from tidelog.client.wire import quorum as wire_quorum
from tidelog.wire.errors import ErrorCode, TidelogError


class QuorumCalls(AdminBase):
    """Members, leadership, metadata, features."""

    @checked
    def describe_metadata_quorum(self, timeout_ms: int | None = None) -> QuorumDescription:
        """Leader, term, members and their lag; a linearizable read."""
        data = self._ask(
            "describe the quorum",
            wire_quorum.DESCRIBE_QUORUM,
            wire_quorum.describe_quorum_request(),
            self._limit_ms(timeout_ms),
        )
        return wire_quorum.read_quorum(data)

    @checked
    def add_voter(
        self,
        node_id: int,
        directory_uuid: bytes,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> tuple[QuorumMember, ...]:
        """Make a learner that has caught up a voter; the members after it."""
        data = self._ask(
            f"add node {node_id} to the voters",
            wire_quorum.ADD_VOTER,
            wire_quorum.add_voter_request(node_id, directory_uuid, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
        return wire_quorum.read_added(data)

    @checked
    def remove_voter(
        self,
        node_id: int,
        directory_uuid: bytes,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> tuple[QuorumMember, ...]:
        """Remove a voter or learner; the members after it."""
        data = self._ask(
            f"remove node {node_id} from the quorum",
            wire_quorum.REMOVE_VOTER,
            wire_quorum.remove_voter_request(node_id, directory_uuid, validate_only=validate_only),
            self._limit_ms(timeout_ms),
            may_repeat=False,
            validate_only=validate_only,
        )
        return wire_quorum.read_removed(data)

    @checked
    def transfer_leadership(self, node_id: int = -1, timeout_ms: int | None = None) -> QuorumLeader:
        """Hand the leadership to a voter, -1: to the one that is furthest; who leads after it."""
        data = self._ask(
            "hand over the quorum's leadership",
            wire_quorum.TRANSFER_LEADERSHIP,
            wire_quorum.transfer_request(node_id),
            self._limit_ms(timeout_ms),
            may_repeat=False,
        )
        return wire_quorum.read_leader(data)

    @checked
    def list_metadata(self, path: str = "/", timeout_ms: int | None = None) -> MetadataNames:
        """The names below a place in the metadata."""
        data = self._ask(
            f"list the metadata at {path}",
            wire_quorum.LIST_METADATA,
            wire_quorum.list_metadata_request(path),
            self._limit_ms(timeout_ms),
        )
        return wire_quorum.read_metadata_names(data)

    @checked
    def describe_metadata(self, path: str, timeout_ms: int | None = None) -> MetadataNode:
        """One place in the metadata, as JSON."""
        data = self._ask(
            f"show the metadata at {path}",
            wire_quorum.DESCRIBE_METADATA,
            wire_quorum.describe_metadata_request(path),
            self._limit_ms(timeout_ms),
        )
        return wire_quorum.read_metadata_node(data)

    @checked
    def export_metadata(self, timeout_ms: int | None = None) -> Iterator[bytes]:
        """The pieces of a file for `tidelog storage format --restore`; whole when it ends."""
        position = 0
        total_bytes = 0
        for data in self._pieces(
            "export the metadata",
            wire_quorum.EXPORT_METADATA,
            wire_quorum.export_request(),
            self._limit_ms(timeout_ms),
        ):
            place, piece, total_bytes = wire_quorum.read_export_piece(data)
            if place != position:
                break
            position += len(piece)
            yield piece
        if not total_bytes or position != total_bytes:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried="export the metadata",
                happened=f"the export broke off behind byte {position} of {total_bytes}",
                hint="Try again; what was written so far is not whole.",
            )

    @checked
    def describe_features(self, timeout_ms: int | None = None) -> tuple[FeatureDescription, ...]:
        """Levels in force, and what every node can speak."""
        data = self._ask(
            "describe features",
            wire_quorum.DESCRIBE_FEATURES,
            wire_quorum.describe_features_request(),
            self._limit_ms(timeout_ms),
        )
        return wire_quorum.read_features(data)

    @checked
    def update_features(
        self,
        feature_updates: Mapping[str, int],
        validate_only: bool = False,
        allow_downgrade: bool = False,
        timeout_ms: int | None = None,
    ) -> tuple[FeatureDescription, ...]:
        """Put levels in force, all or none; all features after it."""
        data = self._ask(
            "put feature levels in force",
            wire_quorum.FINALISE_FEATURES,
            wire_quorum.finalise_features_request(
                feature_updates, validate_only=validate_only, allow_downgrade=allow_downgrade
            ),
            self._limit_ms(timeout_ms),
            validate_only=validate_only,
        )
        return wire_quorum.read_finalised(data)
