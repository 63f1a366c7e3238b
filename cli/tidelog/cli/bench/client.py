"""One client of a measurement, a process of its own: `python -m tidelog.cli.bench.client`.

Reads its Load as a line of JSON, says `ready` once it is connected, begins at the next line, and
prints what it did. Owns the loops, which are those that a user would write, and what is timed. A
record is timed from when it was due, not from when there was time to send it: a stall does not
hide those behind it.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.cli.bench.load import Done, Load
from tidelog.cli.frame import interrupt
from tidelog.cli.show.tally import SentSingly, Tally
from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

CHUNK_RECORDS: Final = 1_000
CHUNK_BYTES: Final = 1_000_000
"""At full speed the first record of a chunk is timed: timing costs more than sending."""
SAMPLES_MAX: Final = 1_000_000
POLL_MS: Final = 500
FLUSH_SECONDS_MAX: Final = 60.0
STALL_SECONDS_MAX: Final = 30.0
TIME_BYTES: Final = 8

Begin = Callable[[], float]
"""Waits for the word to begin; when that was."""


class Samples:
    """Milliseconds; as many as fit."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.failure: TidelogError | None = None

    def add(self, since: float) -> None:
        """Something that was due at `since` is done now."""
        if len(self.milliseconds) < SAMPLES_MAX:
            self.milliseconds.append((time.perf_counter() - since) * 1000)

    def on_stored(self, since: float, _metadata: object) -> None:
        """As a callback of send()."""
        self.add(since)

    def on_failed(self, error: TidelogError) -> None:
        """The first failure is told."""
        if self.failure is None:
            self.failure = error


def produce(load: Load, begin: Begin) -> Done:
    """Send; done when all is acknowledged."""
    samples = Samples()
    with Producer(**load.producer) as producer:
        producer.partitions_for(load.topic)
        started = begin()
        if load.rate_per_second is None:
            records = _at_full_speed(load, producer, samples, started)
        else:
            records = _at_rate(load, producer, samples, started)
        seconds = time.perf_counter() - started
    if samples.failure is not None:
        raise samples.failure
    return Done(records=records, seconds=seconds, samples_ms=samples.milliseconds)


def _at_full_speed(load: Load, producer: Producer, samples: Samples, started: float) -> int:
    value = payload(load.record_bytes)
    topic, send = load.topic, producer.send
    chunk = min(CHUNK_RECORDS, max(1, CHUNK_BYTES // load.record_bytes))
    limit = load.records if load.records is not None else sys.maxsize
    deadline = started + load.seconds
    tally = Tally()
    while tally.sent < limit and tally.first_error is None and time.perf_counter() < deadline:
        now = time.perf_counter()
        futures = [send(topic, value) for _ in range(min(chunk, limit - tally.sent))]
        futures[0].add_callback(samples.on_stored, now)
        tally.add(SentSingly(futures))
        tally.settle()
    producer.flush(FLUSH_SECONDS_MAX)
    tally.settle_all()
    if tally.first_error is not None:
        raise tally.first_error
    return tally.stored


def _at_rate(load: Load, producer: Producer, samples: Samples, started: float) -> int:
    assert load.rate_per_second is not None, "a rate is given"
    value, sent = payload(load.record_bytes), 0
    while samples.failure is None:
        due = started + sent / load.rate_per_second
        if due >= started + load.seconds or sent == load.records:
            break
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        future = producer.send(load.topic, value)
        future.add_callback(samples.on_stored, due).add_errback(samples.on_failed)
        sent += 1
    producer.flush(FLUSH_SECONDS_MAX)
    return sent


def consume(load: Load, begin: Begin) -> Done:
    """Read what is there, record by record, until the end or the bound."""
    samples, read = Samples(), 0
    with Consumer(**load.consumer) as consumer:
        names = [TopicPartition(load.topic, number) for number in load.partitions]
        consumer.assign(names)
        left = sum(consumer.end_offsets(names).values())
        left -= sum(consumer.beginning_offsets(names).values())
        consumer.seek_to_beginning()
        limit = left if load.records is None else min(load.records, left)
        started = begin()
        deadline, heard = started + load.seconds, started
        while read < limit and (now := time.perf_counter()) < deadline:
            count = sum(map(len, consumer.poll(POLL_MS).values()))
            if count:
                samples.add(now)
                read, heard = read + count, now
            elif now - heard > STALL_SECONDS_MAX:
                raise _stalled("read to the end")
        seconds = time.perf_counter() - started
    return Done(records=read, seconds=seconds, samples_ms=samples.milliseconds)


def end_to_end(load: Load, begin: Begin) -> Done:
    """Send at a steady rate, and read: from when a record was due until it is in the hand."""
    assert load.rate_per_second is not None, "a rate is given"
    names = [TopicPartition(load.topic, number) for number in load.partitions]
    with Producer(**load.producer) as producer, Consumer(**load.consumer) as consumer:
        consumer.assign(names)
        consumer.seek_to_end()
        for name in names:
            consumer.position(name)
        producer.partitions_for(load.topic)
        return _Echo(load, producer, consumer, begin()).run()


class _Echo:
    """Sends what is due, reads what came, in one thread: both ends have one clock."""

    def __init__(self, load: Load, producer: Producer, consumer: Consumer, started: float) -> None:
        self._load = load
        self._producer = producer
        self._consumer = consumer
        self._started = started
        self._rest = payload(load.record_bytes)[TIME_BYTES:]
        self._samples = Samples()
        self._sent = self._read = 0

    def run(self) -> Done:
        """Until all that was sent is read."""
        heard = time.perf_counter()
        while (wait := self._send_due()) is not None or self._read < self._sent:
            if self._samples.failure is not None:
                raise self._samples.failure
            wait_ms = POLL_MS if wait is None else wait * 1000
            if self._take(wait_ms):
                heard = time.perf_counter()
            elif time.perf_counter() - heard > STALL_SECONDS_MAX:
                raise _stalled("read what was sent")
        return Done(
            records=self._read,
            seconds=time.perf_counter() - self._started,
            samples_ms=self._samples.milliseconds,
        )

    def _send_due(self) -> float | None:
        """Seconds until the next one is due; None: there is no next one."""
        load = self._load
        assert load.rate_per_second is not None, "a rate is given"
        while True:
            after = self._sent / load.rate_per_second
            if after >= load.seconds or self._sent == load.records:
                return None
            due = self._started + after
            if (left := due - time.perf_counter()) > 0:
                return left
            value = int(due * 1e9).to_bytes(TIME_BYTES, "big") + self._rest
            partition = load.partitions[self._sent % len(load.partitions)]
            future = self._producer.send(load.topic, value, partition=partition)
            future.add_errback(self._samples.on_failed)
            self._sent += 1

    def _take(self, timeout_ms: float) -> int:
        count = 0
        for records in self._consumer.poll(timeout_ms).values():
            for record in records:
                self._samples.add(int.from_bytes(record.value[:TIME_BYTES], "big") / 1e9)
            count += len(records)
        self._read += count
        return count


def payload(length_bytes: int) -> bytes:
    """Half of it compresses, as text does; the same in each run."""
    state, out = 1, bytearray()
    while len(out) < length_bytes:
        state = state * 6364136223846793005 + 1442695040888963407 & (2**64 - 1)
        out += state.to_bytes(8, "big") + b"tidelog "
    return bytes(out[:length_bytes])


def _stalled(tried: str) -> TidelogError:
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=tried,
        happened=f"nothing came for {STALL_SECONDS_MAX:.0f} s",
        hint="look whether the leaders run: tidelog topic describe",
    )


LOOPS: Final = {"produce": produce, "consume": consume, "end-to-end": end_to_end}


def _begin() -> float:
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter()


def main() -> None:
    """One Load in, one Done out."""
    interrupt.install()
    load = msgspec.json.decode(sys.stdin.readline(), type=Load)
    try:
        done = LOOPS[load.kind](load, _begin)
    except TidelogError as error:
        told = (f"{error.tried} [{error.code.name}]", error.happened, error.hint)
        done = Done(records=0, seconds=0, samples_ms=[], failure=told)
    sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
