"""Every RPC says who may call it and where."""

from typing import Literal

import pytest
from google.protobuf import descriptor_pb2 as pb

from tests.contract import descriptors
from tidelog.v1 import options_pb2

Part = Literal["resource", "operation", "listener"]
PARTS: tuple[Part, ...] = ("resource", "operation", "listener")


def faults(contract: pb.FileDescriptorSet) -> list[str]:
    """A line for each RPC whose access option lacks something or contradicts itself."""
    found = []
    for name, method in descriptors.methods(contract):
        access = descriptors.access_of(method)
        if access is None:
            found.append(f"{name}: no access option")
            continue
        found += [f"{name}: no {part}" for part in PARTS if not getattr(access, part)]
        between_nodes = access.operation == options_pb2.OPERATION_CLUSTER_ACTION
        on_cluster = access.listener == options_pb2.LISTENER_CLUSTER
        if between_nodes != on_cluster:
            found.append(f"{name}: calls between nodes, and only they, are on the cluster listener")
    return found


def first_method(contract: pb.FileDescriptorSet, name: str) -> pb.MethodDescriptorProto:
    """The RPC of this full name."""
    return next(method for found, method in descriptors.methods(contract) if found == name)


@pytest.fixture
def copied(contract: pb.FileDescriptorSet) -> pb.FileDescriptorSet:
    """A copy to spoil."""
    result = pb.FileDescriptorSet()
    result.CopyFrom(contract)
    return result


def test_every_call_names_resource_operation_and_listener(contract: pb.FileDescriptorSet) -> None:
    assert faults(contract) == []


def test_the_walk_finds_calls_of_every_service(contract: pb.FileDescriptorSet) -> None:
    services = sum(len(file.service) for file in descriptors.our_files(contract))
    found = {name.rsplit(".", 1)[0] for name, _ in descriptors.methods(contract)}
    assert len(found) == services > 5


def test_a_missing_option_is_seen(copied: pb.FileDescriptorSet) -> None:
    method = first_method(copied, "tidelog.v1.FetchService.Fetch")
    method.options.ClearExtension(options_pb2.access)
    assert faults(copied) == ["tidelog.v1.FetchService.Fetch: no access option"]


@pytest.mark.parametrize("part", PARTS)
def test_an_unspecified_part_is_seen(copied: pb.FileDescriptorSet, part: Part) -> None:
    method = first_method(copied, "tidelog.v1.FetchService.Fetch")
    method.options.Extensions[options_pb2.access].ClearField(part)
    assert faults(copied) == [f"tidelog.v1.FetchService.Fetch: no {part}"]


def test_a_call_between_nodes_on_the_listener_of_clients_is_seen(
    copied: pb.FileDescriptorSet,
) -> None:
    method = first_method(copied, "tidelog.v1.MarkerService.WriteMarkers")
    method.options.Extensions[options_pb2.access].listener = options_pb2.LISTENER_CLIENT
    assert len(faults(copied)) == 1
