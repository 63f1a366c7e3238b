"""Collects records into open batches: stop 2 of a record's walk.

Owns the open batches, the memory bound and the decision when a batch is sealed. The driver calls
it under its lock; it never waits: an append without room returns None and the driver blocks.

Theory of operation. A batch is sealed when it is full or when it has been open for `linger_ns`.
Full means `batch_bytes`; while other batches of its partition are on their way it may grow to
`batch_bytes_max`, because sealing it earlier would only make it wait in a queue, and large
hand-overs cost the least. For the same reason one that has lingered and is not full goes when
those before it are done, at most `BEHIND_NS` after it was opened: many small ones under way at
once keep brokers busy with messages, and make each of them later than one that waits for company.
Memory is reserved in slabs, so that the hot path compares one number.

    append ──► open ──full / lingered / flush──► sealed ──► (core: producer.py)
"""

from collections.abc import Callable, Sequence

import msgspec

from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.run import Run
from tidelog.wire.batch import RECORDS_PER_BATCH_MAX, Header

SLAB_BYTES = 16 * 1024
STICKY_NS = 50_000_000
"""Records without a key stay so long with a partition, however soon its batches are sealed: spread
over all of them, each small batch would cost its leader a flush of its own."""
BEHIND_NS = 20_000_000
"""A batch that is not full waits so long for those of its partition before it, if they take so long
(docs/adr/0015-small-batches.md)."""
BUFFER_SLABS_MIN = 8
"""Of a run's slabs so many fit into the buffer at least: one partition does not take all of it."""


class AccumulatorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one producer's memory and batches."""

    batch_bytes: int
    batch_bytes_max: int
    buffer_bytes: int
    linger_ns: int
    in_flight_max: int


class Route:
    """One topic as the accumulator sees it: an open batch and a count of unfinished ones each."""

    __slots__ = ("busy", "name", "open", "partition_count", "sticky", "sticky_until_ns", "topic_id")

    def __init__(self, name: str, topic_id: bytes, partition_count: int) -> None:
        assert partition_count > 0, f"topic {name} has no partitions"
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.open: list[Batch | None] = [None] * partition_count
        self.busy = [0] * partition_count
        """Sealed batches that are not done."""
        self.sticky = 0
        self.sticky_until_ns = 0
        """A batch that has lingered before, and has room, does not move it."""

    def move_sticky(self) -> None:
        """The next partition for records without a key: the one with the least on its way."""
        count = self.partition_count
        start = self.sticky + 1
        candidates = [(start + step) % count for step in range(count)]
        self.sticky = min(candidates, key=self.busy.__getitem__)

    def resize(self, partition_count: int) -> None:
        """The topic was given more partitions, or created again with another number of them."""
        assert partition_count > 0, f"topic {self.name} has no partitions"
        # Batches of the topic as it was are counted still: the lists never shrink.
        added = max(0, partition_count - len(self.open))
        self.open += [None] * added
        self.busy += [0] * added
        self.partition_count = partition_count
        self.sticky %= partition_count


class Accumulator:
    """Open batches by partition; sealed ones wait in `sealed` until the driver takes them."""

    def __init__(self, limits: AccumulatorLimits, now_ns: Callable[[], int]) -> None:
        self.limits = limits
        self.reserved_bytes = 0
        """By every batch that is not done."""
        self.open: dict[int, Batch] = {}
        """By number, so in the order of opening: the first lingers out first."""
        self.sealed: list[Batch] = []
        self.opened_count = 0
        self.routes: dict[str, Route] = {}
        self._now_ns = now_ns

    def append(
        self,
        route: Route,
        partition: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size_bytes: int,
    ) -> Batch | None:
        """The batch that took the record at its end; None while there is no room."""
        batch = route.open[partition]
        if batch is None or batch.size_bytes + size_bytes > batch.checkpoint_bytes:
            batch = self._make_room(route, partition, batch, size_bytes)
            if batch is None:
                return None
        columns = batch.columns
        if headers:
            columns.headers[len(columns.values)] = headers
        columns.timestamps.append(timestamp_ms)
        columns.keys.append(key)
        columns.values.append(value)
        batch.size_bytes += size_bytes
        return batch

    def extend(
        self, route: Route, partition: int | None, run: Run, start: int
    ) -> tuple[Batch, int] | None:
        """Take records of the run from `start` on into one batch: which it is, and where in the
        run the next ones begin; None while there is no room. No partition: wherever there is
        company, and where that batch is full, in the next partition.
        """
        first_bytes = run.bytes_between(start, start + 1)
        chosen = route.sticky if partition is None else partition
        while (batch := route.open[chosen]) is not None and partition is None:
            if not self._is_full_for(route, batch, first_bytes):
                break
            self.seal(route, batch)
            chosen = route.sticky
        end = start
        if batch is not None:
            end = run.fitting(start, batch.checkpoint_bytes - batch.size_bytes)
        if end == start:
            slab_bytes = min(run.slab_bytes(start), self.limits.buffer_bytes // BUFFER_SLABS_MIN)
            slab_bytes = max(SLAB_BYTES, slab_bytes)
            batch = self._make_room(route, chosen, batch, first_bytes, slab_bytes)
            if batch is None:
                return None
            end = run.fitting(start, batch.checkpoint_bytes - batch.size_bytes)
        assert batch is not None, "records fit into a batch that is not there"
        assert end > start, f"{batch!r} was given room and takes nothing"
        run.copy_into(batch.columns, start, end)
        batch.size_bytes += run.bytes_between(start, end)
        return batch, end

    def _is_full_for(self, route: Route, batch: Batch, size_bytes: int) -> bool:
        limits = self.limits
        target = limits.batch_bytes_max if route.busy[batch.partition] else limits.batch_bytes
        is_full = batch.size_bytes + size_bytes > target
        return is_full or len(batch.columns) + SLAB_BYTES > RECORDS_PER_BATCH_MAX

    def _make_room(
        self,
        route: Route,
        partition: int,
        batch: Batch | None,
        size_bytes: int,
        slab_bytes: int = SLAB_BYTES,
    ) -> Batch | None:
        limits = self.limits
        if batch is not None and self._is_full_for(route, batch, size_bytes):
            self.seal(route, batch)
            batch = None
        size_after = size_bytes if batch is None else batch.size_bytes + size_bytes
        missing = size_after if batch is None else size_after - batch.reserved_bytes
        if missing > 0:
            missing = max(min(slab_bytes, limits.batch_bytes), missing)
            # A record larger than the whole buffer is admitted alone rather than never.
            if self.reserved_bytes and self.reserved_bytes + missing > limits.buffer_bytes:
                return None
            if batch is None:
                batch = self._open(route, partition)
            self.reserved_bytes += missing
            batch.reserved_bytes += missing
        assert batch is not None, "a batch without reserved memory was kept"
        is_small = size_after <= limits.batch_bytes
        boundary = limits.batch_bytes if is_small else limits.batch_bytes_max
        batch.checkpoint_bytes = max(size_after, min(batch.reserved_bytes, boundary))
        return batch

    def _open(self, route: Route, partition: int) -> Batch:
        batch = Batch(route.name, route.topic_id, partition, self.opened_count, self._now_ns())
        self.opened_count += 1
        self.open[batch.number] = batch
        route.open[partition] = batch
        return batch

    def seal(self, route: Route, batch: Batch) -> None:
        """Close a batch for appends and hand it over."""
        assert not batch.is_sealed, f"{batch!r} is sealed twice"
        assert batch.columns.values, f"{batch!r} is sealed empty"
        batch.is_sealed = True
        del self.open[batch.number]
        route.open[batch.partition] = None
        route.busy[batch.partition] += 1
        if route.sticky == batch.partition:
            route.move_sticky()
        self.sealed.append(batch)

    def _seal_lingered(self, route: Route, batch: Batch, now_ns: int) -> None:
        """It has room: records without a key stay with its partition for a while."""
        sticky = route.sticky
        self.seal(route, batch)
        if now_ns < route.sticky_until_ns:
            route.sticky = sticky
        elif route.sticky != sticky:
            route.sticky_until_ns = now_ns + STICKY_NS

    def seal_due(self, now_ns: int) -> None:
        """Seal what has lingered or is full, unless it would only wait behind others."""
        limits = self.limits
        for batch in list(self.open.values()):
            is_full = batch.size_bytes >= limits.batch_bytes
            if not is_full and now_ns < batch.opened_at_ns + self._wait_ns(batch):
                continue
            route = self.routes[batch.topic]
            if route.busy[batch.partition] >= limits.in_flight_max:
                continue
            if is_full:
                self.seal(route, batch)
            else:
                self._seal_lingered(route, batch, now_ns)

    def seal_all(self) -> None:
        """Flush: nobody waits for company any longer."""
        for batch in list(self.open.values()):
            self.seal(self.routes[batch.topic], batch)

    def take_sealed(self) -> list[Batch]:
        """Everything sealed since the last call, in the order of sealing."""
        taken, self.sealed = self.sealed, []
        return taken

    def due_ns(self, batch: Batch) -> int:
        """When an open batch is to be looked at: at the end of its linger, by when it may be full,
        and behind others once more, unless they are done before."""
        lingered_ns = batch.opened_at_ns + self.limits.linger_ns
        is_full = batch.size_bytes >= self.limits.batch_bytes
        if is_full or self._now_ns() < lingered_ns:
            return lingered_ns
        return batch.opened_at_ns + self._wait_ns(batch)

    def _wait_ns(self, batch: Batch) -> int:
        """For so long a batch with room is open, as things stand."""
        linger_ns = self.limits.linger_ns
        is_first = not self.routes[batch.topic].busy[batch.partition]
        return linger_ns if is_first else max(linger_ns, BEHIND_NS)

    def next_linger_ns(self) -> int | None:
        """When the next open batch that could leave is to be looked at; None: there is none."""
        limit = self.limits.in_flight_max
        could_leave = (
            batch
            for batch in self.open.values()
            if self.routes[batch.topic].busy[batch.partition] < limit
        )
        return min(map(self.due_ns, could_leave), default=None)

    def release(self, batch: Batch) -> None:
        """The batch is done: its memory is free again."""
        assert batch.is_sealed, f"{batch!r} is released before it was sealed"
        self.reserved_bytes -= batch.reserved_bytes
        assert self.reserved_bytes >= 0, f"released more than was reserved: {self.reserved_bytes}"
        route = self.routes[batch.topic]
        route.busy[batch.partition] -= 1
        assert route.busy[batch.partition] >= 0, f"{batch!r} was done more often than sealed"

    def set_route(self, name: str, topic_id: bytes, partition_count: int) -> None:
        """What metadata says of a topic; a topic created again starts with new batches."""
        route = self.routes.get(name)
        if route is None:
            self.routes[name] = Route(name, topic_id, partition_count)
            return
        if route.topic_id != topic_id:
            for batch in [found for found in route.open if found is not None]:
                self.seal(route, batch)
            route.topic_id = topic_id
            route.resize(partition_count)
        elif partition_count > route.partition_count:
            route.resize(partition_count)
