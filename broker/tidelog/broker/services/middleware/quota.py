"""Quotas by client id: token buckets that tell how long a client is ahead of its rate.

Pure: time comes in as nanoseconds, the rates with the image of the metadata. Theory of operation:
a bucket holds one second of its rate and fills at the rate. What a client does is taken out of it
once it is done, also below zero; the debt divided by the rate is how long the client should wait.
A well-behaved client is told (`throttle_ms`) and waits, and its next request meets no debt; the
next request of any other is held back here until the debt is paid. No debt is longer than
`DELAY_MS_MAX`, so that one large request against a small quota holds nobody for hours.

Counted on each broker, for each client id by itself, also under the quota of all without their own.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.metadata.image.image import Image, QuotaImage

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000

BURST_MS: Final = 1_000
"""What an idle client may do at once: so much of its rate."""
DELAY_MS_MAX: Final = 30_000
CLIENTS_MAX: Final = 10_000
"""Client ids that are remembered; the one that was quiet for longest is forgotten, debt and all."""
DELAYED_CALLS_MAX: Final = 64
"""Calls of one client id that may wait at a time: each holds its request in memory. One more is
refused RESOURCE_EXHAUSTED."""
DELAYED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Their requests together, but for one that is alone: few clients must not use up the memory of
all."""
LOOK_MS: Final = 1_000
"""Who waits looks so often whether the quota is there still."""


class TokenBucket:
    """One rate of one client."""

    def __init__(self, per_second: int, now_ns: int) -> None:
        assert per_second >= 1, "a rate of nothing would never be paid"
        self._per_second = per_second
        self._level_ns = BURST_MS * NS_PER_MS
        """In time at the rate: neither rounding nor the rate's size makes it drift."""
        self._at_ns = now_ns

    def take(self, amount: int, now_ns: int) -> None:
        """Count what was done."""
        assert amount >= 0, "nothing is given back"
        self._fill(now_ns)
        cost_ns = amount * NS_PER_S // self._per_second
        self._level_ns = max(self._level_ns - cost_ns, -DELAY_MS_MAX * NS_PER_MS)

    def debt_ns(self, now_ns: int) -> int:
        """How long until the bucket is level again."""
        self._fill(now_ns)
        return max(0, -self._level_ns)

    def set_rate(self, per_second: int) -> None:
        """From now on; what is owed is owed in time, and stays."""
        assert per_second >= 1, "a rate of nothing would never be paid"
        self._per_second = per_second

    def _fill(self, now_ns: int) -> None:
        passed_ns = max(0, now_ns - self._at_ns)
        self._level_ns = min(self._level_ns + passed_ns, BURST_MS * NS_PER_MS)
        self._at_ns = max(self._at_ns, now_ns)


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one request or answer costs."""

    requests: int = 0
    produce_bytes: int = 0
    fetch_bytes: int = 0


class ClientQuota:
    """The buckets of one client id; None: no limit."""

    def __init__(self) -> None:
        self._quota = QuotaImage()
        self._buckets: list[TokenBucket | None] = [None, None, None]
        self.delayed_calls = 0
        self.delayed_bytes = 0

    def follow(self, quota: QuotaImage, now_ns: int) -> None:
        """Take over the limits of the image."""
        if quota is self._quota:
            return
        self._quota = quota
        rates = (
            quota.requests_per_second,
            quota.produce_bytes_per_second,
            quota.fetch_bytes_per_second,
        )
        for place, rate in enumerate(rates):
            bucket = self._buckets[place]
            if rate is None:
                self._buckets[place] = None
            elif bucket is None:
                self._buckets[place] = TokenBucket(rate, now_ns)
            else:
                bucket.set_rate(rate)

    def take(self, use: Use, now_ns: int) -> None:
        """Count what was done."""
        amounts = (use.requests, use.produce_bytes, use.fetch_bytes)
        for bucket, amount in zip(self._buckets, amounts, strict=True):
            if bucket is not None and amount:
                bucket.take(amount, now_ns)

    def debt_ms(self, now_ns: int) -> int:
        """How long the client should wait, by its slowest bucket; rounded up."""
        debts = [each.debt_ns(now_ns) for each in self._buckets if each is not None]
        return -(-max(debts, default=0) // NS_PER_MS)


class Quotas:
    """Of all clients of a broker."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image
        self._clients: OrderedDict[str, ClientQuota] = OrderedDict()
        self.delayed_count = 0
        """Requests that were held back, since the start."""
        self.refused_count = 0

    def of(self, client_id: str, now_ns: int) -> ClientQuota | None:
        """The client's buckets; None: nothing limits it."""
        quotas = self._image().quotas
        if not quotas:
            return None
        found = quotas.get(client_id)
        if found is None:
            found = quotas.get("")
        if found is None:
            return None
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = ClientQuota()
            if len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(client_id)
        client.follow(found, now_ns)
        return client

    def debt_ms(self, client_id: str, now_ns: int) -> int:
        """How long the client should wait; 0 as well if nothing limits it, or no longer."""
        client = self.of(client_id, now_ns)
        return 0 if client is None else client.debt_ms(now_ns)
