"""Groups through both admin clients: what is asked, asked again, and told."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from tests.client.support.group_server import GroupServer
from tidelog.client import AdminClient, OffsetAndMetadata, TopicPartition
from tidelog.client.aio import AsyncAdminClient
from tidelog.client.aio.admin.groups import AsyncGroupCalls
from tidelog.client.sync.admin.groups import GroupCalls
from tidelog.client.types.groups import (
    GroupDescription,
    GroupState,
    GroupType,
    MemberToRemove,
    OffsetTimestamp,
)
from tidelog.wire.errors import ErrorCode, TidelogError

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Both:
    """One of the two clients, called in the same way."""

    def __init__(self, address: str, *, is_async: bool) -> None:
        self._address = address
        self._is_async = is_async

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        if not self._is_async:
            with AdminClient(bootstrap_servers=self._address, retry_backoff_ms=1) as admin:
                return getattr(admin, name)(*arguments, **named)

        async def run() -> Any:
            async with AsyncAdminClient(
                bootstrap_servers=self._address, retry_backoff_ms=1
            ) as admin:
                return await getattr(admin, name)(*arguments, **named)

        return asyncio.run(run())


@pytest.fixture
def server() -> Iterator[GroupServer]:
    """Two groups: one at work, one that nobody is a member of."""
    with GroupServer() as started:
        started.create("orders", 2)
        started.create("refunds", 1)
        started.fill("orders", 0, 10, 100)
        started.fill("orders", 1, 0, 50)
        started.commit("billing", "orders", 0, 90)
        started.commit("billing", "refunds", 0, 0)
        started.commit("reports", "orders", 0, 100)
        started.join("reports", "m1", ("orders", 0), ("orders", 1))
        yield started


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def admin(server: GroupServer, request: pytest.FixtureRequest) -> Both:
    return Both(server.address, is_async=request.param)


def test_both_clients_have_the_same_calls() -> None:
    for name, call in inspect.getmembers(GroupCalls, inspect.isfunction):
        if name.startswith("_") or name not in vars(GroupCalls):
            continue
        other = getattr(AsyncGroupCalls, name)
        assert inspect.signature(call) == inspect.signature(other), name
        assert get_type_hints(call) == get_type_hints(other), name


def test_groups_are_listed_by_name_page_by_page(server: GroupServer, admin: Both) -> None:
    server.page_max = 1
    billing, reports = admin.call("list_groups")
    assert (billing.group_id, billing.state, billing.lag) == ("billing", GroupState.EMPTY, 10)
    assert billing.group_type is GroupType.RECONCILED
    assert (reports.group_id, reports.member_count) == ("reports", 1)
    assert server.asked == ["ListGroups", "ListGroups"]
    assert [each.group_id for each in admin.call("list_groups", [GroupState.STABLE])] == ["reports"]


def test_a_list_that_lacks_somebodys_groups_says_so(server: GroupServer, admin: Both) -> None:
    server.missing_coordinators = 2
    with pytest.raises(TidelogError, match="2 coordinators") as caught:
        admin.call("list_groups", (), (), 300)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = admin.call("try_list_groups")
    assert (len(found.groups), found.missing_coordinators) == (2, 2)


def test_a_list_is_asked_for_again_while_a_coordinator_moves(
    server: GroupServer, admin: Both
) -> None:
    server.lists_before_all = 2
    assert len(admin.call("list_groups")) == 2
    assert server.lists_before_all == 0


def test_a_group_is_described_with_members_and_partitions(admin: Both) -> None:
    (reports,) = admin.call("describe_groups", ["reports"])
    assert (reports.state, reports.assignor, reports.coordinator_id) == (
        GroupState.STABLE,
        "uniform",
        1,
    )
    (member,) = reports.members
    assert member.assigned == member.target == (ORDERS_0, ORDERS_1)
    assert [(each.partition, each.committed_offset, each.lag) for each in reports.partitions] == [
        (0, 100, 0),
        (1, -1, -1),
    ]
    assert reports.lag == 0, "for the other one nothing was committed"


def test_each_group_has_an_outcome_of_its_own(admin: Both) -> None:
    outcomes = admin.call("try_describe_groups", ["billing", "billin", "billing"])
    assert list(outcomes) == ["billing", "billin"]
    assert isinstance(outcomes["billing"], GroupDescription)
    assert outcomes["billin"].code is ErrorCode.GROUP_NOT_FOUND
    with pytest.raises(TidelogError):
        admin.call("describe_groups", ["billing", "billin"])


def test_a_coordinator_that_is_loading_is_waited_for(server: GroupServer, admin: Both) -> None:
    loading = ErrorCode.COORDINATOR_NOT_AVAILABLE
    server.failures = [loading, ErrorCode.NOT_COORDINATOR]
    (billing,) = admin.call("describe_groups", ["billing"])
    assert billing.lag == 10
    server.failures = [loading]
    assert admin.call("list_group_offsets", "billing")["billing"][ORDERS_0].offset == 90
    server.failures = [loading]
    assert admin.call("alter_group_offsets", "billing", {ORDERS_0: 91}) == {ORDERS_0: 90}
    server.failures = [loading]
    admin.call("delete_group_offsets", "billing", [ORDERS_0])
    server.failures = [loading]
    admin.call("delete_groups", ["billing"])
    assert server.known() == ["reports"]


def test_a_deletion_that_may_have_been_done_is_not_asked_again(
    server: GroupServer, admin: Both
) -> None:
    server.failures = [ErrorCode.DEADLINE_EXCEEDED]
    outcomes = admin.call("try_delete_groups", ["billing"])
    assert outcomes["billing"].code is ErrorCode.DEADLINE_EXCEEDED
    assert server.asked == ["DeleteGroups"]


def test_groups_with_members_are_neither_deleted_nor_reset(
    server: GroupServer, admin: Both
) -> None:
    outcomes = admin.call("try_delete_groups", ["reports", "billing"], validate_only=True)
    assert outcomes["reports"].code is ErrorCode.GROUP_NOT_EMPTY
    assert outcomes["billing"] is None
    assert server.known() == ["billing", "reports"], "it was only checked"
    for name, asked in (
        ("alter_group_offsets", {ORDERS_0: 10}),
        ("reset_group_offsets", {ORDERS_0: "earliest"}),
        ("delete_group_offsets", [ORDERS_0]),
    ):
        with pytest.raises(TidelogError) as caught:
            admin.call(name, "reports", asked)
        assert caught.value.code is ErrorCode.GROUP_NOT_EMPTY
    assert server.offsets["reports"] == {(server.topics["orders"], 0): 100}


def test_offsets_are_listed_as_they_were_committed(admin: Both) -> None:
    offsets = admin.call("list_group_offsets", ["billing", "nobody"])
    assert offsets == {
        "billing": {
            ORDERS_0: OffsetAndMetadata(90, "noted", -1),
            TopicPartition("refunds", 0): OffsetAndMetadata(0, "noted", -1),
        },
        "nobody": {},
    }
    chosen = admin.call("list_group_offsets", {"billing": [ORDERS_1, ORDERS_0]})
    assert list(chosen["billing"]) == [ORDERS_0]


def test_offsets_are_set_all_or_none(server: GroupServer, admin: Both) -> None:
    wanted = {ORDERS_0: OffsetAndMetadata(11), ORDERS_1: 51}
    with pytest.raises(TidelogError, match="orders-1") as caught:
        admin.call("alter_group_offsets", "billing", wanted)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    wanted[ORDERS_1] = 50
    before = admin.call("alter_group_offsets", "billing", wanted, validate_only=True)
    assert before == {ORDERS_0: 90, ORDERS_1: -1}
    assert server.offsets["billing"][server.topics["orders"], 0] == 90
    admin.call("alter_group_offsets", "billing", wanted)
    assert server.offsets["billing"][server.topics["orders"], 1] == 50
    assert admin.call("alter_group_offsets", "billing", {}) == {}


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 10),
        ("latest", 100),
        (42, 42),
        (3, 10),
        (1_000, 100),
        (OffsetTimestamp(9_999_999_999_999), 100),
    ],
    ids=str,
)
def test_a_reset_leads_to_what_the_partition_holds(admin: Both, to: Any, offset: int) -> None:
    assert admin.call("reset_group_offsets", "billing", {ORDERS_0: to}) == {
        ORDERS_0: OffsetAndMetadata(offset)
    }
    assert admin.call("list_group_offsets", "billing")["billing"][ORDERS_0].offset == offset


def test_what_is_not_there_is_refused_at_once(server: GroupServer, admin: Both) -> None:
    with pytest.raises(TidelogError) as caught:
        admin.call("alter_group_offsets", "billing", {TopicPartition("orders", 2): 0})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TidelogError) as caught:
        admin.call("alter_group_offsets", "billing", {TopicPartition("order", 0): 0})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    assert "orders" in caught.value.hint
    assert "AlterGroupOffsets" not in server.asked


def test_members_leave_by_id_or_all_of_them(server: GroupServer, admin: Both) -> None:
    server.join("reports", "m2")
    one = [MemberToRemove(member_id="m2"), MemberToRemove(member_id="gone")]
    assert admin.call("remove_group_members", "reports", one) == ["m2"]
    assert admin.call("remove_group_members", "reports") == ["m1"]
    for wrong in ([], [MemberToRemove()]):
        with pytest.raises(TidelogError) as caught:
            admin.call("remove_group_members", "reports", wrong)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
