"""What was released stays: what `buf breaking` sees, and what it does not see."""

import subprocess

import pytest
from google.protobuf import descriptor_pb2 as pb

from tests.contract import descriptors
from tests.support.waiting import HANG_SECONDS
from tidelog.v1 import options_pb2

SERVED = ("admin", "common", "errors", "fetch", "metadata", "options", "produce", "records")


@pytest.fixture
def copied(baseline: pb.FileDescriptorSet) -> pb.FileDescriptorSet:
    """A copy of what was released, to spoil."""
    result = pb.FileDescriptorSet()
    result.CopyFrom(baseline)
    return result


def changes(baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet) -> list[str]:
    """What the comparison says of a spoilt copy."""
    return descriptors.option_changes(baseline, copied, descriptors.unreleased_files())


def method_of(copied: pb.FileDescriptorSet, name: str) -> pb.MethodDescriptorProto:
    """The RPC of this full name."""
    return dict(descriptors.methods(copied))[name]


def test_no_option_and_no_extension_differs_from_the_last_release(
    baseline: pb.FileDescriptorSet, contract: pb.FileDescriptorSet
) -> None:
    assert changes(baseline, contract) == []


@pytest.mark.slow
def test_buf_finds_nothing_that_breaks_the_last_release() -> None:
    command = [str(descriptors.BUF), "breaking", "--against", str(descriptors.BASELINE)]
    done = subprocess.run(
        command,
        cwd=descriptors.TOP,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_changed_value_of_an_option_is_seen(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    options = method_of(copied, "tidelog.v1.ProduceService.Produce").options
    options.Extensions[options_pb2.access].operation = options_pb2.OPERATION_READ
    found = changes(baseline, copied)
    assert len(found) == 1
    assert found[0].startswith("method tidelog.v1.ProduceService.Produce: options")


def test_an_option_taken_away_is_seen(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    method_of(copied, "tidelog.v1.ProduceService.Produce").ClearField("options")
    assert len(changes(baseline, copied)) == 1


def test_an_extension_with_another_number_is_seen(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    file = next(file for file in copied.file if file.name.endswith("/options.proto"))
    file.extension[0].number += 1
    found = changes(baseline, copied)
    assert len(found) == 1
    assert found[0].startswith("extension tidelog.v1.access: ")


def test_a_field_that_is_gone_is_seen(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    file = next(file for file in copied.file if file.name.endswith("/records.proto"))
    gone = file.message_type[0].field.pop()
    assert changes(baseline, copied) == [f"field tidelog.v1.Record.{gone.name}: gone"]


def test_what_is_marked_as_deprecated_has_not_changed(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    method_of(copied, "tidelog.v1.ProduceService.Produce").options.deprecated = True
    assert changes(baseline, copied) == []


def test_unreleased_services_may_change(
    baseline: pb.FileDescriptorSet, copied: pb.FileDescriptorSet
) -> None:
    method_of(copied, "tidelog.v1.GroupService.GroupHeartbeat").ClearField("options")
    assert changes(baseline, copied) == []


def test_the_list_of_what_may_change_names_files_that_exist_and_nothing_that_is_served() -> None:
    names = descriptors.unreleased_files()
    assert names, "buf.yaml lists them under breaking.ignore"
    assert [name for name in names if not (descriptors.PROTO / name).is_file()] == []
    assert set(names).isdisjoint(f"{descriptors.OURS}{name}.proto" for name in SERVED)


def test_what_is_served_stands_on_released_files_only(contract: pb.FileDescriptorSet) -> None:
    unreleased = set(descriptors.unreleased_files())
    for file in descriptors.our_files(contract):
        if file.name.removeprefix(descriptors.OURS).removesuffix(".proto") in SERVED:
            assert unreleased.isdisjoint(file.dependency), f"{file.name} may not change"


def test_the_baseline_serves_as_a_set_of_descriptors_for_tools(
    baseline: pb.FileDescriptorSet,
) -> None:
    known: set[str] = set()
    for file in baseline.file:
        assert known.issuperset(file.dependency), f"{file.name} comes before what it imports"
        known.add(file.name)
    assert "google/protobuf/descriptor.proto" in known
