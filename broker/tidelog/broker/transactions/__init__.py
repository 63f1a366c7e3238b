"""Transactions, pure: one core for each partition of the internal topic `__transactions`.

Owns, for each transactional id, who may write under it, what the transaction in progress touches,
and how it ends. It must never read a clock, draw randomness, touch a file or a socket, or log;
never decide a transaction twice; never let a marker leave before the decision is committed.

Theory of operation. `TransactionCoordinatorCore` (core/coordinator.py) is a state and a log of
records that make it, as the core of groups is.

    message ── step ──▶ records ── applied to the state, in the same call
                          │
                          └─ AppendRecords(token) ──▶ the partition's log ── committed ──▶ Answer,
                                                                                    SendMarkers

1. The state advances when records are handed out, so that requests behind need not wait; an answer
   waits until all is committed that it may show. Nobody ever sees what a failover could take back.
   So a write in flight is no reason to refuse anything: what comes behind it is appended behind it.
2. A live core and one that has replayed the same records have the same persistent state: both
   change it by the same function (state/replay.py). One record holds all of an id, whatever
   compaction does.
3. When an append fails nobody knows what of it is in the log, and nothing of it was answered. The
   core refuses everything that waits, says `ReloadNeeded`, and another one loads what the log
   holds.

Identities. A producer works under an identity: producer id and epoch. Every transaction has one of
its own, for every end brings a new epoch ("version 2"). That is what makes a transaction safe from
its own past: a request that was delayed carries the identity of the transaction that it meant, and
can neither decide nor extend a later one. The coordinator keeps the *current* identity and the
*last* one, with the reason why it gave way (`Succession`):

    the current one   works: it adds partitions, prepares, ends
    the last one      is of whoever has not heard yet: it is told what was decided, as often as it
                      asks; or TRANSACTION_ABORTED if the coordinator itself has aborted. It changes
                      nothing
    any other         is fenced

No identity is given to two processes. An end gives the new one to the holder of the one that ended;
a takeover without `expected` makes a new one each time. A takeover *with* `expected` is how a
holder goes on after an error, an abort by the coordinator, or an end whose answer it never got:
naming the current identity brings a new one, naming the last one tells the current one again, with
no effect, and only while nothing has begun under it. So it may be repeated and it may be delayed.

One transaction, by the states of state/states.py:

    producer ── first batch, identity (p, e) ──▶ leader ── AddPartitions ──▶ coordinator
                                                                    persists ONGOING(partitions)
                          leader appends   ◀─────────────────────── yes
    producer ── EndTransaction (p, e) ─────────────────────────────▶ coordinator
                               persists PREPARE(decision, marker p@e+1, successor) in one record
    producer ◀── successor ─────────────────────────────────────── committed
                          leader ◀── marker p@e+1, coordinator epoch ── committed
                          leader ── the marker is committed ──────▶ coordinator
                                                                    persists COMPLETE

Nobody says begin: the first partition does it. It is persisted *before* the leader may accept data,
so that there is no data without a record that names its partition, and every abort reaches it. The
coordinator of a group asks in the same way before it takes offsets for a transaction: `__groups`
is a partition among the others. An end of nothing is an end all the same: it brings a new epoch,
through PREPARE and COMPLETE in one append.

The answer to an end comes when the decision is durable, not when the markers are there. What comes
under the successor before that is told CONCURRENT_TRANSACTIONS: before identities are compared, as
the producer may know a successor that no marker carries. A marker carries one epoch more than its
data and the epoch of the coordinator. It is sent again, unchanged, until its leader has it: whoever
leads there meanwhile, however often an answer is lost, after every failover. A leader that has it
answers success. A partition drops out without it only when its topic is deleted, and only by the
coordinator's own metadata, which knew the topic when the partition was added: a broker that knows
no such topic may be behind. A leader that has heard of a newer coordinator says NOT_COORDINATOR;
the core steps down and asks nothing.

Epochs end. A producer is given 0 to 32,766; 32,767 is left for the marker that ends the transaction
of 32,766, so whatever epoch is reached there is one to fence it with. At that end the record of the
decision names the next producer id; it is the successor, with epoch 0, and takes over at COMPLETE.
An end takes exactly one epoch, also the abort that a takeover brings. Where the last epoch is given
up with nothing in progress the next producer id comes at once, as no marker is needed. Producer ids
are granted ahead of time (`RequestProducerIds`); without any at hand what needs one is refused with
a retriable error, and a timeout's abort is put off, never left out.

Timeouts. Every transaction in progress has a deadline, from the first record that begins it and
again, in full, after each load. When it comes the coordinator aborts: the decision is its own, so
the holder of the last identity is told TRANSACTION_ABORTED, not that it is fenced, and goes on by a
takeover with `expected`. An operator's abort is the same with another reason. An id with nothing in
progress that nobody used for a week is forgotten; never one that is open, prepared or ending, whose
partitions would wait for ever. What is forgotten begins again under a new producer id, so nothing
that was delayed can reach it.

A failover between any two steps. Whatever was answered or sent is committed, hence loaded:

    nothing of it committed    the request is sent again, and finds the state before it
    ONGOING committed          open, with a full timeout
    PREPARE committed          its markers are sent, by the epoch that it names, from the first view
                               of topics on; those that are there already are answered as success
    COMPLETE not committed     the same
    PREPARED committed         stands

Two phases. PrepareTransaction makes an open transaction PREPARED: nothing is added to it any more,
it has no timeout, and neither an end nor a takeover touches it (TRANSACTION_PREPARED). Its token is
the transactional id and the identity. DecidePrepared with the token decides, from any process; it
brings no identity, since two processes may hold a token: the producer that prepared goes on by a
takeover with `expected`, another one without. The last token that was decided is remembered with
its decision, whatever transactions follow, so that the other half, having crashed between its own
commit and its note of it, may decide again. Prepared transactions hold readers back, so they are
limited for each principal and for the cluster, are listed, are noted every minute, and an operator
may abort them.

Staged publish (to come) is one more way to begin and end such a transaction: a sink's id stands in
the same partitions under keys of its own, its PREPARE_COMMIT carries the batch id, and everything
from there on is what stands here.

Caveats. A token holds the identity of the producer that prepared: whoever has the token must not
take the id over by it. A leader asks once for each partition and transaction, so a producer that
goes on writing to a partition after it prepared is not stopped by the coordinator; clients refuse
to. A call to take over without `expected` that was delayed takes over when it arrives. A failover
gives a transaction that is in progress its whole timeout once more. Where KIP-890 refuses what
comes while a write of the coordinator is in flight, here it waits; the state Dead is not needed, as
a forgotten id is one that is not known from the moment on at which its tombstone is handed out.
"""
