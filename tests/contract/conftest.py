"""Fixtures of the contract's tests: the descriptors of now and of the last release.

Owns that they are built once; a test that changes them copies them first.
"""

import pytest
from google.protobuf import descriptor_pb2 as pb

from tests.contract import descriptors


@pytest.fixture(scope="session")
def contract() -> pb.FileDescriptorSet:
    """Built from the .proto files as they are now."""
    return descriptors.build()


@pytest.fixture(scope="session")
def baseline() -> pb.FileDescriptorSet:
    """As it was last released."""
    return descriptors.read_baseline()
