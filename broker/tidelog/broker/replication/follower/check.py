"""What a follower looks at before it stores what a leader sent. Pure.

Owns the checks of one partition's batches: the fetch sum over all of their bytes, once, and each
header's order and epoch. It must never let a batch through that goes back in offsets or epochs, or
that is of a later epoch than the one that is followed.
"""

from tidelog.wire.batch import BatchHeader, checksum, fetch_sum, iterate_headers
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def checked_headers(
    key: PartitionKey,
    batches: bytes,
    total: int,
    *,
    first_epoch: int,
    last_epoch: int,
) -> list[BatchHeader]:
    """The headers, ascending; else CORRUPT_BATCH."""
    headers = [header for _, header in iterate_headers(batches, is_compacted=True)]
    assert headers, "there is a first batch"
    base_offset = headers[0].base_offset
    expected = fetch_sum(key.topic_id, key.partition, base_offset, checksum(batches))
    if expected != total:
        raise _corrupt(key, f"their sum is {total:#010x}, the bytes give {expected:#010x}")
    next_offset, epoch = base_offset, first_epoch
    for header in headers:
        if header.base_offset < next_offset:
            raise _corrupt(key, f"offset {header.base_offset} comes behind {next_offset}")
        if not epoch <= header.leader_epoch <= last_epoch:
            raise _corrupt(
                key,
                f"the batch at {header.base_offset} is of leader epoch {header.leader_epoch}, "
                f"not of {epoch} to {last_epoch}",
            )
        next_offset, epoch = header.next_offset, header.leader_epoch
    return headers


def _corrupt(key: PartitionKey, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CORRUPT_BATCH, tried=f"copy batches of {key} from its leader", happened=happened
    )
