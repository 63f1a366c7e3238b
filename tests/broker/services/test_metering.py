"""Counts around methods: what a call costs, how it ended, what is told of a slow one."""

import asyncio

import pytest

from tests.broker.support.passing import passed, sized
from tidelog.broker.services.middleware.metering import LongCall, holding
from tidelog.broker.shared.meter import DURATION_BOUNDS_S, Histogram, Meter
from tidelog.ports import RequestContext, Stream, StreamMethod, UnaryMethod
from tidelog.wire.errors import ErrorCode, TidelogError

METHOD = "/tidelog.v1.ProduceService/Produce"
STREAM = "/tidelog.v1.ProduceService/ProduceStream"
REQUEST = sized(7)
MS = 1_000_000


class TurnedClock:
    """Time that a test turns."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 0

    def uptime_ns(self) -> int:
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS


class Told:
    """A slow-request log."""

    threshold_ns = 100 * MS

    def __init__(self) -> None:
        self.calls: list[LongCall] = []

    def tell(self, call: LongCall) -> bool:
        self.calls.append(call)
        return True


def _context() -> RequestContext:
    return RequestContext(
        principal="p", listener="client", client_id="c", address="a:1", deadline_ns=0
    )


class Metered:
    """One method that takes a while and ends as it is told."""

    def __init__(self, took_ms: int, ends: BaseException | None = None) -> None:
        self.clock, self.slow = TurnedClock(), Told()
        self.meter = Meter(("client",))
        self.took_ms, self.ends = took_ms, ends
        bare = {METHOD: UnaryMethod(self._handle)}
        method = passed(bare, self.clock, meter=self.meter, slow_log=self.slow)[METHOD]
        assert isinstance(method, UnaryMethod)
        self.call = method.handler

    async def _handle(self, context: RequestContext, message: bytes) -> bytes:
        figures = self.meter.listeners["client"].of(METHOD)
        assert figures.in_flight == 1
        assert self.meter.listeners["client"].connections == 1
        self.clock.now_ns += self.took_ms * MS
        if self.ends is not None:
            raise self.ends
        return b"answer"


def test_a_call_is_counted_with_its_code_duration_and_bytes() -> None:
    metered = Metered(3)
    asyncio.run(_run(metered))
    figures = metered.meter.listeners["client"].methods[METHOD]
    assert figures.codes == {"OK": 1}
    assert (figures.request_bytes, figures.response_bytes) == (7, 6)
    assert figures.durations.sum_ns == 3 * MS
    assert (figures.in_flight, metered.meter.listeners["client"].connections) == (0, 0)
    assert metered.slow.calls == []


async def _run(metered: Metered) -> None:
    await metered.call(_context(), REQUEST)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (TidelogError(ErrorCode.NOT_LEADER, tried="x", happened="y"), "NOT_LEADER"),
        (asyncio.CancelledError(), "CANCELLED"),
        (ValueError("bug"), "UNKNOWN"),
    ],
)
def test_a_call_that_fails_is_counted_under_how_it_failed(ends: BaseException, code: str) -> None:
    metered = Metered(1, ends)
    with pytest.raises(type(ends)):
        asyncio.run(_run(metered))
    figures = metered.meter.listeners["client"].methods[METHOD]
    assert figures.codes == {code: 1}
    assert figures.in_flight == 0


def test_a_call_above_the_threshold_is_told_with_what_it_waited_for() -> None:
    metered = Metered(150)
    asyncio.run(_run(metered))
    (told,) = metered.slow.calls
    assert (told.method, told.code, told.duration_ns) == (METHOD, "OK", 150 * MS)
    assert (told.request, told.request_bytes, told.response_bytes) == (REQUEST, 7, 6)
    assert metered.meter.listeners["client"].methods[METHOD].slow == 1


def test_what_a_quota_held_back_is_told_apart() -> None:
    clock, slow = TurnedClock(), Told()

    async def handle(context: RequestContext, message: bytes) -> bytes:
        with holding(clock):
            await clock.sleep(80)
        await clock.sleep(40)
        return b""

    method = passed({METHOD: UnaryMethod(handle)}, clock, slow_log=slow)[METHOD]
    assert isinstance(method, UnaryMethod)
    asyncio.run(_of(method))
    assert [(each.duration_ns, each.held_ns) for each in slow.calls] == [(120 * MS, 80 * MS)]


async def _of(method: UnaryMethod) -> None:
    await method.handler(_context(), b"")


class _Ends:
    """A stream of two messages."""

    def __init__(self) -> None:
        self.messages: list[bytes | None] = [sized(3), sized(5), None]
        self.sent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def receive(self) -> bytes | None:
        return self.messages.pop(0)

    def let_go(self) -> None: ...

    async def end_sending(self) -> None: ...

    def cancel(self) -> None: ...


def test_a_stream_counts_its_bytes_and_is_open_while_it_is() -> None:
    meter = Meter(("client",))
    figures = meter.listeners["client"].of(STREAM)

    async def handle(context: RequestContext, stream: Stream) -> None:
        assert figures.in_flight == 1
        while await stream.receive() is not None:
            await stream.send(b"xy")

    method = passed({STREAM: StreamMethod(handle)}, TurnedClock(), meter=meter)[STREAM]
    assert isinstance(method, StreamMethod)
    asyncio.run(_stream(method))
    assert (figures.request_bytes, figures.response_bytes, figures.in_flight) == (8, 4, 0)
    assert figures.codes == {}


async def _stream(method: StreamMethod) -> None:
    await method.handler(_context(), _Ends())


def test_a_duration_lies_in_the_bucket_whose_bound_it_reaches() -> None:
    histogram = Histogram()
    for duration_ns in (0, 500_000, 500_001, 31_000 * MS):
        histogram.add(duration_ns)
    cumulated = histogram.cumulated()
    assert cumulated[:2] == [("0.0005", 2), ("0.001", 3)]
    assert cumulated[-2:] == [("30.0", 3), ("+Inf", 4)]
    assert len(cumulated) == len(DURATION_BOUNDS_S) + 1
    assert histogram.count == 4
