"""Addresses, directory uuids and lists of voters as they are typed. Pure.

Owns how they look; whether they fit together is for whoever formats or asks the quorum to say.
"""

import argparse
from typing import Final, NamedTuple

UUID_BYTES: Final = 16
_PORT_MAX: Final = 65_535
_NODE_ID_MAX: Final = 2_147_483_647


class TypedVoter(NamedTuple):
    """One of `--initial-voters`."""

    node_id: int
    address: str
    directory_uuid: bytes


def address(text: str) -> str:
    """`host:port`, or `[v6]:port`."""
    host, colon, port = text.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX
    is_host = (
        bool(host) and not is_bare_v6 and not any(each.isspace() or each in "/@" for each in host)
    )
    if not colon or not is_port or not is_host:
        raise argparse.ArgumentTypeError(f"`{text}` is not host:port")
    return text


def directory_uuid(text: str) -> bytes:
    """32 hexadecimal digits, with or without dashes."""
    try:
        value = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        value = b""
    if len(value) != UUID_BYTES or not text.isascii() or " " in text:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a directory uuid of 32 hexadecimal digits"
        )
    return value


def node_id(text: str) -> int:
    """From 1 on."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= _NODE_ID_MAX:
        raise argparse.ArgumentTypeError(f"`{text}` is not a node id from 1 to {_NODE_ID_MAX}")
    return value


def initial_voters(text: str) -> tuple[TypedVoter, ...]:
    """`1@host:port/UUID,2@host:port/UUID`."""
    return tuple(_voter(part.strip()) for part in text.split(","))


def _voter(text: str) -> TypedVoter:
    number, at, rest = text.partition("@")
    place, slash, uuid = rest.rpartition("/")
    if not at or not slash:
        raise argparse.ArgumentTypeError(f"`{text}` is not NODE_ID@HOST:PORT/UUID")
    return TypedVoter(node_id(number), address(place), directory_uuid(uuid))
