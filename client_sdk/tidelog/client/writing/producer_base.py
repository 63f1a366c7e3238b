"""What a producer is on either driver: its options, its accumulator, what it says when it cannot.

Owns the user's side as far as nobody waits in it. It must never know a thread or an event loop.
"""

import time
from collections.abc import Iterable
from functools import partial
from typing import Final, cast

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.kinds import INT64_MAX, whole
from tidelog.client.arguments.kinds import topic as checked_topic
from tidelog.client.arguments.options import ProducerArguments, ProducerOptions
from tidelog.client.arguments.records import SecondsWatch, accumulator_limits, checked_time
from tidelog.client.bulk.pieces import Chooser, Place
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.produce.accumulator import Accumulator, Route
from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.outcomes import so_far
from tidelog.client.engine.transaction.phases import MustAbort, New, Open, Phase, Undecided
from tidelog.client.engine.transaction.refusals import Refusals
from tidelog.client.shared.lifecycle import Client
from tidelog.client.tls.security import security_of
from tidelog.client.writing.producer_parts import LoopSettings, RequestMaker, loop_settings
from tidelog.client.writing.transaction_parts import (
    ENDING,
    Refusal,
    gate_of,
    no_transactional_id,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.partitioner import partition_for_key, partitions_for_keys

_PARTITION: Final = whole(-INT64_MAX, INT64_MAX, "a partition's number")
FLUSH_IN_HASTE_S: Final = 0.1
"""After Ctrl-C: a producer whose batches are not answered for so long is ended without them."""


class ProducerBase(Client):
    """A producer that nothing was sent by yet."""

    def __init__(self, name: str, arguments: ProducerArguments) -> None:
        options = client_options.build(ProducerOptions, name, arguments)
        self._security = security_of(name, options)
        self._bootstrap = client_options.bootstrap_addresses(name, options.bootstrap_servers)
        # Whatever is refused was refused before: the end of the process asks every client.
        super().__init__()
        self._name = name
        self._options = options
        self._metadata = MetadataCache()
        self._seconds_watch = SecondsWatch()
        self._accumulator = Accumulator(accumulator_limits(options), time.monotonic_ns)
        self._waits = 0
        """How often send() had to wait for room."""
        self._say = Refusals(options.transactional_id or "")
        self._phase: Phase = New()
        """What its transactions are at, as whoever runs the core told last."""
        self._ending: set[int] = set()
        """Calls under way behind which nothing is appended."""
        self._calls_made = 0
        # Of the instance: send() reads it for each record.
        self._gate: Refusal | None = None
        """Makes the error for a record that is appended now; None: it may be."""
        if options.transactional_id is not None:
            self._gate = gate_of(self._say, self._phase, None)

    def _loop_settings(self) -> LoopSettings:
        return loop_settings(self._name, self._options, self._bootstrap)

    def _usable_topic(self, topic: object) -> str:
        """The topic by its name, as long as the producer sends."""
        found: str = checked_topic(topic, f"call {self._name}.send()", "topic")
        self._check_sendable(f"produce to {found}")
        return found

    def _check_sendable(self, tried: str) -> None:
        """Refuses a record that belongs to no transaction, where each must."""
        self._check_usable(tried)
        if self._gate is not None:
            raise self._gate(tried)

    def _become_closed(self) -> None:
        super()._become_closed()
        self._gate = self._refusal

    def become_forked(self) -> None:
        """Called in a forked child before anything else runs there."""
        super().become_forked()
        self._gate = self._refusal

    # Transactions.

    def _check_transactional(self, tried: str) -> None:
        """Refuses a call of a plain producer, and one that would wait where nobody may."""
        self._check_usable(tried)
        self._check_may_wait(tried)
        if self._options.transactional_id is None:
            raise no_transactional_id(tried, self._name)

    def _check_may_wait(self, tried: str) -> None:
        """Refuses a call in a callback, where that would wait for itself."""

    @property
    def _is_new(self) -> bool:
        """Whether the transactional id was never taken over."""
        return isinstance(self._phase, New)

    @property
    def _is_open(self) -> bool:
        """Whether records and offsets may be added to a transaction."""
        return isinstance(self._phase, Open)

    @property
    def _is_undecided(self) -> bool:
        """Whether a commit was sent whose outcome nobody has told."""
        return isinstance(self._phase, Undecided)

    @property
    def _is_to_abort(self) -> bool:
        """Whether a producer that ends now leaves something that only its timeout would end."""
        return isinstance(self._phase, Open | MustAbort) and self._refusal is None

    def _follow(self, phase: Phase, trouble: TidelogError | None, done: int | None = None) -> None:
        """Whoever runs the core tells what the transactions are at; `done`: a call has ended."""
        self._phase = phase
        if done is not None:
            self._ending.discard(done)
        if self._refusal is None and self._options.transactional_id is not None:
            may_append = isinstance(phase, Open) and not self._ending
            self._gate = None if may_append else gate_of(self._say, phase, trouble)

    def _begin_call(self, *, is_last: bool) -> int:
        """The number of a call; what is appended behind one that ends a transaction is refused."""
        self._calls_made += 1
        if is_last and self._options.transactional_id is not None:
            self._ending.add(self._calls_made)
            if self._gate is None:
                self._gate = gate_of(self._say, ENDING, None)
            self._accumulator.seal_all()
        return self._calls_made

    def _limit_s(self, timeout: float | None) -> float:
        return self._options.max_block_ms / 1000 if timeout is None else timeout

    def _check_partition(self, route: Route, partition: int) -> int:
        tried = f"produce to {route.name}"
        if partition.__class__ is not int:
            partition = _PARTITION(partition, tried, "partition")
        if not 0 <= partition < route.partition_count:
            raise self._metadata.unknown_partition(route.name, partition, tried=tried)
        return partition

    def _time_of(self, topic: str, timestamp_ms: object) -> int:
        """A time that the caller gives, and that is not clearly one in milliseconds."""
        found = checked_time(topic, timestamp_ms)
        self._seconds_watch.look(topic, found)
        return found

    def _choose(self, route: Route, key: bytes | None) -> int:
        """As the user's partitioner wants."""
        partitioner = self._options.partitioner
        assert partitioner is not None, "there is no partitioner"
        every = list(range(route.partition_count))
        available = [
            partition
            for partition in every
            if self._metadata.leader(route.name, partition) is not None
        ]
        chosen = partitioner(key, every, available)
        check = whole(0, route.partition_count - 1, "a partition")
        found: int = check(chosen, f"produce to {route.name}", "what the partitioner chose")
        return found

    def _chooser(self, route: Route, partition: int | None, has_keys: bool) -> Chooser | None:
        """How the records of a bulk call are placed; None: all alike, where the caller says or
        wherever there is company."""
        if partition is not None:
            self._check_partition(route, partition)
            return None
        if self._options.partitioner is not None:
            return lambda keys: [self._choose(route, key) for key in keys]
        return partial(by_key, route) if has_keys else None

    def _blocked(self, topic: str, what: str, cause: TidelogError | None) -> TidelogError:
        reason = "" if cause is None else f": {cause.happened}"
        return TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED if cause is None else cause.code,
            tried=f"produce to {topic}",
            happened=f"{what} within max_block_ms={self._options.max_block_ms}{reason}",
            hint="" if cause is None else cause.hint,
        )

    def _full(self, topic: str, unfinished: Iterable[Batch]) -> TidelogError:
        """There was no room in time, perhaps because of what hinders the oldest batches."""
        happened = f"buffer_memory={self._options.buffer_memory} stayed full{known_of(unfinished)}"
        return self._blocked(topic, happened, None)

    def _unknown(self, topic: str, cause: TidelogError | None) -> TidelogError:
        """The topic did not become known in time."""
        return self._blocked(topic, "the topic's metadata did not come", cause)

    def _metrics_of(
        self, unfinished_count: int, requests: RequestMaker | None, requests_sent: int
    ) -> dict[str, float]:
        return {
            "batches_opened": self._accumulator.opened_count,
            "batches_open": len(self._accumulator.open),
            "batches_unfinished": unfinished_count,
            "buffer_reserved_bytes": self._accumulator.reserved_bytes,
            "records_sent": 0 if requests is None else requests.records_sent,
            "bytes_sent": 0 if requests is None else requests.bytes_sent,
            "requests_sent": requests_sent,
            "waits_for_room": self._waits,
        }


def by_key(route: Route, keys: list[bytes | None]) -> list[Place]:
    """Of each key, as send() places it."""
    count = route.partition_count
    if None not in keys:
        return list[Place](partitions_for_keys(cast("list[bytes]", keys), count))
    return [None if key is None else partition_for_key(key, count) for key in keys]


def known_of(unfinished: Iterable[Batch]) -> str:
    """What hinders the oldest batch that is hindered."""
    hindered = next((batch for batch in unfinished if batch.last_error is not None), None)
    return "" if hindered is None else so_far(hindered, time.monotonic_ns())


def flush_timed_out(timeout: float | None, unfinished: Iterable[Batch]) -> TidelogError:
    """For flush()."""
    known = known_of(unfinished)
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried="flush",
        happened=f"records were still on their way after timeout={timeout} s{known}",
    )


def closed_before_sent(close_name: str) -> TidelogError:
    """For what a producer that ends does not wait for."""
    return TidelogError(
        ErrorCode.CLOSED,
        tried="produce",
        happened="the producer was closed before the record was sent",
        hint=f"call flush() first, or {close_name}() with a longer timeout",
    )
