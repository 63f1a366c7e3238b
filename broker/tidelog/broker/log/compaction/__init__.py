"""Compaction: of each key the last record stays. Pure, but for the job that `log.jobs` holds.

Theory of operation. One round of one log:

    |-- clean: earlier rounds compared it --|------------- dirty -------------|-- not yet --|
    log start                      first_dirty_offset                    cleaned_below

1. The planner decides whether a round is due, and over which sealed segments below the bound that
   the caller gives (the last stable offset).
2. The map is filled with the last offset of each key of the dirty part, until the part ends or the
   map is full: where it ends is `cleaned_below`. What did not fit is the next round's.
3. Every segment from the log's start to there is read again and rewritten, neighbours grouped up to
   segment.bytes. A record stays if the map knows no later one of its key. A tombstone (no value)
   stays until its delete horizon. Whatever lies at or above `cleaned_below` is copied as it is.
4. The groups' files are swapped in one by one, **in ascending order, each durable before the
   next one**.

Why the order matters: a tombstone may only go when no older record of its key is left below it.
The round that gave it its horizon removed those, in groups at or before its own; a later round
drops the tombstone. If a later group could be swapped in without an earlier one, a tombstone would
die while an older value still stood, which would come back. With the order kept, `cleaned_below`
never ascends along a log, and `first_dirty_offset` is its lowest value: after a crash between two
groups the next round begins where this one did, and loses nothing.

Delete horizon, as in Kafka's format since its KIP-534: the first round whose map covers a tombstone
sets bit 6 of its batch's attributes and the base timestamp to now + delete.retention.ms; the
records' timestamp deltas are made to fit, so that timestamps stay. Later rounds never set it again.
A reader who is less than delete.retention.ms behind that first round sees the tombstone.

Records without a key (stored before the topic was compacted) are dropped where the map covers them,
as Kafka's cleaner does; they are refused at append on a compacted topic.

Transactions: a round stays below the last stable offset, so of every transaction it is known how it
ended, and where: that is told by the aborted transactions of the segments and of those behind. Each
batch is judged by them at its own place (`transactions`). What was committed counts as any record;
what was aborted goes, whatever its key. A marker stays as long as a batch of its transaction does,
be it an empty one, and from the round on that finds none until its delete horizon: whoever reads
what was there before, or copies the log, meets the end of what it has seen the beginning of. The
entry of an aborted transaction goes with its marker.

Caveats. As with Kafka, a reader or a replica that was away for longer than delete.retention.ms and
comes back at an offset that it knows may miss a tombstone, and keep the value that it deleted: it
has to begin from the log's start. A round rewrites the log from its start on, however much of it is
clean, and needs room for both copies until the last group is swapped in. A batch whose records
cannot be read stays for ever, and so does one that our compressor cannot pack below the limit of a
batch: the round ends with BATCH_TOO_LARGE and names it.
"""
