"""Finds coordinators, and has their topic made when somebody asks for the first time.

Owns that one creation is under way at a time, whoever waits for it. It must never ask for fewer
replicas than were decided when the cluster was formatted: with too few living brokers there is no
coordinator, and the answer says which are missing. Not on a record's walk.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.broker.coordination.places import CoordinatedKind, Place
from tidelog.broker.replicas.replicas import Replicas
from tidelog.metadata.internal_topics import shortage_of
from tidelog.metadata.new_topic import NewTopic
from tidelog.metadata_quorum.port import Metadata
from tidelog.metadata_quorum.shared.forwarding import left_ms
from tidelog.ports import Clock, RequestContext
from tidelog.ports.request_context import CLUSTER_LISTENER
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId
from tidelog.wire.refusals import invalid

KEYS_MAX: Final = 1_000
RETRY_AFTER_MS: Final = 500
"""After so long a client that found no coordinator asks again."""
CREATION_MS: Final = 10_000
"""How long a creation of the topic may take."""
_TRIED: Final = "find coordinators"
_NS_PER_MS: Final = 1_000_000


class NameCheck(Protocol):
    """Whether something is a name of the kind."""

    def __call__(self, name: str, /, *, tried: str) -> object:
        """INVALID_ARGUMENT, or a like code, if it is none."""
        ...


class CoordinatorFinder:
    """Of one kind. Answers from the local image."""

    def __init__(
        self,
        kind: CoordinatedKind,
        check_name: NameCheck,
        metadata: Metadata,
        replicas: Replicas,
        clock: Clock,
        *,
        broker_id: BrokerId,
    ) -> None:
        self._kind = kind
        self._check_name = check_name
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._broker_id = broker_id
        self._creating = asyncio.Lock()

    async def find(
        self, context: RequestContext, names: Sequence[str]
    ) -> list[Place | TidelogError]:
        """Where the coordinator of each name is, in their order."""
        if not 1 <= len(names) <= KEYS_MAX:
            raise invalid(_TRIED, f"the request has {len(names)} keys, not 1 to {KEYS_MAX}")
        for name in names:
            self._check_name(name, tried=_TRIED)
        self._kind.check_on(self._metadata.image(), tried=_TRIED)
        failure = await self._topic_made(context)
        image = self._metadata.image()
        await self._replicas.wait_applied(image.version)
        found: list[Place | TidelogError] = []
        for name in names:
            try:
                if failure is not None:
                    raise self._kind.not_available(name, failure)
                found.append(self._kind.place_of(name, image, context.listener))
            except TidelogError as error:
                found.append(error)
        return found

    async def _topic_made(self, context: RequestContext) -> str | None:
        """Have the topic made if it is not there; why it could not be."""
        if self._kind.topic_in(self._metadata.image()) is not None:
            return None
        wait_ms = min(left_ms(context, self._clock), CREATION_MS)
        try:
            async with asyncio.timeout(wait_ms / 1000), self._creating:
                return await self._make_topic(wait_ms)
        except TimeoutError:
            return f"topic {self._kind.topic_name} was not made within {wait_ms} ms"

    async def _make_topic(self, wait_ms: int) -> str | None:
        image = self._metadata.image()
        if self._kind.topic_in(image) is not None:
            return None
        if shortage_of(image) is not None:
            return self._kind.why_no_topic(image)
        name = self._kind.topic_name
        try:
            (made,) = await self._metadata.create_topics(
                self._own_context(wait_ms), [NewTopic(name=name)], timeout_ms=wait_ms
            )
        except TidelogError as error:
            return f"topic {name} cannot be made: {error.happened}"
        if isinstance(made, TidelogError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return f"topic {name} cannot be made: {made.happened}"
        return None

    def _own_context(self, wait_ms: int) -> RequestContext:
        """The broker asks in its own name: who looks a coordinator up makes no topic."""
        return RequestContext(
            principal=f"broker-{self._broker_id}",
            listener=CLUSTER_LISTENER,
            client_id=f"broker-{self._broker_id}",
            address="",
            deadline_ns=self._clock.monotonic_ns() + wait_ms * _NS_PER_MS,
        )
