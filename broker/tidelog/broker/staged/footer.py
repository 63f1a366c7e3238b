"""The footer of a stage: what it was staged for, and how much for each target. Pure.

Owns its bytes: a tagged, versioned array, to which fields may be added at the end. It must never be
taken for whole on its own word: `verified` compares it with the token that names it.
"""

from typing import Final

import msgspec

from tidelog.broker.staged.limits import TARGETS_MAX
from tidelog.broker.staged.token import StageId, Token
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId


class StagedTarget(msgspec.Struct, frozen=True, array_like=True):
    """What one stage holds for one partition."""

    topic_id: TopicId
    partition: PartitionId
    first_offset: Offset
    """In the staging partition, of the first record for this target."""
    last_offset: Offset
    """Of the last one; those of other stages and targets may lie between them."""
    batch_count: int
    record_count: int
    size_bytes: int
    """Of the batches."""
    checksum: int
    """crc32c over the batches, one behind the other."""

    @property
    def key(self) -> PartitionKey:
        """Which partition it is meant for."""
        return PartitionKey(self.topic_id, self.partition)


class Footer(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="stage"):
    """The last record of a stage."""

    version: int = 1
    stage_id: StageId
    sink_id: str
    batch_id: int
    targets: tuple[StagedTarget, ...]
    """In the order in which each was first staged for; each once."""
    keep_until_ms: int
    """Wall time until which it stays, published or not."""


_VERSION: Final = 1
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Footer)


def encode_footer(footer: Footer) -> bytes:
    """The record's value."""
    problem = _problem(footer)
    assert problem is None, problem
    return _encoder.encode(footer)


def verified_footer(data: bytes, token: Token, *, tried: str) -> Footer:
    """The footer that the token names; STAGED_TOKEN_MISSING if another record stands there."""
    if checksum(data) != token.footer_sum:
        raise _missing(tried, "another record stands where its token says")
    try:
        footer = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _corrupt(tried, str(error)) from None
    if footer.version > _VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=tried,
            happened=f"a stage is of version {footer.version}, this release knows {_VERSION}",
        )
    problem = _problem(footer)
    if problem is not None:
        raise _corrupt(tried, problem)
    if footer.stage_id != token.stage_id:
        raise _missing(tried, "another stage stands where its token says")
    return footer


def _problem(footer: Footer) -> str | None:
    """What cannot be of a footer, whoever has written it."""
    keys = [each.key for each in footer.targets]
    if len(set(keys)) < len(keys):
        return "a target stands there twice"
    if len(keys) > TARGETS_MAX:
        return f"it has {len(keys)} targets, the limit is {TARGETS_MAX}"
    if footer.batch_id < 0:
        return f"its batch id is {footer.batch_id}"
    for each in footer.targets:
        span = each.last_offset - each.first_offset + 1
        is_right = each.first_offset >= 0 and 1 <= each.batch_count <= span
        if not is_right or each.record_count < each.batch_count or each.size_bytes <= 0:
            return (
                f"{each.batch_count} batches of {each.record_count} records at "
                f"{each.first_offset} to {each.last_offset}"
            )
    return None


def _missing(tried: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STAGED_TOKEN_MISSING, tried=tried, happened=happened)


def _corrupt(tried: str, happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.STORAGE_CORRUPT, tried=tried, happened=f"a footer cannot be read: {happened}"
    )
