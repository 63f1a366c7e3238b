"""A transactional producer's side of its transactions: when to ask whom, and what answers mean.

The records travel as any others (`engine.produce`); what is decided here is the identity that they
carry, who may still add something, and how a transaction ends. Pure: a driver turns I/O into
messages and performs effects.

The life of a producer (`phases`):

    New ─initialize─► Starting ──► Ready ─begin─► Open ─commit─► Ending ──► Ready
                         ▲           ▲              │ something failed, or the user aborts
                         │           └─── Ending ◄──┴─► MustAbort ─abort─► Ending
                         └─ the coordinator aborted, or a token was decided

Four rules, each for a way in which others' clients have torn transactions:

1. An identity is good for one transaction. The answer to every end brings the next one, so a batch
   or an end that was delayed belongs to an identity that is over, and is refused.
2. No transaction begins before the outcome of the one before is known. If an end is not answered in
   time the outcome is open (`Undecided`): the user calls `commit` or `abort` again, which asks with
   the same identity, until somebody says what became of it (KAFKA-17754, librdkafka 5423).
3. Nothing that failed is committed. A record or an offset that was refused for good leaves abort as
   the only way (`MustAbort`).
4. Only the coordinator fences. A leader that refuses an old epoch may speak of a timeout's abort:
   `abort` asks the coordinator with the last identity, and goes on if nobody else took over
   (KAFKA-19690).
"""
