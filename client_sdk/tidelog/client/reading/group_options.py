"""What the options of a consumer with a group mean for its core, its calls and its errors.

Owns the member's id, made at random once for each consumer. Holds no state.
"""

import uuid
from collections.abc import Mapping
from typing import Final

from tidelog.client.arguments.options import ConsumerOptions
from tidelog.client.engine.group.messages import OffsetsFound
from tidelog.client.engine.group.settings import SESSION_TIMEOUT_MS, GroupSettings
from tidelog.client.errors import CommitFailedError
from tidelog.client.types.records import OffsetAndMetadata, TopicPartition
from tidelog.client.wire.groups import ASSIGNORS, MemberDetails
from tidelog.wire.calls.groups import Assignor
from tidelog.wire.errors import ErrorCode, TidelogError

METADATA_BYTES_MAX: Final = 4_096
"""The contract's limit."""
CLOSE_TIMEOUT_MS: Final = 30_000
"""How long a consumer that is closed may wait for what was read to be committed."""
FAREWELL_S: Final = 5.0
"""How long it may wait for the coordinator to hear that the member leaves. What it does not hear
costs its partitions a session: they stand still, by default for 45 s."""
FAREWELL_IN_HASTE_S: Final = 0.1
"""The same when Ctrl-C ends the `with` block or the interpreter: a person waits."""
GRACE_S: Final = 5.0
"""The member's core answers by the deadline, as late as a busy machine lets its thread run."""
_NOT_MINE: Final = frozenset(
    {ErrorCode.STALE_ASSIGNMENT, ErrorCode.UNKNOWN_MEMBER, ErrorCode.FENCED_MEMBER_EPOCH}
)


def settings_of(options: ConsumerOptions) -> GroupSettings:
    """For the core; each call makes another member."""
    assert options.group_id is not None, "a consumer without a group is no member"
    return GroupSettings(
        group=options.group_id,
        member_id=str(uuid.uuid4()),
        is_static=options.group_instance_id is not None,
        session_timeout_ms=options.session_timeout_ms or SESSION_TIMEOUT_MS,
        max_poll_interval_ms=options.max_poll_interval_ms,
        max_poll_records=options.max_poll_records,
        request_timeout_ms=options.request_timeout_ms,
        default_api_timeout_ms=options.default_api_timeout_ms,
    )


def details_of(options: ConsumerOptions, settings: GroupSettings) -> MemberDetails:
    """For the wire."""
    return MemberDetails(
        group=settings.group,
        member_id=settings.member_id,
        group_instance_id=options.group_instance_id or "",
        rack=options.client_rack,
        session_timeout_ms=options.session_timeout_ms or 0,
        rebalance_timeout_ms=options.max_poll_interval_ms,
        assignor=ASSIGNORS.get(options.partition_assignment_strategy or "", Assignor.UNSPECIFIED),
    )


def no_group(tried: str) -> TidelogError:
    """For what only a consumer with a group can do."""
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=tried,
        happened="this consumer has no group",
        hint="make it with group_id='...'",
    )


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """As they are stored; a bare number is the next offset to read."""
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for name, at in offsets.items():
        found = OffsetAndMetadata(at) if isinstance(at, int) else OffsetAndMetadata(*at)
        partition = TopicPartition(*name)
        happened = ""
        if found.offset < 0:
            happened = f"{found.offset} is not an offset"
        elif len((found.metadata or "").encode()) > METADATA_BYTES_MAX:
            happened = f"its metadata is longer than {METADATA_BYTES_MAX} bytes"
        if happened:
            tried = f"commit {partition.topic}-{partition.partition}"
            raise TidelogError(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened)
        checked[partition] = found._replace(metadata=found.metadata or "")
    return checked


def committed_of(found: OffsetsFound) -> OffsetAndMetadata | None:
    """The answer to a lookup of one partition."""
    if found.error is not None:
        raise found.error
    assert len(found.offsets) == 1, "one partition was looked up"
    at = found.offsets[0]
    if at.error is not None:
        raise at.error
    if at.committed_offset < 0:
        return None
    return OffsetAndMetadata(at.committed_offset, at.metadata, at.leader_epoch)


def not_answered(tried: str) -> TidelogError:
    """The member gave no answer by its deadline."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=tried,
        happened="the group's coordinator did not answer within default_api_timeout_ms",
    )


def commit_error(group: str, failures: Mapping[TopicPartition, TidelogError]) -> TidelogError:
    """What a commit raises that was not stored for some partitions."""
    assert failures, "nothing failed"
    lost = {name: error for name, error in failures.items() if error.code in _NOT_MINE}
    if lost:
        return CommitFailedError(group=group, failures=lost)
    return next(iter(failures.values()))
