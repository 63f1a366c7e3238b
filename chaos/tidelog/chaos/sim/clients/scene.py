"""What one call of a client is, for the net: how its client is made, what is called, what is right.

Owns the shape of a scene and what it knows of its surroundings. A scene must never look at the
cluster but through its client.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from tidelog.client import TopicPartition
from tidelog.client.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer

TOPIC: Final = "t"
T0: Final = TopicPartition(TOPIC, 0)


def group_of(playing: int) -> str:
    """The group of one playing of a scene."""
    return f"group-{playing}"


def transactional_id_of(playing: int) -> str:
    """The transactional id of one playing of a scene."""
    return f"transactional-{playing}"


class Stage(msgspec.Struct, kw_only=True):
    """Of one playing of a scene."""

    number: int
    """Of the playing: names that have it are nobody else's."""
    bootstrap: list[str]
    values: list[str]
    """What the topic holds, in order, when the playing begins; grows with `write`."""
    write: Callable[[], str]
    """Has a client that stands apart from the scene's send one more; the value."""
    sent: list[str] = msgspec.field(default_factory=list)
    """What the scene itself was promised to be stored."""

    @property
    def group(self) -> str:
        """A group of its own."""
        return group_of(self.number)

    @property
    def new_topic(self) -> str:
        """A topic of its own."""
        return f"topic-{self.number}"

    def consumer(self, *topics: str, group: bool = False) -> AsyncConsumer:
        """From the first record on."""
        group_id = self.group if group else None
        return AsyncConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def producer(self) -> AsyncProducer:
        """With everything as it is by default."""
        return AsyncProducer(bootstrap_servers=self.bootstrap)

    @property
    def transactional_id(self) -> str:
        """An id of its own."""
        return transactional_id_of(self.number)

    def transactional_producer(self) -> AsyncProducer:
        """With everything else as it is by default."""
        return AsyncProducer(
            bootstrap_servers=self.bootstrap, transactional_id=self.transactional_id
        )

    def admin(self) -> AsyncAdminClient:
        """With everything as it is by default."""
        return AsyncAdminClient(bootstrap_servers=self.bootstrap)


Work = Callable[[Stage, Any], Awaitable[object]]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    name: str
    make: Callable[[Stage], Any]
    act: Work
    """The call; its result is compared."""
    expected: Callable[[Stage], object] = lambda _: None
    """What is right; `ANYTHING`: whatever is returned."""
    prepare: Work | None = None
    """What has to be there, made by an administrator of its own before anything goes wrong."""
    warm: Work | None = None
    """How the client is used before; None: by reaching the cluster."""
    only_warm: bool = False
    """Without what is done before there is no such call."""
    may_be_doubtful: bool = False
    """A call that changes something and cannot be repeated: it may end by saying so."""


ANYTHING: Final = object()
