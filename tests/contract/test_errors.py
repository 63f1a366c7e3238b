"""The list of errors is one list: Python's enum, the contract's enum and what is said of each."""

from google.protobuf import descriptor_pb2 as pb

from tests.contract import descriptors
from tidelog.v1 import errors_pb2
from tidelog.wire.errors import CATALOGUE, ErrorCode

PREFIX = "ERROR_CODE_"
ENUM = f"tidelog.v1.ErrorCode.{PREFIX}"


def documented(contract: pb.FileDescriptorSet) -> dict[str, str]:
    """What errors.proto says of each code."""
    texts = descriptors.comments(contract)
    return {
        element.name.removeprefix(ENUM): texts[element.file, element.path]
        for element in descriptors.elements(contract)
        if element.kind == "value" and element.name.startswith(ENUM)
    }


def test_the_enum_of_the_contract_is_the_enum_of_the_code(contract: pb.FileDescriptorSet) -> None:
    numbers = {
        element.name.removeprefix(ENUM): element.proto.number
        for element in descriptors.elements(contract)
        if isinstance(element.proto, pb.EnumValueDescriptorProto) and element.name.startswith(ENUM)
    }
    assert numbers == {code.name: code.value for code in ErrorCode}


def test_the_generated_enum_is_the_enum_of_the_code() -> None:
    generated = {name.removeprefix(PREFIX): number for name, number in errors_pb2.ErrorCode.items()}
    assert generated == {code.name: code.value for code in ErrorCode}


def test_meaning_retriability_and_remedy_stand_in_the_contract(
    contract: pb.FileDescriptorSet,
) -> None:
    assert documented(contract) == {
        code.name: f"{entry.meaning} {'Retriable' if entry.retriable else 'Not retriable'}. "
        f"Remedy: {entry.remedy}"
        for code, entry in CATALOGUE.items()
    }


def test_every_code_has_an_entry_and_no_entry_is_empty() -> None:
    assert list(CATALOGUE) == list(ErrorCode), "the catalogue keeps the order of the enum"
    assert not [code for code, entry in CATALOGUE.items() if not entry.meaning or not entry.remedy]


def test_an_error_of_one_side_only_is_seen(contract: pb.FileDescriptorSet) -> None:
    changed = pb.FileDescriptorSet()
    changed.CopyFrom(contract)
    file = next(file for file in changed.file if file.name.endswith("errors.proto"))
    enum = next(enum for enum in file.enum_type if enum.name == "ErrorCode")
    enum.value.pop(1)
    assert "UNKNOWN" not in documented(changed)
