"""Methods behind the middleware of a node, with only the parts that a test looks at."""

from collections.abc import Mapping

from tidelog.broker.services.middleware.metering import Metering, SlowLog
from tidelog.broker.services.middleware.middleware import Middleware, Served
from tidelog.broker.services.middleware.node_callers import NodeCallers
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.services.middleware.quotas import Throttle
from tidelog.broker.shared.meter import Meter
from tidelog.ports import AllowAll, Clock, Method
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER


class StillClock:
    """Time that does not pass."""

    def monotonic_ns(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0

    def uptime_ns(self) -> int:
        return 0

    async def sleep(self, duration_ms: int) -> None:
        raise AssertionError(f"nobody waits {duration_ms} ms")


def passed(
    methods: Mapping[str, Method],
    clock: Clock | None = None,
    *,
    listener: str = CLIENT_LISTENER,
    meter: Meter | None = None,
    slow_log: SlowLog | None = None,
    quotas: Quotas | None = None,
    callers: NodeCallers | None = None,
) -> dict[str, Method]:
    """The same methods, as a listener serves them that is ready."""
    clock = clock or StillClock()
    metering = Metering(meter or Meter((CLIENT_LISTENER, CLUSTER_LISTENER)), clock, slow_log)
    middleware = Middleware(
        listener,
        AllowAll(),
        metering,
        throttle=None if quotas is None else Throttle(quotas, clock),
        callers=callers,
    )
    return middleware.around(Served(methods=methods, is_ready=lambda: True))


def sized(size: int) -> bytes:
    """A message of so many bytes that fits every method: one field that none of them knows."""
    assert size >= 2, "the smallest field has two bytes"
    for length_bytes in range(1, 5):
        left = size - 1 - length_bytes
        if 0 <= left < 128**length_bytes:
            digits = [left >> 7 * place & 0x7F for place in range(length_bytes)]
            length = bytes([*(0x80 | each for each in digits[:-1]), digits[-1]])
            return b"\x7a" + length + bytes(left)
    raise AssertionError(f"no message has {size} bytes")
