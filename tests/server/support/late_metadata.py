"""A broker that takes metadata over late: of several images it gets the newest at once."""

import asyncio
from typing import cast

from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.replicas.replicas import Replicas
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.port import Metadata


class LateMetadata:
    """Stands between a broker's replicas and its metadata; `may_follow` lets them go on."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.may_follow = asyncio.Event()

    def image(self) -> Image:
        return self._metadata.image()

    async def wait_version(self, version: int) -> Image:
        await self.may_follow.wait()
        return await self._metadata.wait_version(version)


def hold(topic: ReplicatedTopic, number: int) -> LateMetadata:
    """From the next image but one on: for one it waits already."""
    replicas = replicas_of(topic, number)
    late = LateMetadata(replicas._metadata)
    replicas._metadata = cast("Metadata", late)
    return late


def replicas_of(topic: ReplicatedTopic, number: int) -> Replicas:
    """What the broker holds."""
    node = topic.cluster.nodes[number].node
    assert node is not None
    assert node._broker is not None
    return node._broker.replicas
