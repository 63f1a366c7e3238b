"""Consumer groups, pure: one core for each partition of the internal topic `__groups`.

Owns who is a member, who owns which partition and how far each group has read. It must never read a
clock, draw randomness, touch a file or a socket, or log; never give a partition to a second owner
before the first has given it up or is gone; never show what is not committed.

Theory of operation. `GroupCoordinatorCore` (core.py) is a state and a log of records that make it.

    request ── step ──▶ records ── applied to the state, in the same call
                          │
                          └─ AppendRecords(token) ──▶ the partition's log ── committed ──▶ Answer

1. The state advances when records are handed out (`AppendRecords`), so that requests behind need
   not wait; every answer waits until all is committed that it may show. A read waits for the last
   append of its group, too: nobody ever sees what a failover could take back.
2. A live core and a fresh one that has replayed the same records (`apply`) have the same persistent
   state: both change it by the same function, from the same records (replay.py). Only deadlines are
   not stored; loading extends every session by its full timeout.
3. One append is atomic: its records are one batch of the log.
4. When an append fails nobody knows what of it is in the log. Nothing of it was answered. The core
   refuses everything that waits (COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, both retriable),
   says `ReloadNeeded` and is of no more use; a new one loads what the log holds. That is safe:
   whatever was answered is committed and therefore loaded; whatever was not answered is
   indeterminate to its sender, and each request may be sent again: a commit twice is a commit once,
   a heartbeat is numbered by its member, a departure or removal of who is gone changes nothing.

What a core only looks up it tells without an append. Whether its broker may still do so is for the
glue to know (`coordinators.proof`).

A group moves from one assignment to the next member by member (KIP-848's way):

    group_epoch        one more whenever members, subscriptions or partition counts change
      ≥ assignment_epoch   the group_epoch for which the target assignment was computed
        ≥ member_epoch     the assignment_epoch that the member has reached
          ≥ partition_assignment_epoch   the member_epoch at which it was given the partition

    member:   assigned ──(not in its target any more)──▶ revoking ──(reported given up)──▶ free
              free ──(in its target, nobody owns it, nothing revoking)──▶ assigned

A member that must give up partitions stays at its epoch until it has reported so, or is removed by
its session or rebalance timeout. What is in its old and in its new target stays assigned, under its
old partition_assignment_epoch: it never stops. A partition comes to its new owner only while nobody
owns it. A commit for partition p counts if the member owns p (assigned or revoking) and
partition_assignment_epoch(p) ≤ epoch sent ≤ member_epoch: a commit from before p went away and came
back has an epoch below, and does not.

Heartbeats are numbered by their member (`heartbeat_sequence`), and the number is stored with every
change that a heartbeat makes. A request that its sender gave up may still be processed, later than
those sent after it: without the number a late "I own only p0" could free p1 that was given since.

Offsets in a transaction (core/staging.py). A producer sends offsets of a group to its transaction,
and they count if and when that is committed. Three parties write to this partition's log for it:
this coordinator the offsets, as a transactional batch of the producer, which the partition's leader
admits as any other; the coordinator of the transaction, through the leader, a marker; and this
coordinator what became of them. In the log:

    staged(p1, part 0)  ...  staged(p1, part 1)  ...  marker(p1, commit)  offset, offset, ✝0, ✝1
    └ transactional batches of producer p1 ───┘       └ of the other      └ the *fold*: an ordinary
                                                        coordinator         batch, in the order of
                                                                            this core's appends

1. Staged offsets have keys of their own: group, producer, number of the part. Under the key of the
   ordinary offset compaction would keep whichever record came last, a plain commit that was made
   between the staged record and the marker, say, and the committed offset would be lost. Under
   keys of their own both are kept until the fold says which one counts.
2. It is the marker's place that counts. A plain commit from before the marker gives way to the
   transaction's offset, wherever that was sent; one that is handed out behind the fold replaces it.
   Between a marker and its fold only those appends stand that were under way when the marker came:
   nobody could tell whether they were before or after it.
3. The fold makes the decision independent of markers: from then on each key's last value tells all,
   as it must in a compacted log. Before it, the cleaner helps: it stays below the first transaction
   that is open, drops aborted records whatever their key, and keeps a marker as long as records of
   its transaction are there. So a core that loads meets each part with its marker, or undecided.
   What it finds decided and not folded it folds before it takes a request.
4. Staged parts are in memory from the step on in which their record is handed out. The one append
   that may be refused without harm is theirs: a marker came before it. Then the part is taken back.
   A marker that comes while such appends are under way waits for them: those before it in the log
   are committed with it, those behind it are refused.
5. A marker is answered when its fold is committed, so whoever reads after the transaction has ended
   sees its offsets. It names the epoch of the end; what is staged under that epoch or a higher one
   is of a later transaction. A marker for nothing is a success.
6. What is staged protects its partitions and its group: nothing of them expires, is deleted, or set
   by operators. Whoever goes on from a committed offset asks for a stable one, and waits.
"""
