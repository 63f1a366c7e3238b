"""Fixtures for pytest: a real cluster for the session, a topic, a producer, a consumer for a test.

Loaded by every pytest that finds Tidelog installed, so it imports nothing of Tidelog until a
fixture is used. Owns the clusters of a session, one for each number of brokers that tests ask for,
and that each test finds all nodes up, whatever the one before did to them.

    tidelog_brokers = 3                          in pytest's ini file: of all tests
    @pytest.mark.tidelog(brokers=3)              of one test, class or module
    @pytest.mark.tidelog(partitions=6)           of the topic in `tidelog_topic`
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tidelog.client import Consumer, Producer
    from tidelog.testing.cluster import TestCluster

MARKER: Final = "tidelog"
INI: Final = "tidelog_brokers"
CLUSTER: Final = "tidelog_cluster"
ARGUMENTS: Final = ("brokers", "partitions", "replication_factor", "configs")
TOPIC_CHARS_MAX: Final = 100
CONSUMER_TIMEOUT_MS: Final = 10_000
"""Iteration over `tidelog_consumer` ends after so long without a record: a test never hangs."""

_Clusters = dict[int, "TestCluster"]
_clusters: Final = pytest.StashKey[_Clusters]()
_topics: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini(INI, "how many brokers the cluster of tidelog_cluster has", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """The marker, for --strict-markers."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers, partitions, replication_factor, configs): the cluster behind "
        "tidelog_cluster, and the topic behind tidelog_topic",
    )
    config.stash[_topics] = 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a number of brokers gets the session's cluster of that size."""
    if CLUSTER not in metafunc.fixturenames:
        return
    marked = _marked(metafunc.definition)
    if "brokers" in marked:
        brokers = marked["brokers"]
        metafunc.parametrize(
            CLUSTER, [brokers], indirect=True, scope="session", ids=[f"{brokers}-brokers"]
        )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every node is up, although an earlier test may have killed some."""
    clusters = item.config.stash.get(_clusters, None)
    if clusters and CLUSTER in getattr(item, "fixturenames", ()):
        for cluster in clusters.values():
            cluster.heal()


@pytest.fixture(scope="session")
def _tidelog_clusters(pytestconfig: pytest.Config) -> "Iterator[_Clusters]":
    clusters: _Clusters = {}
    pytestconfig.stash[_clusters] = clusters
    try:
        yield clusters
    finally:
        del pytestconfig.stash[_clusters]
        while clusters:
            clusters.popitem()[1].close()


@pytest.fixture(scope="session")
def tidelog_cluster(
    request: pytest.FixtureRequest, _tidelog_clusters: "_Clusters"
) -> "TestCluster":
    """The session's cluster, started at the first use; all of its nodes are up at each test."""
    from tidelog.testing.cluster import TestCluster

    brokers = int(getattr(request, "param", request.config.getini(INI)))
    if brokers not in _tidelog_clusters:
        cluster = TestCluster(brokers)
        cluster.start()
        _tidelog_clusters[brokers] = cluster
    return _tidelog_clusters[brokers]


@pytest.fixture
def tidelog_topic(request: pytest.FixtureRequest, tidelog_cluster: "TestCluster") -> Iterator[str]:
    """The name of a new topic of this test's own; one partition, unless the marker says more."""
    marked = _marked(request.node)
    number = request.config.stash[_topics] = request.config.stash[_topics] + 1
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:TOPIC_CHARS_MAX]
    topic = tidelog_cluster.create_topic(
        f"{name}-{number}",
        marked.get("partitions", 1),
        marked.get("replication_factor", 0),
        marked.get("configs"),
    )
    yield topic
    tidelog_cluster.heal()
    tidelog_cluster.delete_topic(topic)


@pytest.fixture
def tidelog_producer(tidelog_cluster: "TestCluster") -> "Iterator[Producer]":
    """A producer with the default settings."""
    with tidelog_cluster.producer() as producer:
        yield producer


@pytest.fixture
def tidelog_consumer(tidelog_cluster: "TestCluster", tidelog_topic: str) -> "Iterator[Consumer]":
    """A consumer of `tidelog_topic` from its beginning, which waits ten seconds at most."""
    with tidelog_cluster.consumer(
        tidelog_topic, auto_offset_reset="earliest", consumer_timeout_ms=CONSUMER_TIMEOUT_MS
    ) as consumer:
        yield consumer


def _marked(node: Any) -> dict[str, Any]:
    """What the markers say, the nearest one first."""
    found: dict[str, Any] = {}
    for marker in node.iter_markers(MARKER):
        for name, value in marker.kwargs.items():
            if name not in ARGUMENTS:
                raise pytest.UsageError(
                    f"{node.nodeid}: {MARKER} has no argument {name!r}: it can be "
                    f"{', '.join(ARGUMENTS)}"
                )
            found.setdefault(name, value)
        if marker.args:
            raise pytest.UsageError(f"{node.nodeid}: {MARKER} takes arguments by name only")
    return found
