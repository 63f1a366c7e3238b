"""The program's own test, with a real cluster in this process: typed as the rest.

`pytest examples/typed`: the fixture `tidelog_cluster` comes with Tidelog.
"""

import pytest

from examples.typed.orders import TOPIC, Order, create, read, write
from tidelog.testing import TestCluster


def test_orders_are_read_in_the_order_of_each_customer(tidelog_cluster: TestCluster) -> None:
    create(tidelog_cluster.bootstrap)
    orders = [Order("ada", 1_200), Order("bob", 80), Order("ada", 5)]
    places = write(tidelog_cluster.producer(), orders)
    consumer = tidelog_cluster.consumer(
        TOPIC, auto_offset_reset="earliest", consumer_timeout_ms=300
    )
    found = list(read(consumer))
    assert len(found) == len(places)
    assert [order.cents for _, _, order in found if order.customer == "ada"] == [1_200, 5]


@pytest.mark.tidelog(brokers=3)
def test_orders_survive_the_death_of_a_broker(tidelog_cluster: TestCluster) -> None:
    create(tidelog_cluster.bootstrap)
    producer = tidelog_cluster.producer()
    write(producer, [Order("ada", 1)])
    leader: int = tidelog_cluster.leader_of(TOPIC, 0)
    tidelog_cluster.kill(leader)
    write(producer, [Order("ada", 2), Order("bob", 3)])
    assert tidelog_cluster.state_of(leader) == "killed"
