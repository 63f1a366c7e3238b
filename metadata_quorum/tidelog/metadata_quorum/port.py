"""What the rest of a node may ask of metadata, whoever keeps it.

Behind it stand the node's own copy of the metadata and the way to the active controller:

 1. `image()` is local, never waits, and never goes back to a lower version.
 2. A write returns after its records are committed and visible in this node's `image()`; before
    that nobody on this node sees them.
 3. A write that raises NOT_CONTROLLER or UNAVAILABLE changed nothing. One that raises
    DEADLINE_EXCEEDED or INDETERMINATE may still take effect.
 4. A write that a caller gave up on (cancellation) goes on; its outcome shows in the image.
 5. Refusals of single topics are values, because a request may fail in part.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata.new_topic import NewTopic
from tidelog.ports import RequestContext
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId, LogIndex, TopicId


class CreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was created, or with `validate_only` would be."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    version: int
    """The image's version in which it is there; 0 with `validate_only`."""


class ImageSource(Protocol):
    """A copy of the metadata on this node: its own voter's state machine, or an observer's."""

    def image(self) -> Image:
        """The newest image that this node knows."""
        ...

    async def wait_version(self, version: int) -> Image:
        """The first image of at least this version that this node has."""
        ...


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrative call came to, at the controller and at the broker that forwarded."""

    response: bytes
    applied_index: LogIndex
    """The response is true of the image of this version; 0: of none. The broker that forwarded the
    call has that image by the time it answers its client."""


class Metadata(ImageSource, Protocol):
    """The cluster's metadata as one node sees it."""

    def controller_id(self) -> BrokerId | None:
        """The active controller; None while none is known."""
        ...

    def without_controller_ms(self) -> int:
        """For how long no active controller has been known here; 0: one is."""
        ...

    async def create_topics(
        self, context: RequestContext, topics: Sequence[NewTopic], *, timeout_ms: int
    ) -> list[CreatedTopic | TidelogError]:
        """Make sure that they are there, each on its own, on behalf of the caller.

        One that exists is refused as such, also if this very call made it and asked again.
        """
        ...

    async def forward(
        self, context: RequestContext, method: str, request: bytes, *, timeout_ms: int
    ) -> Executed:
        """Hand a client's call on to the active controller, with who asked and how long there is.

        INDETERMINATE if the outcome is unknown and asking again would not be safe.
        """
        ...
