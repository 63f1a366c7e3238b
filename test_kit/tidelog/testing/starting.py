"""`start_cluster`: one name for both forms of a test, `with` and `async with`."""

from types import TracebackType

from tidelog.testing.aio import AsyncTestCluster
from tidelog.testing.base import Settings
from tidelog.testing.cluster import TestCluster


class ClusterStart:
    """A cluster that is started where it is entered; each entering starts another one."""

    def __init__(self, brokers: int, settings: Settings | None) -> None:
        self._brokers = brokers
        self._settings = settings
        self._entered: list[TestCluster] = []
        self._entered_async: list[AsyncTestCluster] = []

    def __enter__(self) -> TestCluster:
        cluster = TestCluster(self._brokers, self._settings)
        cluster.start()
        self._entered.append(cluster)
        return cluster

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.pop().close()

    async def __aenter__(self) -> AsyncTestCluster:
        cluster = AsyncTestCluster(self._brokers, self._settings)
        await cluster.start()
        self._entered_async.append(cluster)
        return cluster

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entered_async.pop().close()


def start_cluster(brokers: int = 1, settings: Settings | None = None) -> ClusterStart:
    """`with start_cluster(brokers=3) as cluster:`, or `async with` in a coroutine."""
    return ClusterStart(brokers, settings)
