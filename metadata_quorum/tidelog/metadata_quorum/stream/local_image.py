"""This node's copy of the metadata, and who waits for a version of it.

The state machine shows each image here as it becomes visible; nobody else writes.
"""

import asyncio

from tidelog.metadata.image.image import Image


class LocalImage:
    """`ImageSource`; `show` is what a `MetadataStateMachine` calls."""

    def __init__(self) -> None:
        self._image = Image()
        self._waiters: list[tuple[int, asyncio.Future[Image]]] = []

    def image(self) -> Image:
        """See `ImageSource`."""
        return self._image

    async def wait_version(self, version: int) -> Image:
        """See `ImageSource`."""
        if self._image.version >= version:
            return self._image
        waiter: asyncio.Future[Image] = asyncio.get_running_loop().create_future()
        self._waiters.append((version, waiter))
        return await waiter

    def show(self, image: Image) -> None:
        """A newer image is visible."""
        assert image.version >= self._image.version, "an image never goes back"
        self._image = image
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if waiter.done():
                continue
            if version <= image.version:
                waiter.set_result(image)
            else:
                self._waiters.append((version, waiter))
