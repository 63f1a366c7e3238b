"""What a controller does with addresses that its own node was told of."""

import asyncio

import pytest

from tests.server.support.cluster_in_world import Cluster
from tidelog.v1 import broker_admin_pb2


async def unfenced(cluster: Cluster) -> list[int]:
    """Brokers that may lead."""
    answer = await cluster.call(1, "BrokerAdminService/ListBrokers", b"")
    brokers = broker_admin_pb2.ListBrokersResponse.FromString(answer).brokers
    return [each.broker_id for each in brokers if not each.is_fenced]


@pytest.mark.parametrize(
    ("file_text", "found"), [("", []), ("[peer_addresses]\n2 = 'n1:2'\n", [2])]
)
def test_a_broker_whose_session_broke_is_probed_where_peer_addresses_say(
    file_text: str, found: list[int]
) -> None:
    async def work(cluster: Cluster) -> None:
        assert await unfenced(cluster) == [2]
        cluster.nodes[2].kill()
        await asyncio.sleep(3)
        assert await unfenced(cluster) == found, "refused: it is dead; answered: it may live"

    cluster = Cluster(controllers=1, brokers=1)
    cluster.nodes[1].file_text = file_text
    cluster.run(work)
