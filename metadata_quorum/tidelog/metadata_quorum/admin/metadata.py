"""The metadata as a tree of names, and feature levels, from any image. Pure but for protobuf.

Owns the tree that `ListMetadata` and `DescribeMetadata` show. It is for people: its form may change
from release to release. A name that holds a `/` or is empty is percent-encoded; `%` for the quota
of all that have none of their own.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.admin.brokers import fill_feature
from tidelog.metadata_quorum.controller.features import describe_features as feature_states
from tidelog.v1 import metadata_admin_pb2
from tidelog.wire.nearest import did_you_mean
from tidelog.wire.refusals import invalid

PATH_CHARACTERS_MAX: Final = 2_000
EVERYBODY: Final = "%"
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def list_metadata(image: Image, message: bytes) -> bytes:
    """`ListMetadata`."""
    asked = metadata_admin_pb2.ListMetadataRequest.FromString(message)
    node = _find(image, asked.path, tried="list metadata")
    names: list[str] = []
    if isinstance(node, Mapping):
        names = [f"{name}/" if _has_names(child) else name for name, child in _children(node)]
    return metadata_admin_pb2.ListMetadataResponse(
        names=names, applied_index=image.version
    ).SerializeToString()


def describe_metadata(image: Image, message: bytes) -> bytes:
    """`DescribeMetadata`."""
    asked = metadata_admin_pb2.DescribeMetadataRequest.FromString(message)
    node = _find(image, asked.path, tried="describe metadata")
    if not asked.path.strip("/"):
        raise invalid(
            "describe metadata",
            "the top holds everything",
            "Name something below it: ListMetadata shows the names.",
        )
    return metadata_admin_pb2.DescribeMetadataResponse(
        json=_ENCODER.encode(_plain(node)).decode(), applied_index=image.version
    ).SerializeToString()


def describe_features(image: Image, message: bytes) -> bytes:
    """`DescribeFeatures`."""
    metadata_admin_pb2.DescribeFeaturesRequest.FromString(message)
    response = metadata_admin_pb2.DescribeFeaturesResponse()
    for state in feature_states(image):
        fill_feature(response.features.add(), state)
    return response.SerializeToString()


_TOP: Final[dict[str, Callable[[Image], object]]] = {
    "brokers": lambda image: image.brokers,
    "cluster": lambda image: {"cluster_id": image.cluster_id, **_fields(image.cluster)},
    "configuration": lambda image: {
        "brokers": image.broker_configurations,
        "cluster": image.cluster_configuration,
        "groups": image.group_configurations,
    },
    "features": lambda image: image.features,
    "producer_ids": lambda image: {"next_producer_id": image.next_producer_id},
    "quotas": lambda image: image.quotas,
    "topics": lambda image: _Topics(image),
}


class _Topics(Mapping[str, object]):
    """Topics by name; partitions by number below them. Made as it is walked."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def __getitem__(self, name: str) -> object:
        topic = self._image.topics[self._image.topic_ids[name]]
        partitions = {str(each.partition): each for each in topic.partitions}
        return {**_fields(topic), "partitions": partitions}

    def __iter__(self) -> Iterator[str]:
        return iter(self._image.topic_ids)

    def __len__(self) -> int:
        return len(self._image.topic_ids)


def _find(image: Image, path: str, *, tried: str) -> object:
    """What stands at the path, or INVALID_ARGUMENT with the nearest name."""
    if len(path) > PATH_CHARACTERS_MAX:
        raise invalid(tried, f"the path has more than {PATH_CHARACTERS_MAX} characters")
    node: object = {name: make(image) for name, make in _TOP.items()}
    walked = ""
    for name in path.strip("/").split("/"):
        if not name:
            continue
        known = dict(_children(node)) if isinstance(node, Mapping) else {}
        if name not in known:
            raise invalid(
                f"{tried} at {path}",
                f"there is no `{name}` in {walked or '/'}",
                did_you_mean(name, known),
            )
        node = known[name]
        walked = f"{walked}/{name}"
    return node


def _children(node: Mapping[object, object]) -> list[tuple[str, object]]:
    return sorted((_name(key), child) for key, child in node.items())


def _has_names(node: object) -> bool:
    return isinstance(node, Mapping)


def _name(key: object) -> str:
    return quote(str(key), safe="._-~:@ ") or EVERYBODY


def _fields(struct: msgspec.Struct) -> dict[str, object]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _plain(node: object) -> object:
    """As JSON can say it: bytes in hexadecimal, keys as text."""
    if isinstance(node, bytes):
        return node.hex()
    if isinstance(node, msgspec.Struct):
        return {name: _plain(value) for name, value in _fields(node).items()}
    if isinstance(node, Mapping):
        return {_name(key): _plain(value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return [_plain(each) for each in node]
    return node
