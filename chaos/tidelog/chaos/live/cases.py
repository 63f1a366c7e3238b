"""The registry of live cases by name: `python -m tidelog.chaos.live --case NAME`."""

from functools import partial
from typing import Final

from tidelog.chaos.live.cluster.faults.cases import CLUSTER_CASES, run_cluster_case
from tidelog.chaos.live.cluster.nodes import PARTITIONS
from tidelog.chaos.live.groups.scaling import run_group_scaling
from tidelog.chaos.live.growth.cases import GROWTH_CASES, run_growth_case
from tidelog.chaos.live.quorum.cases import QUORUM_CASES, run_quorum_case
from tidelog.chaos.live.shared.case import Case, Orders
from tidelog.chaos.live.single.kill_while_producing import run_producing
from tidelog.chaos.live.single.slow_clients import run_slow_clients
from tidelog.chaos.live.transactions.run import CASES as TRANSACTION_CASES

PRODUCING: Final = "producing"
"""What is run where no case is named."""


def _slow_clients(orders: Orders) -> int:
    return run_slow_clients(orders.directory)


def _group_scaling(orders: Orders) -> int:
    return run_group_scaling(
        orders.directory, seconds=orders.seconds, rate=orders.rate, partitions=PARTITIONS
    )


def _growth(name: str, orders: Orders) -> int:
    return run_growth_case(name, orders.directory, seconds=orders.seconds, rate=orders.rate)


CASES: Final[dict[str, Case]] = {
    PRODUCING: Case("kill -9 of a lone node while it is written to", run_producing),
    "slow-clients": Case("callers that read, write or end slowly", _slow_clients),
    **{
        name: Case(case.summary, partial(run_quorum_case, name))
        for name, case in QUORUM_CASES.items()
    },
    **{
        name: Case(case.summary, partial(run_cluster_case, name))
        for name, case in CLUSTER_CASES.items()
    },
    "group-scaling": Case("a group of 1, 8 and 3 members, under load", _group_scaling),
    **{name: Case(case.summary, partial(_growth, name)) for name, case in GROWTH_CASES.items()},
    **{name: Case(summary, run) for name, (summary, run) in TRANSACTION_CASES.items()},
}
GROUPS: Final[dict[str, tuple[str, ...]]] = {"quorum": tuple(QUORUM_CASES)}
"""Several cases under one name, run one after the other."""
