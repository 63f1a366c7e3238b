"""Bugs of the SDK, for the suite of clients: somebody waits for what will never come."""

from typing import Final

from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.client.engine.cluster.tries import Tries
from tidelog.client.engine.fetch.consumer import ConsumerCore
from tidelog.client.engine.fetch.messages import StreamBroken
from tidelog.client.engine.fetch.partition import PartitionState
from tidelog.client.engine.fetch.read_watch import ReadWatch
from tidelog.client.engine.fetch.recovery import Recovery
from tidelog.client.engine.group.coordinator import CoordinatorDesk
from tidelog.client.engine.produce.messages import ConnectFailed
from tidelog.client.engine.produce.outcomes import STALE_METADATA
from tidelog.client.engine.produce.producer import ProducerCore
from tidelog.wire.errors import ErrorCode, TidelogError

NEVER_NS: Final = 1 << 62


class _Deaf:
    """A desk of topics that refreshes nothing."""

    def refresh(self, now_ns: int) -> None:
        """Nothing."""


def refresh_for_stale_metadata_only() -> Substitution:
    """A leader that is dead is asked for ever: only one that says so leads no more."""
    original = Recovery.on_error

    def on_error(self: Recovery, state: PartitionState, error: TidelogError, now_ns: int) -> None:
        topics = self._topics
        if error.code not in STALE_METADATA:
            self._topics = _Deaf()  # type: ignore[assignment]
        original(self, state, error, now_ns)
        self._topics = topics

    return Substitution(Recovery, "on_error", on_error)


def forget_a_coordinator_look_up() -> Substitution:
    """A coordinator that was lost is not looked up again."""
    original = CoordinatorDesk._wait

    def wait(self: CoordinatorDesk, error: TidelogError, now_ns: int) -> None:
        original(self, error, now_ns)
        self.retry_at_ns = NEVER_NS

    return Substitution(CoordinatorDesk, "_wait", wait)


def stay_with_a_dead_coordinator() -> Substitution:
    """Only one that says that it is not the coordinator is looked for elsewhere."""
    original = CoordinatorDesk.forget

    def forget(self: CoordinatorDesk, address: str, error: TidelogError, now_ns: int) -> None:
        if error.code is ErrorCode.NOT_COORDINATOR:
            original(self, address, error, now_ns)

    return Substitution(CoordinatorDesk, "forget", forget)


def drop_a_reconnect() -> Substitution:
    """A consumer whose stream broke opens none to that broker again."""
    original = ConsumerCore._on_stream_broken

    def on_broken(self: ConsumerCore, message: StreamBroken, now_ns: int) -> None:
        original(self, message, now_ns)
        self.links[message.broker_id].retry_at_ns = NEVER_NS

    return Substitution(ConsumerCore, "_on_stream_broken", on_broken)


def drop_a_producers_reconnect() -> Substitution:
    """A producer that could not reach a broker goes on as if it still might."""

    def on_failed(self: ProducerCore, message: ConnectFailed, now_ns: int) -> None:
        del self, message, now_ns

    return Substitution(ProducerCore, "_on_connect_failed", on_failed)


def give_up_at_the_first_failure() -> Substitution:
    """A call is not tried again."""

    def fail(self: Tries, error: TidelogError, now_ns: int) -> int | TidelogError:
        del self, now_ns
        return error

    return Substitution(Tries, "fail", fail)


def wait_without_a_word() -> Substitution:
    """A consumer that reads nothing says nothing."""

    def tick(self: ReadWatch, partitions: object, now_ns: int) -> list[object]:
        del self, partitions, now_ns
        return []

    return Substitution(ReadWatch, "tick", tick)


_STUCK: Final = frozenset({"stuck"})

PLANTED: Final = {
    "refresh_for_stale_metadata_only": Plant(make=refresh_for_stale_metadata_only, expected=_STUCK),
    "forget_a_coordinator_look_up": Plant(make=forget_a_coordinator_look_up, expected=_STUCK),
    "stay_with_a_dead_coordinator": Plant(make=stay_with_a_dead_coordinator, expected=_STUCK),
    "drop_a_reconnect": Plant(make=drop_a_reconnect, expected=_STUCK),
    "drop_a_producers_reconnect": Plant(make=drop_a_producers_reconnect, expected=_STUCK),
    "give_up_at_the_first_failure": Plant(
        make=give_up_at_the_first_failure, expected=frozenset({"surfaced"})
    ),
    "wait_without_a_word": Plant(make=wait_without_a_word, expected=frozenset({"silent"})),
}
