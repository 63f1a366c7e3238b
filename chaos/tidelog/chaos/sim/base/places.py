"""The ends of connections: processes as the network sees them, what listens, who calls."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from tidelog.ports.network import Listener, Method


class Place(Protocol):
    """A process, as the network sees it."""

    name: str
    is_dead: bool

    @property
    def is_machine_down(self) -> bool:
        """Whether even the operating system is silent."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as part of the process."""
        ...


class Endpoint:
    """Something that listens."""

    def __init__(
        self, place: Place, address: str, listener: Listener, methods: dict[str, Method]
    ) -> None:
        self.place = place
        self.address = address
        self.listener = listener
        self.methods = methods


class Caller:
    """Where calls come from: one Network port."""

    def __init__(self, place: Place, address: str, client_id: str) -> None:
        self.place = place
        self.address = address
        self.client_id = client_id
