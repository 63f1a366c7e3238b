"""What the nodes of a simulated cluster would export, read as a scraper would."""

from tests.server.support.cluster_in_world import Cluster
from tidelog.broker.shared.meter import Histogram
from tidelog.server.metrics.gather import Gatherer
from tidelog.server.metrics.scrape import Scrape


async def scrape(cluster: Cluster, number: int) -> Scrape:
    """Of one node."""
    node = cluster.nodes[number].node
    assert node is not None, f"node {number} runs"
    return await Gatherer().gather(node._monitoring.sources)


def value(scraped: Scrape, name: str, *labels: str) -> float:
    """Of one metric; 0 where nothing was ever counted under the labels."""
    return scraped.values.get(name, {}).get(labels, 0)


async def read(cluster: Cluster, number: int, name: str, *labels: str) -> float:
    """Of one metric of one node now."""
    return value(await scrape(cluster, number), name, *labels)


def histograms(scraped: Scrape, name: str) -> dict[tuple[str, ...], Histogram]:
    """By labels."""
    return scraped.histograms.get(name, {})
