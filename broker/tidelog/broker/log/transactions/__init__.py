"""What a log knows of transactions: which are open, how far readers may go, which were aborted.

Pure, and a function of the batches alone, so that every copy of a partition computes the same from
its own log below its own watermark; nobody sends it. Three things follow from the batches:

open       A transaction is open from its first batch until its marker. `OpenTransactions` keeps
           where each begins.
stable     The last stable offset: below it every transaction has ended, by a marker that is itself
           below the watermark. Readers of committed records go no further. It never falls while the
           log is not cut, because a transaction that begins does so at the log's end.
aborted    For readers of committed records each aborted transaction is an entry of producer, first
           offset and the marker's offset. Entries belong to the segment that holds the marker:
           they live and go with it, and a compaction that keeps the marker keeps the entry
           (KAFKA-13727). A reader of offsets below a transaction's end therefore has to look at
           later segments too, until one at whose end no transaction is open that began before what
           it reads.

What a leader lets in is more than a log can tell: `admission` keeps what it is verifying with
coordinators, from a first batch to its append. That is the leader's own, and gone with its
leadership.

A marker of a transaction that is not open is no error here: a repeated marker ends nothing.
"""
