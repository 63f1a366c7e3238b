"""The token of a stage: where its footer stands, and the sum over it. Pure.

Owns its bytes, which clients store and hand back without looking into them. It must never change a
layout under its version: a token may be published weeks later, by a newer release.

    u8 version 1 | 16 bytes stage id | u32 staging partition | i64 the footer's offset
    | u32 crc32c of the footer | u32 crc32c of all before                            = 37 bytes
"""

import struct
from typing import Final, NewType

import msgspec

from tidelog.broker.staged.limits import TOKEN_BYTES_MAX
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId

StageId = NewType("StageId", bytes)
"""16 bytes, drawn for each stage."""
STAGE_ID_BYTES: Final = 16

_VERSION: Final = 1
_TOKEN: Final = struct.Struct(">B16sIqI")
_SUM: Final = struct.Struct(">I")
TOKEN_BYTES: Final = _TOKEN.size + _SUM.size
assert TOKEN_BYTES <= TOKEN_BYTES_MAX, "the contract promises less"


class Token(msgspec.Struct, frozen=True):
    """Names one finished stage."""

    stage_id: StageId
    staging_partition: PartitionId
    footer_offset: Offset
    footer_sum: int
    """Of the footer's bytes: another stage at the same place is not taken for it."""


def encode_token(token: Token) -> bytes:
    """What the writer is answered."""
    assert len(token.stage_id) == STAGE_ID_BYTES, f"a stage id has {STAGE_ID_BYTES} bytes"
    data = _TOKEN.pack(
        _VERSION, token.stage_id, token.staging_partition, token.footer_offset, token.footer_sum
    )
    return data + _SUM.pack(checksum(data))


def decode_token(data: bytes, *, tried: str) -> Token:
    """What `encode_token` has made; INVALID_ARGUMENT for anything else."""
    if not data or len(data) > TOKEN_BYTES_MAX:
        raise _no_token(tried, f"a token has {len(data)} bytes")
    if data[0] != _VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=tried,
            happened=f"a token is of version {data[0]}, this release knows {_VERSION}",
        )
    if len(data) != TOKEN_BYTES:
        raise _no_token(tried, f"a token has {len(data)} bytes, not {TOKEN_BYTES}")
    told, found = data[: _TOKEN.size], _SUM.unpack_from(data, _TOKEN.size)[0]
    if checksum(told) != found:
        raise _no_token(tried, "a token contradicts its sum")
    _, stage_id, staging_partition, footer_offset, footer_sum = _TOKEN.unpack(told)
    if footer_offset < 0:
        raise _no_token(tried, f"a token names offset {footer_offset}")
    return Token(
        StageId(stage_id), PartitionId(staging_partition), Offset(footer_offset), footer_sum
    )


def _no_token(tried: str, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=tried,
        happened=happened,
        hint="Hand tokens back as Stage answered them.",
    )
