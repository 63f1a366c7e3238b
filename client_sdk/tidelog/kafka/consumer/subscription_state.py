"""What a script is told when its group moves partitions.

Owns kafka-python's base classes of listeners, and how a coroutine of one is run: to its end, on the
thread that polls.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.client import TopicPartition

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]

Partitions = set[TopicPartition]


class ConsumerRebalanceListener(ABC):
    """Called inside poll() and iteration."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Partitions) -> None:
        """These go to another member: the last chance to commit."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Partitions) -> None:
        """These came; nothing of them was delivered yet."""

    def on_partitions_lost(self, lost: Partitions) -> None:
        """These are somebody else's already: nothing can be committed."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """The same with coroutines."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        """These go to another member: the last chance to commit."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        """These came; nothing of them was delivered yet."""

    async def on_partitions_lost(self, lost: Partitions) -> None:
        """These are somebody else's already: nothing can be committed."""
        await self.on_partitions_revoked(lost)


class AwaitingListener:
    """An asynchronous listener as the client calls one."""

    def __init__(self, listener: AsyncConsumerRebalanceListener) -> None:
        self._listener = listener

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Until it has ended."""
        _run(self._listener.on_partitions_revoked, revoked)

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        """Until it has ended."""
        _run(self._listener.on_partitions_assigned, assigned)

    def on_partitions_lost(self, lost: Partitions) -> None:
        """Until it has ended."""
        _run(self._listener.on_partitions_lost, lost)


def checked_listener(listener: Any) -> Any:
    """As the client takes it; TypeError for anything but a listener."""
    if isinstance(listener, AsyncConsumerRebalanceListener):
        return AwaitingListener(listener)
    if listener is None or isinstance(listener, ConsumerRebalanceListener):
        return listener
    raise TypeError(
        "listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener"
    )


def _run(call: Callable[[Partitions], Awaitable[None]], partitions: Partitions) -> None:
    async def work() -> None:
        await call(partitions)

    asyncio.run(work())
