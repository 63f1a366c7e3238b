"""What holds of a subscription after every input. Pure.

Owns that no partition is forgotten: each one that the client cannot read yet is being asked about,
will be, or waits for where it begins to be stored; that offsets stand in their order; and that an
acknowledgement waits only for what can still come. Reads private state, and must never change it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tidelog.broker.groups.subscription.core import limits
from tidelog.broker.groups.subscription.core.commits import NEVER_MS, Commits
from tidelog.broker.groups.subscription.core.partition import Partition, size_of
from tidelog.wire.ids import NO_OFFSET

if TYPE_CHECKING:
    from tidelog.broker.groups.subscription.core.subscription import Subscription


def check(subscription: Subscription) -> None:
    """Fails with what is wrong, and of which partition."""
    if subscription._is_over:
        return
    for key, partition in subscription._partitions.items():
        assert partition.key == key, f"{key}: kept in the place of {partition.key}"
        _check_offsets(partition)
        _check_phase(partition)
        _check_not_forgotten(subscription, partition)
    _check_client(subscription)
    _check_membership(subscription)
    _check_commits(subscription._commits)


def _check_offsets(partition: Partition) -> None:
    key, buffer, sent = partition.key, partition.buffer, partition.unacknowledged
    if partition.next_read == NO_OFFSET:
        # What is acknowledged may be known: a commit from before it was given up is stored by now.
        end = partition.sent_end
        assert end == NO_OFFSET, f"{key}: sent up to {end} from a beginning that is not known"
        assert not buffer, f"{key}: read from nowhere"
        assert not sent, f"{key}: sent from nowhere"
    assert partition.sent_end <= partition.next_read, f"{key}: sent what was not read"
    offsets = [partition.sent_end - 1, *(each[0] for each in buffer), partition.next_read]
    assert all(one < other for one, other in pairwise(offsets)), f"{key}: {offsets} ascend"
    size_bytes = sum(map(size_of, buffer))
    assert partition.buffered_bytes == size_bytes, f"{key}: {size_bytes} bytes are buffered"
    ends = [each.end_offset for each in sent]
    assert all(one < other for one, other in pairwise(ends)), f"{key}: parts end at {ends}"
    assert not ends or ends[-1] == partition.sent_end, f"{key}: sent, and nobody waits for it"
    assert all(each.count > 0 for each in sent), f"{key}: parts without records were sent"


def _check_phase(partition: Partition) -> None:
    key = partition.key
    if partition.is_ready:
        assert partition.next_read != NO_OFFSET, f"{key}: ready, and begins nowhere"
        assert not partition.is_finding, f"{key}: ready, and asked about"
        assert not partition.needs_reset, f"{key}: ready, and what it reads is gone"
    if partition.is_leaving:
        assert not partition.buffer, f"{key}: read ahead, and to be given up"


def _check_not_forgotten(subscription: Subscription, partition: Partition) -> None:
    key, commits = partition.key, subscription._commits
    if partition.is_ready or partition.is_finding or partition.is_leaving:
        return
    is_due = subscription._find_due_ms < NEVER_MS
    is_stored_soon = any(key in each.offsets for each in commits._queue)
    assert is_due or is_stored_soon, f"{key}: never asked about again"


def _check_client(subscription: Subscription) -> None:
    partitions = subscription._partitions.values()
    assert 0 <= subscription._credit <= limits.CREDIT_MAX, f"credit of {subscription._credit}"
    count = sum(each.unacknowledged_count for each in partitions)
    assert count <= limits.UNACKNOWLEDGED_MAX, f"{count} records are not acknowledged"
    if subscription._announced is not None:
        shown = {each.key for each in partitions if each.is_ready and not each.is_leaving}
        told = subscription._announced.keys()
        assert told == shown, f"the client was told of {sorted(told)}, and reads {sorted(shown)}"


def _check_membership(subscription: Subscription) -> None:
    member, partitions = subscription._member, subscription._partitions
    if member is None:
        assert not subscription._commits, "without a group nothing is committed"
        return
    if not member.is_member:
        assert not partitions, f"{sorted(partitions)} are owned by no member"
        assert subscription._commits._sent is None, "a commit of no member is waited for"
    for key, partition in partitions.items():
        is_left = partition.is_leaving and partition.is_done
        assert not is_left, f"{key}: nothing is waited for, and it is not given up"


def _check_commits(commits: Commits) -> None:
    queue, sent = commits._queue, commits._sent
    count = sum(each.position_count for each in queue)
    assert commits.position_count == count, f"{count} positions wait, not {commits.position_count}"
    for waiting in queue:
        assert waiting.offsets.keys() <= waiting.topics.keys(), "a position of no topic waits"
    if sent is not None:
        assert queue, "a commit is under way that nobody waits for"
        keys = {each.key for each in sent.offsets}
        assert keys == queue[0].offsets.keys(), "another acknowledgement than the first is sent"
    elif queue:
        assert queue[0].offsets, "an acknowledgement waits of which nothing is to be stored"
