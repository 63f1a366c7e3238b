"""What is done to logs by the time that passes: retention, rolls by age, background jobs, room.

Theory of operation. Each data directory has one `Housekeeper`, a task that decides nothing by
itself and changes no log: what is due is planned by pure functions from what the logs say of
themselves, what changes a log is a message to the directory's owner, what takes long is a job in
a worker's process: one for seals, one for all else.

    every check        retention ──▶ owner.trim, owner.roll
                       what is due ──▶ seal, one at a time ──▶ sealer
                                   ──▶ compact, then scrub, one job at a time ──▶ worker
    a job has ended    its files get their names, durably ──▶ owner.sealed, owner.replace
    it found damage    owner.fail: the partition stops
    every space check  free bytes against the floor ──▶ owner.set_full

Time. Retention compares records' timestamps with the wall's time at the start of the process and
the monotonic time since: a jump of the wall's clock deletes nothing.

Order. Sealing waits for nothing: until a segment is sealed its index is in memory, and a compaction
takes long. Within one log segments are sealed in their order, because the producer state behind one
continues that of the one before. Beside it the dirtiest log is compacted; if none is dirty, one
segment is scrubbed, at a pace that sees all of them once a period.
"""
