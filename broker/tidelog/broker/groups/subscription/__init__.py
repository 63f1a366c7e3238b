"""The easy path for consumer groups: a stream of records for which the broker is the member.

Theory of operation. One `Subscription` (core.py, pure) for each stream decides; `runner.py` talks
to the coordinator and to leaders, on this broker or on others, and to the client.

    begin ─▶ join ─▶ assignment ─▶ where to begin? ─▶ read ─▶ buffer ─credit─▶ client
                        │                                                      │
                        └─ taken away ─▶ held until acknowledged ◀─ commit ◀───┘

 1. A record is sent to the client only while the member owns its partition, in ascending order of
    offset, each offset once in the life of an ownership.
 2. What is committed was acknowledged by the client, with one exception: where a partition had no
    committed offset, the place at which reading begins is committed before anything is sent, so
    that the next owner begins there too.
 3. A partition that is taken away is read no more at once, and given up when all that was sent of
    it is acknowledged. If that takes longer than the client may take, the stream ends.
 4. When the coordinator does not know the member any more, everything is forgotten at once; what
    was not acknowledged is sent again to whoever owns it then.
 5. A stream with a group_instance_id takes the place of one of that name at once, as it begins, on
    whichever broker that was. Who lost its place so joins no more: of two streams of one name the
    later one stays.
"""
