"""Serializers and deserializers as kafka-python has them: objects, or plain functions.

Owns the base classes and the two that come with kafka-python. They must never know a client.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "DefaultSerializer",
    "Deserializer",
    "JsonSerializer",
    "Serializer",
    "read_by",
    "written_by",
]

Headers = Sequence[tuple[str, bytes | None]]
Conversion = Callable[[str, Headers, Any], Any]
"""Called with topic, headers and data."""


class Serializer(ABC):
    """Makes bytes of what a script sends."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """The bytes to send; None stays None."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to close
        """The producer is closed."""


class Deserializer(ABC):
    """Makes of bytes what a script reads."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """What the bytes mean; None is what a deleted key leaves."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to close
        """The consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text as UTF-8; bytes stay as they are."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        if type(data) in (bytes, bytearray, memoryview, type(None)):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """Anything that JSON can say."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


def written_by(serializer: Any) -> Conversion | None:
    """One call for objects and functions; a function is called with the value alone."""
    return _conversion(serializer, "serialize")


def read_by(deserializer: Any) -> Conversion | None:
    """The same for reading."""
    return _conversion(deserializer, "deserialize")


def _conversion(given: Any, method: str) -> Conversion | None:
    if given is None:
        return None
    found: Conversion | None = getattr(given, method, None)
    return found if found is not None else lambda _topic, _headers, data: given(data)
