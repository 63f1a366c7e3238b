"""Staged publish: what writers stage apart from the topics, and how one publish takes all of it.

Pure, and so far nothing serves it. Theory of operation:

stage       A writer's batches go to one partition of the internal topic `__staging`, each as a
            record under the writer's *stage id*, with the partition that it is meant for. Writers
            interleave there, so every reader of a stage filters by its id. The last record is the
            *footer* (`footer`): the sink, its batch, and for each target how much was staged and
            the sum over it. A stage without a footer was never finished, and nothing names it.
token       Where the footer stands, and the sum over it (`token`). That is all that travels from
            the writer's task to whoever publishes: to a driver that has never seen a record.
manifest    All footers of one publish, in the order of their tokens (`manifest`): for each target
            the ranges to pull, one behind the other. From it alone follow the order of the records
            and the sequence of each batch, so that a leader that is asked again, by whichever
            coordinator, appends the very same batches under the very same numbers, and recognises
            those that it has.
publish     Whether a batch id is new, was published before, or cannot be judged (`judging`), before
            anything is written. The decision and the batch id are one record of the coordinator's,
            so no crash lies between them.

    stage ──batches, footer──▶ __staging            token ──▶ driver
    publish(tokens) ──▶ footers ──▶ manifest ──▶ a transaction: each target pulls its ranges

Each transaction has an epoch of its own, so the sequences of each target begin at 0.
"""
