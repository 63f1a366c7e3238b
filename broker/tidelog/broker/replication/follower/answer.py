"""What a follower makes of one partition's news. Pure.

Owns the decisions behind an answer: append, cut, begin anew, move, wait. It must never hand on
batches that do not go on where the log ends, but for gaps that a compaction left at the leader; nor
let the log's start rise on the word of one that no leader has decided (`log_start` has all paths).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.directory.core.messages import RestartLog, TrimHead, TruncateTail
from tidelog.broker.replication.follower.check import checked_headers
from tidelog.broker.replication.follower.partition import (
    AppendCopies,
    FollowedPartition,
    FollowerEffect,
    MoveTo,
    Phase,
    StopHeadless,
)
from tidelog.broker.replication.shared.leader_check import cut_offset_of
from tidelog.broker.replication.shared.log_start import is_decided, lacks_head
from tidelog.broker.replication.shared.messages import NO_EPOCH, Divergence, PartitionNews
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

if TYPE_CHECKING:
    from tidelog.broker.log.state.log import PartitionLog
    from tidelog.broker.replication.follower.session import FollowerSession


def take_news(
    session: FollowerSession,
    partition: FollowedPartition,
    news: PartitionNews,
    token: tuple[int, int],
    now_ms: int,
    effects: list[FollowerEffect],
) -> int:
    """Take in what is new in a partition that is named; how many appends it led to."""
    log = session.view.log(partition.key)
    is_of_epoch = news.leader_epoch == partition.followed.leader_epoch
    if news.error is not None or log is None or not is_of_epoch:
        if log is not None and is_of_epoch and news.is_head_missing:
            _stop_headless(log, news, effects)
        session.refuse(partition, now_ms)
    elif news.divergence is not None:
        _cut(session, partition, log, news, news.divergence, now_ms, effects)
    elif news.move_to_lane is not None:
        effects.append(MoveTo(key=partition.key, followed=partition.followed))
    elif news.batches:
        return _take_batches(session, partition, log, news, token, now_ms, effects)
    elif news.log_start_offset > partition.expected_offset:
        start, epoch = news.log_start_offset, news.log_start_epoch
        _restart(session, partition, log, news, start, now_ms, effects, start_epoch=epoch)
    else:
        session.take_numbers(partition, news, effects)
    return 0


def _stop_headless(log: PartitionLog, news: PartitionNews, effects: list[FollowerEffect]) -> None:
    """The leader holds what lies below this log's start. Seen from here as well, or it speaks of
    a state that is over."""
    is_so = lacks_head(
        log.log_start_offset,
        log.log_start_epoch,
        leader_start_offset=news.log_start_offset,
        leader_epoch=news.leader_epoch,
    )
    if is_so:
        effects.append(
            StopHeadless(
                key=log.key,
                log_start_offset=log.log_start_offset,
                leader_start_offset=news.log_start_offset,
            )
        )


def _cut(
    session: FollowerSession,
    partition: FollowedPartition,
    log: PartitionLog,
    news: PartitionNews,
    divergence: Divergence,
    now_ms: int,
    effects: list[FollowerEffect],
) -> None:
    """The log ends where it parts from the leader's; never below what is committed, unless
    somebody decided so. The owner refuses that, and the partition stops."""
    offset = cut_offset_of(log, divergence)
    is_unclean = partition.followed.is_unclean
    is_unknown = divergence.leader_epoch == NO_EPOCH
    if not session.view.is_settled(partition.key):
        session.refuse(partition, now_ms)
        return
    is_at_start = offset == log.log_start_offset
    if is_unknown and not is_at_start and (is_unclean or log.high_watermark < offset):
        # What is below the leader's start may be another's, though the leader keeps nothing that
        # would tell: neither its records nor its producers may stay.
        epoch = news.log_start_epoch
        _restart(session, partition, log, news, offset, now_ms, effects, start_epoch=epoch)
        return
    if offset >= log.log_end_offset:
        is_start_decided = is_decided(news.log_start_epoch, partition.followed.leader_epoch)
        if is_unknown and is_start_decided and not partition.is_trimming:
            # It ends at the leader's start, and all of it is committed: once that is trimmed there
            # is nothing left that could have parted. Its producers are known further on.
            partition.is_trimming = True
            epoch = news.log_start_epoch
            effects.append(TrimHead(key=partition.key, offset=offset, start_epoch=epoch))
        # Else the answer is of another state than the log's: nothing is cut by it.
        session.refuse(partition, now_ms)
        return
    if offset < log.log_start_offset and is_unclean:
        # The leader's log ends below this one's beginning. Nobody decided that a log begins there.
        _restart(session, partition, log, news, offset, now_ms, effects, start_epoch=NO_EPOCH)
        return
    partition.phase = Phase.BUSY
    effects.append(TruncateTail(key=partition.key, offset=offset, is_unclean=is_unclean))


def _restart(
    session: FollowerSession,
    partition: FollowedPartition,
    log: PartitionLog,
    news: PartitionNews,
    offset: Offset,
    now_ms: int,
    effects: list[FollowerEffect],
    *,
    start_epoch: LeaderEpoch,
) -> None:
    """The leader keeps nothing that the log could go on from: begin anew, if a leader has decided
    that what this log has may go, or nothing goes."""
    if not session.view.is_settled(partition.key):
        session.want(partition)
        return
    is_start_decided = is_decided(news.log_start_epoch, partition.followed.leader_epoch)
    is_lifted = offset > log.log_start_offset
    is_empty = log.log_start_offset == log.log_end_offset
    if is_lifted and not is_empty and not is_start_decided:
        # What it has may be the last good copy: kept until a leader decides.
        session.refuse(partition, now_ms)
        return
    partition.phase = Phase.BUSY
    effects.append(RestartLog(key=partition.key, offset=offset, start_epoch=start_epoch))


def _take_batches(
    session: FollowerSession,
    partition: FollowedPartition,
    log: PartitionLog,
    news: PartitionNews,
    token: tuple[int, int],
    now_ms: int,
    effects: list[FollowerEffect],
) -> int:
    try:
        headers = checked_headers(
            partition.key,
            news.batches,
            news.fetch_sum,
            first_epoch=partition.last_epoch,
            last_epoch=partition.followed.leader_epoch,
        )
    except TidelogError:
        session.refuse(partition, now_ms)
        return 0
    first, expected = headers[0], partition.expected_offset
    if _is_new_start(session, partition, log, first, news.log_start_offset):
        start = first.base_offset
        if start > expected:
            # Behind a gap that a compaction has left the log begins where its leader's does.
            start = Offset(min(start, news.log_start_offset))
        # Above its leader's start it begins where it did, in the batch that holds that offset.
        is_leaders = start <= news.log_start_offset
        epoch = news.log_start_epoch if is_leaders else log.log_start_epoch
        _restart(session, partition, log, news, start, now_ms, effects, start_epoch=epoch)
        return 0
    if first.base_offset < expected:
        session.refuse(partition, now_ms)
        return 0
    last: BatchHeader = headers[-1]
    partition.expected_offset = last.next_offset
    partition.last_epoch = last.leader_epoch
    effects.append(
        AppendCopies(
            key=partition.key,
            token=token,
            batches=news.batches,
            headers=headers,
            behind=expected,
        )
    )
    session.take_numbers(partition, news, effects)
    return 1


def _is_new_start(
    session: FollowerSession,
    partition: FollowedPartition,
    log: PartitionLog,
    first: BatchHeader,
    leader_start_offset: int,
) -> bool:
    """Whether the log can go on with this batch only if it begins with it: all before it is gone at
    the leader, or the log is empty and begins within it, or ends within it, below the leader's
    start: what is there the leader has no epochs of any more, it may be another's.
    """
    expected = partition.expected_offset
    if first.base_offset > expected:
        return leader_start_offset > expected
    if first.base_offset == expected or first.next_offset <= expected:
        return False
    is_empty = log.log_start_offset == expected and session.view.is_settled(partition.key)
    return is_empty or leader_start_offset >= expected
