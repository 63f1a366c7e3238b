"""Asks the cluster for the producer's identity, and keeps it.

Owns when it is asked for: at the producer's first use, again after a failure that may pass, and
anew when an identity is given up. Every partition takes its epoch and its sequences from there on
by itself (`sequences`).
"""

import msgspec

from tidelog.client.engine.cluster.backoff import Backoff
from tidelog.wire.errors import TidelogError


class ProducerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """As a broker handed it out."""

    producer_id: int
    producer_epoch: int
    batches_in_flight_max: int
    """Of one partition: so many batches of this producer a partition remembers."""


class AllocateProducerId(msgspec.Struct, frozen=True, kw_only=True):
    """Ask any broker; answer with ProducerIdAllocated or ProducerIdFailed."""


class ProducerIdDesk:
    """One per producer."""

    def __init__(self, backoff: Backoff) -> None:
        self.identity: ProducerIdentity | None = None
        self.is_asking = False
        self.due_at_ns: int | None = None
        """When the next request is to go out; None: no need for one."""
        self.failures = 0
        self._backoff = backoff

    def want(self, now_ns: int) -> None:
        """Somebody cannot go on without an identity."""
        if self.identity is None and not self.is_asking and self.due_at_ns is None:
            self.due_at_ns = now_ns

    def tick(self, now_ns: int) -> list[AllocateProducerId]:
        """Ask if it is time and nobody is asking already."""
        if self.is_asking or self.due_at_ns is None or now_ns < self.due_at_ns:
            return []
        self.is_asking, self.due_at_ns = True, None
        return [AllocateProducerId()]

    def next_deadline_ns(self) -> int | None:
        """When `tick` has something to do; None while a request is under way."""
        return None if self.is_asking else self.due_at_ns

    def on_allocated(self, identity: ProducerIdentity) -> None:
        """A broker answered."""
        assert identity.producer_id >= 0, f"a producer id is not negative: {identity}"
        assert identity.producer_epoch >= 0, f"a producer epoch is not negative: {identity}"
        self.is_asking, self.failures = False, 0
        self.identity = identity

    def on_failed(self, error: TidelogError, now_ns: int) -> None:
        """Nobody could give one; asked again if that may help, else when somebody wants one."""
        self.is_asking = False
        self.failures += 1
        if error.retriable:
            self.due_at_ns = now_ns + self._backoff.delay_ns(self.failures)

    def give_up(self, producer_id: int) -> None:
        """This one can be used no more; the next who wants one gets another."""
        if self.identity is not None and self.identity.producer_id == producer_id:
            self.identity = None
