"""Where a log begins, who may say so, and whose copies may be given up on that word. Pure.

Owns the two questions that leader and follower ask of a log start: was it decided, and does a
follower above its leader's start lack the head. It must never call a start decided of which nobody
knows the leader epoch that moved it.

Theory of operation. A record below a log's start is gone for good, so a start is a decision, and
only a leader makes it: by retention, by age or size, and by DeleteRecords. The core refuses a trim
that a replica decides while it follows (`partition/trimming`), and housekeeping does not ask for
one. A compaction moves no start. What a leader has decided travels as a pair, the start and the
leader epoch in which it was moved (its *start epoch*): in the marks of the data directory, in the
memory of the log, with a follower's position and with each of its leader's answers.

    leader of epoch e ── trims to S: marked (e, S), flushed, then the head goes
         │ answers: start S, start epoch e
         ▼
    follower ── e is known, and not above its own leader epoch ──▶ trims to S, marked (e, S)
         │ position: start S, start epoch e
         ▼
    the next leader, whose log may begin below S ── e is known, and not above its own ──▶ counts it

A start that was not decided is one without a start epoch: an earlier version has moved it (there
each replica trimmed by its own clock, and a clock a day ahead emptied copies that stayed in sync),
or the mark of the epoch has rotted. It may be on either side, and the one that begins higher is
the one that lacks records, whoever leads:

- A follower that begins above its leader, undecided, lacks the head. It is not counted for the
  watermark nor let into the in-sync set; the leader says so, and it is treated as any damaged copy
  (`repair`): reported, so that the controller counts on it no more, nor as eligible; its files set
  aside, not removed; copied anew. The leader speaks only behind the rule of divergence, so that it
  holds all that the follower has. If the controller knows of no other that is sure to hold
  everything, the copy is kept as it is.
- A leader that begins above a follower, undecided, is the one to doubt: it may have been elected
  with an emptied log, and the follower may be the last good copy. The follower keeps its head. It
  follows on where its log is, counts, and gives nothing up until a leader decides again; if it
  leads, all of it is read again, and the former leader is the follower of the case above.
- The same leader, and the follower's log ends below that start: it cannot go on without giving up
  all that it has. It keeps it, stays out of sync, and asks again. Unless it is empty: then nothing
  is lost by beginning at the leader's start, with no start epoch of its own.

Every path on which the start of a replica that does not lead moves:

    the leader's start, told with numbers or batches     take_numbers: trims what is committed here
    its epoch is below all that the leader knows, it
      ends at the leader's start, and is committed       _cut: trims, and goes on there
    the same, but not committed, or parted before        _cut: begins anew at the leader's start
    its log ends below the leader's start                take_news, _is_new_start: begins anew
    an unclean election, the leader ends below it        _cut: begins anew further down, undecided
    a damaged replica, or one that lacks the head        `repair`: files aside, an empty log at 0
    moved, removed and placed again, a replaced disk     an empty log at 0

The first four ask `is_decided` first, or find the log empty. The last three begin lower, so that
nothing is lifted. A replica that begins anew begins at its leader's start, never above it.

An earlier version reads the marks as before and skips the epochs; what it trims is undecided. From
a leader of an earlier version, which tells no start epochs, nothing is taken over: a follower keeps
its head until that leader is upgraded, and trims again. Epochs tell that *a* leader decided, not
that its clock was right: that is for the cluster's clock to say before a leader trims by age.
"""

from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.broker.replication.shared.messages import FollowerPosition
from tidelog.wire.ids import LeaderEpoch, Offset


def is_decided(start_epoch: LeaderEpoch, leader_epoch: LeaderEpoch) -> bool:
    """Whether a leader has moved a start: of an epoch up to the one in which this is asked."""
    return UNKNOWN_EPOCH < start_epoch <= leader_epoch


def lacks_head(
    start_offset: Offset,
    start_epoch: LeaderEpoch,
    *,
    leader_start_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> bool:
    """Whether a copy that begins there lacks what its leader holds and no leader gave up."""
    return start_offset > leader_start_offset and not is_decided(start_epoch, leader_epoch)


def follower_lacks_head(log: PartitionLog, position: FollowerPosition) -> bool:
    """At the leader, of what a follower says of its log."""
    return lacks_head(
        position.log_start_offset,
        position.log_start_epoch,
        leader_start_offset=log.log_start_offset,
        leader_epoch=log.leader_epoch,
    )
